"""What becomes of a call between client and daemon: taken back, asked twice, cut off, too late, too large; and in which order."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.daemon.scripted import CALL, Message, running, text_of

from confide_crypto.errors import ConfideError
from confide_memory.tools.call import SAID
from confide_proxy.mcp.tunnel import MAX_AT_ONCE


async def test_a_call_that_is_taken_back_is_not_answered(tmp_path: Path) -> None:
    """The daemon hears of it behind the call itself; what it says all the same reaches nobody."""
    async with running(tmp_path) as (_, daemon, client):
        client.call(7)
        await daemon.until(lambda: daemon.calls)
        client.cancel(7)
        await daemon.until(lambda: len(daemon.messages) == 2)
        assert [message["method"] for message in daemon.messages] == [CALL, "notifications/cancelled"]
        await daemon.answer(7)
        await client.hears_nothing()
        client.cancel(7)  # once more, and of a call that nobody has made
        client.cancel("none")
        await client.hears_nothing()


async def test_a_call_that_is_taken_back_before_there_is_a_link_is_never_made(tmp_path: Path) -> None:
    async with running(tmp_path) as (setting, daemon, client):
        await setting.close()
        client.call(7, "memory_store", content="taken back")
        client.call(8, "memory_read", path="MEMORY.md")
        client.cancel(7)
        client.cancel(8)
        await asyncio.sleep(0.2)
        daemon.lines.clear()
        await setting.listen()
        client.call(9)
        await daemon.until(lambda: daemon.calls)
        await daemon.answer(9)
        assert (await client.next())["id"] == 9
        assert [call["id"] for call in daemon.calls] == [9]
        assert not daemon.operations
        assert not (setting.machine.home / "proxy" / "journal" / "queue").exists()


async def test_an_id_that_is_used_twice(tmp_path: Path) -> None:
    """A client's mistake: both calls are made, and one of the two answers is passed on. 7 and "7" are two ids."""
    async with running(tmp_path) as (_, daemon, client):
        client.call(7, query="first")
        client.call(7, query="second")
        client.call("7", query="third")
        await daemon.until(lambda: len(daemon.calls) == 3)
        assert [call["params"]["arguments"]["query"] for call in daemon.calls] == ["first", "second", "third"]
        await daemon.answer(7, "one")
        await daemon.answer(7, "two")
        await daemon.answer("7", "three")
        heard = [await client.next(), await client.next()]
        assert [(message["id"], message["result"]["content"][0]["text"]) for message in heard] == [
            (7, "one"),
            ("7", "three"),
        ]
        await client.hears_nothing()


async def test_progress_is_passed_on(tmp_path: Path) -> None:
    """The token goes up as the client gave it, beside what a store is told by; what the daemon says of it comes down before the answer."""
    async with running(tmp_path) as (_, daemon, client):
        given = {"name": "memory_store", "arguments": {"content": "x", "title": "t"}, "_meta": {"progressToken": 3}}
        client.say(7, CALL, **given)
        await daemon.until(lambda: daemon.calls)
        meta = daemon.calls[0]["params"]["_meta"]
        assert meta.keys() == {"progressToken", "confide/operation", "confide/said"}
        assert meta["progressToken"] == 3
        told = {"progressToken": 3, "progress": 1, "total": 2, "message": "half"}
        await daemon.say({"method": "notifications/progress", "params": told})
        await daemon.answer(7)
        assert (await client.next())["params"] == told
        assert (await client.next())["id"] == 7


async def test_what_a_client_says_of_its_operation_is_not_taken(tmp_path: Path) -> None:
    """The id under which a store is made once is this machine's; another client's could be that of another store."""
    async with running(tmp_path) as (_, daemon, client):
        own = {
            "confide/operation": "0" * 32,
            "confide/said": "1999-01-01T00:00:00+00:00",
            "confide/class": "owner",
            "other": 1,
        }
        for number in (1, 2):
            client.say(number, CALL, name="memory_store", arguments={"content": "x", "title": "t"}, _meta=own)
        client.say(3, CALL, name="memory_store", arguments={"content": "x", "title": "t"}, _meta="none")
        await daemon.until(lambda: len(daemon.calls) == 3)
        metas = [call["params"]["_meta"] for call in daemon.calls]
        assert len({meta["confide/operation"] for meta in metas} | {"0" * 32}) == 4
        assert all(not meta["confide/said"].startswith("1999") for meta in metas)
        assert all("confide/class" not in meta for meta in metas)
        assert [meta.get("other") for meta in metas] == [1, 1, None]


