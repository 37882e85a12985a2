"""What a space stored in clear is sealed in place, by requests of a machine, and nothing of it stays in the file."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon import residue
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S
from tests.support.documents.transcripts import batch, said
from tests.support.sealing.founder import Device

from confide_crypto.errors import RequestError
from confide_daemon.store.database import connect

SECRET = "Hx7-zuvrqk-Wq93lmPp"
"""Of no rule's form: here it is the machine, played by the test, that knows it."""
STAND_IN = "(sealed:password:0123456789abcdef0123456789abcdef)"
NOTE = "memory/notes/gateway-1a2b3c4d.md"
NOTE_TEXT = f"""---
id: mem_gateway_1763733600_1a2b3c4d
title: Gateway {SECRET}
entity: "{SECRET}"
tags: [network, "{SECRET}"]
---
The gateway takes {SECRET} over the second line.
"""
PLAN = f"# Plan\n\nThe old database is reached with {SECRET} by the nightly export.\n"


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


def unpacked(told: dict[str, Any]) -> str:
    return zlib.decompress(base64.b64decode(told["packed"])).decode()


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@asynccontextmanager
async def device(daemon: Serving) -> AsyncIterator[Machine]:
    """The one device of the space, which alone may rewrite what is stored."""
    identity = daemon.enroll("laptop", space="home")
    async with Machine(await daemon.connect(identity)) as laptop:
        await Device(identity).found(laptop)
        yield laptop