async def test_what_needs_no_change_goes_up_as_it_came(tmp_path: Path) -> None:
    """Byte for byte, numbers and spaces as the client wrote them."""
    async with running(tmp_path) as (_, daemon, client):
        params = '{ "name":"memory_read", "arguments": {"path":"caf\\u00e9.md", "fromLine": 1.0e0}, "_meta":{} }'
        lines = [
            f'{{"params":{params},  "method":"tools/call", "jsonrpc":"2.0","id":7 }}'.encode(),
            b'{"jsonrpc": "2.0", "id": 8, "method": "prompts/get", "params": {"name":  "caf\\u00e9"}}',
            b'{"jsonrpc":"2.0", "method":"notifications/roots/list_changed"}',
        ]
        for line in lines:
            client.wire.send_line(line)
        await daemon.until(lambda: len(daemon.lines) == 3)
        assert daemon.lines == lines


async def test_a_search_states_the_zone_of_this_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which its days begin and end. A client that states its own is believed; a daemon of earlier versions knows the key as well."""
    monkeypatch.setenv("TZ", "IST-5:30")
    async with running(tmp_path) as (_, daemon, client):
        client.call(7, query="what did we do yesterday")
        given = {"name": "memory_search", "arguments": {"query": "x"}, "_meta": {SAID: "2026-11-24T23:30:00-08:00"}}
        client.say(8, CALL, **given)
        client.call(9, "memory_read", path="MEMORY.md")
        await daemon.until(lambda: len(daemon.calls) == 3)
        said = [str(call["params"].get("_meta", {}).get(SAID)) for call in daemon.calls]
    assert [one[-6:] for one in said] == ["+05:30", "-08:00", "None"]


async def test_a_link_that_falls_during_a_call(tmp_path: Path) -> None:
    """What may be sent twice is, a store under the same id; of the rest nobody knows, and its client is told so. Each is answered once."""
    async with running(tmp_path) as (_, daemon, client):
        client.call(1)
        client.call(2, "memory_store", content="x", title="t")
        client.call(3, "memory_unheard_of")
        await daemon.until(lambda: len(daemon.calls) == 3)
        before = daemon.calls
        daemon.connections[-1].abort()
        broken = await client.next()
        assert broken["id"] == 3
        assert broken["result"]["isError"]
        text = broken["result"]["content"][0]["text"]
        assert text.startswith("the link to the daemon broke during this call, so it may have taken effect: ")
        await daemon.until(lambda: len(daemon.calls) == 5)
        assert daemon.calls[3:] == before[:2]
        for identifier in (1, 2, 1, 2, 3):
            await daemon.answer(identifier)
        assert sorted([(await client.next())["id"] for _ in range(2)]) == [1, 2]
        await client.hears_nothing()


async def test_an_answer_from_before_the_link_fell(tmp_path: Path) -> None:
    """It was on its way when the connection broke: one of the two answers counts."""
    async with running(tmp_path) as (_, daemon, client):
        client.call(1)
        await daemon.until(lambda: daemon.calls)
        await daemon.answer(1, "early")
        daemon.connections[-1].abort()
        assert (await client.next())["id"] == 1
        await daemon.until(lambda: len(daemon.connections) == 2)
        with suppress(ConfideError):
            await daemon.answer(1, "late")
        await client.hears_nothing()


async def test_calls_while_the_daemon_is_away(tmp_path: Path) -> None:
    """Each has one answer: from the files here, from the queue, or an error; and what was queued is made once when it is back."""
    async with running(tmp_path) as (setting, daemon, client):
        await setting.close()
        client.call(1, "memory_store", content="while it is away")
        queued = (
            await client.next()
        )  # two calls that are on their way at once have no order, and the next one looks for it
        client.call(2, query="away")
        client.call(3, "memory_unheard_of")
        client.say(4, "resources/read", uri="confide://x")
        client.call(5, "memory_store", title="without a text")
        heard = {message["id"]: message for message in [await client.next() for _ in range(4)]}
        assert queued["id"] == 1
        assert text_of(queued).startswith("Queued for memory/")
        assert "(offline). What follows is stored data" in text_of(heard[2])
        assert "structuredContent" not in json.dumps(heard)
        assert heard[3]["result"]["isError"]
        assert heard[4]["error"]["code"] == -32000
        assert heard[5]["result"]["isError"]
        client.call(6, "memory_store", content="and again")
        assert text_of(await client.next()).startswith("Queued for memory/")
        daemon.lines.clear()
        await setting.listen()
        client.call(7, "memory_store", content="after it")
        await daemon.until(lambda: daemon.calls)
        # What was queued before goes first.
        assert len(set(daemon.operations)) == len(daemon.operations) == 2
        assert [call["id"] for call in daemon.calls] == [7]
        await daemon.answer(7)
        assert (await client.next())["id"] == 7


async def test_lines_that_cannot_be_read_end_nothing(tmp_path: Path) -> None:
    """Between good calls, with the link up: each gets its error, and none of them reaches the daemon."""
    async with running(tmp_path) as (_, daemon, client):
        client.call(1)
        for line in (
            b"{",
            b"\xff",
            b"null",
            b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
            b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
            b"[" * 100_000,
        ):
            client.wire.send_line(line)
        client.call("half", "memory_search", query="\ud800 alone")
        client.call(2, "memory_search", query="\ud83d\ude00")
        codes = [await client.next() for _ in range(8)]
        assert [message["error"]["code"] for message in codes] == [-32700, -32700, *[-32600] * 4, -32700, -32600]
        # Who waits under an id that can be read hears of it.
        assert [message["id"] for message in codes] == [*[None] * 7, "half"]
        await daemon.until(lambda: len(daemon.calls) == 2)
        assert [message["id"] for message in daemon.messages] == [1, 2]
        await daemon.answer(2)
        assert (await client.next())["id"] == 2


async def test_calls_of_odd_forms_are_the_daemons_to_judge(tmp_path: Path) -> None:
    """No arguments, no parameters, a tool without a name: they go up, and its answer comes down."""
    async with running(tmp_path) as (_, daemon, client):
        odd: list[Message] = [
            {"method": CALL},
            {"method": CALL, "params": {}},
            {"method": CALL, "params": [1]},
            {"method": CALL, "params": {"name": 7, "arguments": {}}},
            {"method": CALL, "params": {"name": "memory_search", "arguments": None}},
            {"method": "no/such/method", "params": {"_meta": 3}},
        ]
        for number, message in enumerate(odd, 1):
            client.wire.send({"id": number, **message})
        await daemon.until(lambda: len(daemon.messages) == len(odd))
        for number in range(1, len(odd) + 1):
            await daemon.say({"id": number, "error": {"code": -32602, "message": "no"}})
            assert (await client.next())["id"] == number


async def test_arguments_as_one_string_go_up_as_an_object(tmp_path: Path) -> None:
    """As some clients send them. What seals looks into an object, so a string that spells none stays here."""
    async with running(tmp_path) as (_, daemon, client):
        client.say(1, CALL, name="memory_store", arguments='{"content": "x", "title": ""}')
        client.say(2, CALL, name="memory_store", arguments="content: x")
        client.say(3, CALL, name="memory_search", arguments=["x"])
        await daemon.until(lambda: daemon.calls)
        for _ in range(2):
            told = await client.next()
            assert told["id"] in (2, 3)
            assert told["result"]["isError"]
            assert "hint: send them as {" in text_of(told)
        (call,) = daemon.calls
        assert call["params"]["arguments"] == {"content": "x", "title": ""}


async def test_a_path_as_the_disk_has_it_goes_up_as_the_project_calls_it(tmp_path: Path) -> None:
    """Only below the project's folder, which itself means all; nothing else of this disk is named otherwise."""
    async with running(tmp_path) as (setting, daemon, client):
        root = setting.machine.project.resolve()
        paths = [f"{root}/memory/a.md", f"{root}/../other/memory/a.md", f"{root}", "/etc/passwd.md", "memory/a.md"]
        for number, path in enumerate(paths):
            client.call(number, "memory_read", path=path)
        await daemon.until(lambda: len(daemon.calls) == len(paths))
        went = [call["params"]["arguments"]["path"] for call in daemon.calls]
        assert went == ["memory/a.md", paths[1], "", *paths[3:]]


async def test_bytes_of_another_encoding_are_answered_under_their_id(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, _daemon, client):
        line = b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"memory_store","arguments":{"content":"caf\xe9"}}}'
        for identifier, told in ((b"7", 7), (b'"seven"', "seven"), (b'"s\xe9"', None), (b"true", None)):
            await asyncio.to_thread(client.wire.send_line, line % identifier)
            answer = await client.next()
            assert (answer["id"], answer["error"]["code"]) == (told, -32700)
            assert "not UTF-8" in answer["error"]["message"]


async def test_large_lines(tmp_path: Path) -> None:
    """Up to the channel's limit they pass; a store that is over it with its id is refused by itself, and the session goes on."""
    async with running(tmp_path) as (_, daemon, client):
        client.call(1, query="words " * 2**18)
        await daemon.until(lambda: daemon.calls)
        assert len(daemon.calls[0]["params"]["arguments"]["query"]) == 6 * 2**18
        await daemon.answer(1)
        assert (await client.next())["id"] == 1
        shape = '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"memory_store","arguments":{"content":"%s"}}}'
        line = (shape % ("a word " * 2**22)[: 16 * 2**20 - len(shape)]).encode()
        await asyncio.to_thread(client.wire.send_line, line)
        told = await client.next()
        assert told["id"] == 2
        assert told["result"]["isError"]
        # Where it takes too long to be looked through, this machine refuses it for what the tool allows, or says that it is too slow.
        why = told["result"]["content"][0]["text"]
        assert any(one in why for one in ("larger than 16 MiB", "is too long", "could not answer in time itself")), why
        client.call(3)
        await daemon.until(lambda: len(daemon.calls) == 2)
        await daemon.answer(3)
        assert (await client.next())["id"] == 3