async def stored(laptop: Machine) -> list[dict[str, Any]]:
    """All that is stored, page by page."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = await laptop.request("stored-texts", {"after": after})
        found += page["texts"]
        after = page["next"]
    return found


async def seal_all(laptop: Machine) -> int:
    """What the proxy does, with one rule: how many texts were sealed."""
    changes = [
        {"id": text["id"], "hash": text["hash"], "packed": packed(unpacked(text).replace(SECRET, STAND_IN))}
        for text in await stored(laptop)
        if SECRET in unpacked(text)
    ]
    if changes:
        answer = await laptop.request("rewrite", {"changes": changes})
        assert set(answer["results"]) == {"rewritten"}
    return len(changes)


async def plant(laptop: Machine) -> None:
    """The secret in revisions, in a note's every field, in a transcript, in a deleted document, and in a tool's call."""
    await laptop.put("memory/plan.md", PLAN)
    await laptop.put("memory/plan.md", PLAN + "\nIt runs at four.\n", base=1)
    await laptop.put("memory/plan.md", "# Plan\n\nThe export is gone.\n", base=2)
    await laptop.put(NOTE, NOTE_TEXT)
    await laptop.put("memory/gone.md", PLAN)
    await laptop.request("remove", {"project": "proj", "path": "memory/gone.md", "base": 1})
    await laptop.request("transcript", batch(0, 10, said("user", f"use {SECRET} for the gateway"), version=0))


async def call(laptop: Machine, operation: str, content: str) -> dict[str, Any]:
    arguments = {"content": content, "path": "memory/log.md"}
    body = {"project": "proj", "operation": operation, "tool": "memory_store", "arguments": arguments}
    return await laptop.request("call", body)


def place(daemon: Serving, name: str = "home") -> tuple[Path, bytes]:
    """The file of a space, and its key."""
    space_id = daemon.state.registry.spaces()[name]
    return daemon.state.folder.space(space_id), daemon.state.master.space_key(space_id)


def counted(path: Path, key: bytes, table: str) -> int:
    connection = connect(path, key, writer=False)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
    finally:
        connection.close()


def test_residue_sees_what_there_is(tmp_path: Path) -> None:
    """The looks that the tests below rely on do find a text: in a page that was freed without being overwritten, too."""
    path, key = tmp_path / "a.db", bytes(range(32))
    connection = connect(path, key, writer=True)
    connection.execute("PRAGMA secure_delete = OFF").fetchall()
    connection.execute("CREATE TABLE one (text)")
    connection.execute("INSERT INTO one VALUES (?)", ("filler " * 2000 + SECRET,))
    connection.execute("DELETE FROM one")
    assert SECRET.encode() in residue.image(path, key)
    assert not any(SECRET in text for text in residue.texts(path, key))
    connection.close()
    assert SECRET.encode() not in path.read_bytes()


async def test_nothing_of_what_was_sealed_stays_in_the_database(daemon: Serving) -> None:
    """Texts, words, hashes, vectors, free pages, the log: who has the key and the file finds nothing of it, and nothing to try it on."""
    async with device(daemon) as laptop:
        await laptop.attach()
        await plant(laptop)
        async with laptop.mcp() as client:
            await call(laptop, "a" * 32, f"the relay uses {SECRET}")
            # An edit leaves the vectors of what was there in the cache.
            await laptop.put("memory/edited.md", PLAN)
            await client.call_tool("memory_sync", {})
            await laptop.put("memory/edited.md", "# Plan\n\nNothing.\n", base=1)
            await client.call_tool("memory_sync", {})
            path, key = place(daemon)
            before = await stored(laptop)
            hashes = {text["hash"] for text in before if SECRET in unpacked(text)}
            assert len(hashes) == 5, "the plan and the deleted file have one text in common"
            assert SECRET.encode() in residue.image(path, key)
            assert counted(path, key, "vector_cache") > 0
            assert {"hx7", "zuvrqk", "wq93lmpp"} <= residue.words(path, key)
            history = await laptop.request("history", {"project": "proj", "path": "memory/plan.md"})

            assert await seal_all(laptop) == 7
            await client.call_tool("memory_sync", {})  # the indexing rests, so that the log stays as it is left
            assert not (await laptop.request("stored-texts", {"after": 2**40}))["isClean"]
            assert (await laptop.request("erase", {}))["bytes"] > 0
            assert (await laptop.request("stored-texts", {"after": 2**40}))["isClean"]

            assert residue.log_bytes(path) == 0
            assert counted(path, key, "vector_cache") == 0
            left = residue.image(path, key)
            traces = [SECRET.encode(), b"zuvrqk", b"Wq93lmPp", b"wq93lmpp"]
            traces += [form for trace in hashes for form in (trace.encode(), bytes.fromhex(trace))]
            assert not [trace for trace in traces if trace in left]
            assert not any("zuvrqk" in text.lower() for text in residue.texts(path, key))
            assert not {"hx7", "zuvrqk", "wq93lmpp"} & residue.words(path, key)

            # Everything else is as it was: numbers, authors, times, what can be found and what can come back.
            after = await laptop.request("history", {"project": "proj", "path": "memory/plan.md"})
            assert [{**one, "bytes": 0} for one in after["revisions"]] == [
                {**one, "bytes": 0} for one in history["revisions"]
            ]
            assert [(text["id"], text["path"], text["revision"]) for text in await stored(laptop)] == [
                (text["id"], text["path"], text["revision"]) for text in before
            ]
            await client.call_tool("memory_sync", {})
            found = (await client.call_tool("memory_search", {"query": "gateway second line"})).structured_content
            assert found["results"][0]["path"] == NOTE
            assert STAND_IN in found["results"][0]["snippet"]
            note = (await client.call_tool("memory_read", {"path": NOTE})).structured_content
            assert note["content"] == NOTE_TEXT.replace(SECRET, STAND_IN).rstrip("\n")
            await laptop.request("restore", {"project": "proj", "path": "memory/gone.md"})
            back = await laptop.request("pull", {"project": "proj", "path": "memory/gone.md"})
            assert back["text"] == PLAN.replace(SECRET, STAND_IN)
            # A call that is sent again is not made again.
            assert (await call(laptop, "a" * 32, f"the relay uses {STAND_IN}"))["result"]["revision"] == 1
        assert await seal_all(laptop) == 0


async def test_machines_whose_files_were_that_revision_only_say_so(daemon: Serving) -> None:
    """The file in clear is sent once more, sealed, and is what is there: no new revision, nothing to write or merge; edits lose no line."""
    async with device(daemon) as laptop, machine(daemon, "desk", space="home") as desk:
        await laptop.attach()
        await desk.attach()
        await laptop.put("memory/plan.md", PLAN)
        while ("proj", "memory/plan.md") not in desk.files:
            await asyncio.wait_for(desk.applied.get(), DEADLINE_S)
        await seal_all(laptop)
        sealed = PLAN.replace(SECRET, STAND_IN)
        compared = await desk.request(
            "compare", {"project": "proj", "entries": [["memory/plan.md", text_hash(PLAN), 1]], "gone": []}
        )
        assert compared == {"send": ["memory/plan.md"], "adopt": [], "pull": [], "drop": [], "forgotten": []}
        answer = await desk.put("memory/plan.md", sealed, base=1)
        assert (answer["revision"], answer["merged"], "text" in answer) == (1, False, False)
        # The other one has edited its file meanwhile, and knows nothing of it yet.
        answer = await laptop.put("memory/plan.md", sealed + "\nA line of mine.\n", base=1)
        assert (answer["revision"], answer["merged"], answer["clash"]) == (2, False, False)
        text = (await desk.request("pull", {"project": "proj", "path": "memory/plan.md"}))["text"]
        assert text == sealed + "\nA line of mine.\n"


async def test_an_edit_upon_what_was_sealed_in_its_place_is_an_edit_upon_it(daemon: Serving) -> None:
    """The machine confirmed the revision with its text in clear, whose hash the daemon has no more: it is no revision of a lost time."""
    async with device(daemon) as laptop:
        await laptop.attach()
        await laptop.put("memory/plan.md", PLAN)
        await seal_all(laptop)
        text = "# Plan\n\nThe old database is gone.\n"
        body = {"project": "proj", "path": "memory/plan.md", "text": text, "hash": text_hash(text), "base": 1}
        answer = await laptop.request("put", {**body, "baseHash": text_hash(PLAN)})
        assert (answer["merged"], answer["hash"]) == (False, text_hash(text))


async def test_a_text_that_changed_meanwhile_is_not_touched(daemon: Serving) -> None:
    """What the machine has not seen is not replaced; what it asks for twice is done once; a session that goes on is met again."""
    async with device(daemon) as laptop:
        await laptop.attach()
        await laptop.put("memory/plan.md", PLAN)
        await laptop.request("transcript", batch(0, 10, said("user", f"first {SECRET}"), version=0))
        plan, session = await stored(laptop)
        await laptop.request("transcript", batch(10, 20, said("user", f"then {SECRET}", minutes=1), version=1))
        sealed = PLAN.replace(SECRET, STAND_IN)
        changes = [
            {"id": plan["id"], "hash": text_hash("another"), "packed": packed("lost")},
            {"id": plan["id"], "hash": plan["hash"], "packed": packed(sealed)},
            {"id": plan["id"], "hash": plan["hash"], "packed": packed(sealed)},
            {"id": session["id"], "hash": session["hash"], "packed": packed("lost")},
        ]
        answer = await laptop.request("rewrite", {"changes": changes})
        assert answer["results"] == ["changed", "rewritten", "same", "gone"]
        _, longer = await stored(laptop)
        assert unpacked(longer).count(SECRET) == 2
        assert longer["id"] > session["id"]
        assert await seal_all(laptop) == 1
        # What comes after it goes on where it was.
        await laptop.request("transcript", batch(20, 30, said("user", "and on", minutes=2), version=2))
        text = unpacked((await stored(laptop))[-1])
        assert text.count(STAND_IN) == 2
        assert "and on" in text
        assert SECRET not in text


async def test_others_go_on_while_the_file_is_written_anew(daemon: Serving) -> None:
    """What is stored and asked meanwhile is neither lost nor refused."""
    async with device(daemon) as laptop, laptop.mcp() as client:
        await laptop.attach()
        await plant(laptop)
        await seal_all(laptop)
        erasing = asyncio.create_task(laptop.request("erase", {}))
        stored_now = 0
        while not erasing.done():
            stored_now += 1
            await laptop.put(f"memory/while-{stored_now}.md", f"# {stored_now}\n\nWritten meanwhile.\n")
            found = await client.call_tool("memory_search", {"query": "gateway second line"})
            assert found.structured_content["results"][0]["path"] == NOTE
        await erasing
        names = {text["path"] for text in await stored(laptop)}
        assert {f"memory/while-{number}.md" for number in range(1, stored_now + 1)} <= names
        path, key = place(daemon)
        assert SECRET.encode() not in residue.image(path, key)
        assert not list(path.parent.glob("*.rekeying"))


async def test_only_who_reaches_all_of_a_space_may_rescan_it(daemon: Serving) -> None:
    """A caller with some projects, without the transcripts, or that may only read gets no text and changes none."""
    async with machine(daemon, "owner", space="home") as owner:
        await owner.attach()
        await owner.put("memory/plan.md", PLAN)
    rights: list[dict[str, Any]] = [{"projects": {"proj"}}, {"sources": {"memory"}}, {"scope": "read"}]
    for number, narrowed in enumerate(rights):
        async with machine(daemon, f"guest-{number}", space="home", **narrowed) as guest:
            await guest.attach()
            for op, body in {
                "stored-texts": {"after": 0},
                "rewrite": {"changes": [{"id": 1, "hash": text_hash(PLAN), "packed": packed("x")}]},
                "erase": {},
                "unsealed": {"findings": 0},
            }.items():
                with pytest.raises(RequestError) as refused:
                    await guest.request(op, body)
                assert refused.value.code == "denied", (narrowed, op)


async def test_who_may_not_ask_hears_that_and_nothing_of_the_form_of_what_it_asks(daemon: Serving) -> None:
    """Of a request with two faults, the missing right is told."""
    async with machine(daemon, "reader", space="home", scope="read") as guest:
        await guest.attach()
        for op, body in {
            "stored-texts": {"after": -1},
            "unsealed": {"findings": "many"},
            "remove": {"project": "proj", "path": "memory/plan.md", "base": -1},
        }.items():
            with pytest.raises(RequestError) as refused:
                await guest.request(op, body)
            assert refused.value.code == "denied", op


async def test_a_machine_that_is_no_device_changes_no_past(daemon: Serving) -> None:
    """Nobody has vouched for it: what it writes can be undone, and what it seals could be opened by nobody."""
    async with device(daemon) as laptop, machine(daemon, "newcomer", space="home") as newcomer:
        await laptop.attach()
        await laptop.put("memory/plan.md", PLAN)
        (plan,) = await stored(newcomer)
        change = {"id": plan["id"], "hash": plan["hash"], "packed": packed(f"{STAND_IN}\n")}
        for op, body in {"rewrite": {"changes": [change]}, "erase": {}}.items():
            with pytest.raises(RequestError) as refused:
                await newcomer.request(op, body)
            assert refused.value.code == "denied"
        assert unpacked((await stored(laptop))[0]) == PLAN


@pytest.mark.parametrize(
    ("after", "is_taken"),
    [
        (f"a {STAND_IN} b two c\n", True),
        (f"a {STAND_IN} b {STAND_IN} c\n", True),
        (f"{STAND_IN}\n", True),
        (f"{STAND_IN}{STAND_IN}", True),
        (f"a (redacted:password:{'0' * 24}) c\n", True),
        ("a one b three c\n", False),
        (f"a {STAND_IN} b three c\n", False),
        (f"a {STAND_IN} b two c\nmore", False),
        (f"b {STAND_IN} c\n", False),
        (f"a one{STAND_IN} b two c\n", False),
        (f"a {STAND_IN} two b {STAND_IN}\n", False),
        ("", False),
    ],
)
async def test_the_past_can_be_sealed_and_not_written_anew(daemon: Serving, after: str, is_taken: bool) -> None:
    """A machine that would make a colleague have said something else is refused; whatever is not sealed stays as it was."""
    before = "a one b two c\n"
    async with device(daemon) as laptop:
        await laptop.attach()
        await laptop.put("memory/plan.md", before)
        (plan,) = await stored(laptop)
        asking = laptop.request(
            "rewrite", {"changes": [{"id": plan["id"], "hash": plan["hash"], "packed": packed(after)}]}
        )
        if is_taken:
            assert (await asking)["results"] == ["rewritten"]
        else:
            with pytest.raises(RequestError) as refused:
                await asking
            assert refused.value.code == "invalid"
        assert unpacked((await stored(laptop))[0]) == (after if is_taken else before)


async def test_what_is_no_text_is_refused(daemon: Serving) -> None:
    """A packed text that is not one, or unpacks to more than a document may hold, replaces nothing."""
    async with device(daemon) as laptop:
        await laptop.attach()
        await laptop.put("memory/plan.md", PLAN)
        (plan,) = await stored(laptop)
        bomb = base64.b64encode(zlib.compress(bytes(64 * 1024 * 1024), 9)).decode()
        cut = base64.b64encode(zlib.compress(b"text")[:-2]).decode()
        for wrong in (bomb, cut, "not base64!", packed("a\0b")):
            with pytest.raises(RequestError) as refused:
                await laptop.request(
                    "rewrite", {"changes": [{"id": plan["id"], "hash": plan["hash"], "packed": wrong}]}
                )
            assert refused.value.code in ("invalid", "too_large")
        assert unpacked((await stored(laptop))[0]) == PLAN


async def test_the_count_of_what_is_unsealed_is_kept(daemon: Serving) -> None:
    """A machine's last count can be asked for by every machine of the space; until there is one, a space that is older says so."""
    async with device(daemon) as laptop:
        await laptop.attach()
        await laptop.put("memory/plan.md", PLAN)
        nothing = {"findings": None, "seenAt": None, "isDue": False}
        assert await laptop.request("unsealed", {}) == nothing
        path, key = place(daemon)
        connection = connect(path, key, writer=True)
        connection.execute("UPDATE migration SET applied_at = applied_at + 3600 WHERE version = 9")
        connection.close()
        assert await laptop.request("unsealed", {}) == {**nothing, "isDue": True}
        told = await laptop.request("unsealed", {"findings": 2})
        assert (told["findings"], told["isDue"]) == (2, False)
        async with machine(daemon, "reader", space="home", scope="read") as reader:
            await reader.attach()
            assert await reader.request("unsealed", {}) == told