async def test_stores_go_up_in_the_order_they_were_said(tmp_path: Path) -> None:
    """All at once, among searches, large ones among small ones, whatever has to be looked at longer."""
    async with running(tmp_path) as (_, daemon, client):
        count = 60
        for number in range(count):
            text = f"{number} password " + "word " * (4_000 if number % 7 == 3 else 1)
            if number % 3:
                client.call(number, "memory_store", content=text, title="t")
            else:
                client.call(number, query=text[:200])
        done = 0
        while done < count:
            expected = min(count, done + MAX_AT_ONCE)
            await daemon.until(lambda expected=expected: len(daemon.calls) >= expected)
            there = [call["id"] for call in daemon.calls[done:]]
            for number in reversed(there):
                await daemon.answer(number)
            assert [(await client.next())["id"] for _ in there] == list(reversed(there))
            done += len(there)
        assert [call["id"] for call in daemon.calls] == list(range(count))


async def test_calls_beyond_what_the_daemon_takes_at_once_wait_their_turn(tmp_path: Path) -> None:
    """Forty at once: a daemon that refuses the 33rd of a connection has 24, the others go up in order as those are answered. One that is
    taken back meanwhile never does."""
    async with running(tmp_path) as (_, daemon, client):
        for number in range(40):
            client.call(number, query=f"q{number}")
        await daemon.until(lambda: len(daemon.calls) >= MAX_AT_ONCE)
        client.cancel(30)
        for number in range(MAX_AT_ONCE):
            await daemon.answer(number)
            await client.next()
            expected = min(39, MAX_AT_ONCE + number + 1)
            await daemon.until(lambda expected=expected: len(daemon.calls) == expected)
        for number in (each for each in range(MAX_AT_ONCE, 40) if each != 30):
            await daemon.answer(number)
            assert (await client.next())["id"] == number
        assert [call["id"] for call in daemon.calls] == [number for number in range(40) if number != 30]
        await client.hears_nothing()
