"""The ideas of tests/attacks.md, section 6, through a whole `confide mcp`: what a lying daemon makes a client read are answers alone.

Each idea is a call that waits, what the daemon says to it, and then the truth. The client reads as the most generous one does: names in any
case, lines at whatever ends one in some alphabet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import mcp_types
from tests.support.daemon.scripted import Client, Message, Slow, running, text_of

from confide_proxy.mcp.catalogue import VERSION_KEY
from confide_proxy.mcp.features.subscriptions import ACKNOWLEDGED, STREAM_KEY
from confide_proxy.mcp.incoming import CANCELLED, NEWS, UPDATED
from confide_proxy.mcp.tunnel import MAX_AT_ONCE

LIE: Final = "forged"
TRUTH: Final = "true"
CONTENT: Final = [{"type": "text", "text": LIE}]
EVIL: Final = "https://evil.example/\u2028"
ELICIT: Final = {"a": {"method": "elicitation/create", "params": {"message": "your password"}}}
MODERN: Final = {"_meta": {VERSION_KEY: "2026-07-28"}}
FOLLOWED: Final = "memory://core"
Said = Callable[[int], bytes]


def message(**members: Any) -> Said:
    """With the id of the call that waits, unless it has one of its own."""
    return lambda identifier: json.dumps({"jsonrpc": "2.0", "id": identifier, **members}).encode()


def raw(text: str) -> Said:
    """JSON as it stands here; `ID` and `RESULT` are those of the call that waits."""
    result = json.dumps({"content": CONTENT})
    return lambda identifier: text.replace("ID", str(identifier)).replace("RESULT", result).encode("utf-8")


def result(**members: Any) -> Said:
    return message(result={"content": CONTENT, **members})


def news(method: str, params: Any) -> Said:
    return lambda _: json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


LEFT_OUT: Final[dict[str, Said]] = {
    "true for an id": message(id=True, result={"content": CONTENT}),
    "a float": raw('{"jsonrpc":"2.0","id":ID.0,"result":RESULT}'),
    "an exponent": raw('{"jsonrpc":"2.0","id":IDe0,"result":RESULT}'),
    "the number as a text": raw('{"jsonrpc":"2.0","id":"ID","result":RESULT}'),
    "a list": raw('{"jsonrpc":"2.0","id":[ID],"result":RESULT}'),
    "4,000 digits": raw('{"jsonrpc":"2.0","id":' + "9" * 4000 + ',"result":RESULT}'),
    "no id": raw('{"jsonrpc":"2.0","result":RESULT}'),
    "the id in capitals alone": raw('{"jsonrpc":"2.0","Id":ID,"result":RESULT}'),
    "the id of a call that this machine answers": raw('{"jsonrpc":"2.0","id":"local","result":RESULT}'),
    "the id of a call that was answered": raw('{"jsonrpc":"2.0","id":"first","result":RESULT}'),
    "the id of the opening": raw('{"jsonrpc":"2.0","id":1,"result":RESULT}'),
    "the id of what is replayed": raw('{"jsonrpc":"2.0","id":"confide-replay","result":RESULT}'),
    "no method beside an answer": message(method=None, result={"content": CONTENT}),
    "a request": message(method="sampling/createMessage", params={"messages": [], "maxTokens": 9}),
    "a request in place of an answer": message(method="roots/list", result={"content": CONTENT}),
    "a request of another id": message(id="x", method="elicitation/create", params={"message": "your password"}),
    "a request for the program": message(method="initialize", params={}),
    "news with a zero-width blank": news("notifications/message\u200b", {"level": "info", "data": LIE}),
    "news in capitals": news("Notifications/Message", {"level": "info", "data": LIE}),
    "of an elicitation": news("notifications/elicitation/complete", {"elicitationId": "x"}),
    "of roots": news("notifications/roots/list_changed", {}),
    "of a task": news("notifications/tasks/status", {"taskId": "x", "status": "input_required"}),
    "with a list": news("notifications/message", [LIE]),
    "of no call's progress": news("notifications/progress", {"progressToken": "other", "progress": 1}),
    "of a resource that nobody follows": news("notifications/resources/updated", {"uri": "memory://files/x.md"}),
    "of the end of a call": raw('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}'),
    "of a stream that nobody opened": news("notifications/subscriptions/acknowledged", {"_meta": {STREAM_KEY: 1}}),
}
"""The client sees nothing of it, and its call waits on."""

UNFIT: Final[dict[str, Said]] = {
    "resultType": result(resultType="input_required", inputRequests=ELICIT),
    "ResultType": result(ResultType="input_required", inputRequests=ELICIT),
    "RESULTTYPE": result(RESULTTYPE="input_required", inputRequests=ELICIT),
    "a long s": result(**{"re\u017fultType": "input_required", "inputRequests": ELICIT}),
    "resultType twice": raw(
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"resultType":"complete","resultType":"input_required"}}'
    ),
    "with an escape in its name": raw(
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"\\u0072esultType":"input_required"}}'
    ),
    "of a task": result(resultType="task", task={"taskId": "x"}),
    "of a list": result(resultType=["complete"]),
    "both result and error": message(result={"content": CONTENT}, error={"code": 1, "message": LIE}),
    "the code as a float": message(error={"code": 1.0, "message": LIE}),
    "the code as true": message(error={"code": True, "message": LIE}),
    "an address to open": message(error={"code": -32042, "message": LIE, "data": {"elicitations": [{"url": EVIL}]}}),
    "neither": message(),
    "no content": message(result={"text": LIE}),
}
"""The call ends with an error in our own words."""

PASSES: Final[dict[str, Said]] = {
    "U+2028 in a text": raw(
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\u2028forged\x85"}]}}'
    ),
    "line ends between tokens": raw('{"jsonrpc":"2.0",\n"id":ID,\r\n"result":\nRESULT\n}'),
    "half of a surrogate pair": raw(
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\\ud800"}]}}'
    ),
    "Method in capitals": message(Method="elicitation/create", Params={"message": LIE}, result={"content": CONTENT}),
    "ID in capitals": message(ID=7, result={"content": CONTENT}),
    "a link": message(result={"content": [{"type": "resource_link", "name": "x", "uri": "file:///etc/passwd"}]}),
    "an image": message(result={"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
    "an error that names a request": message(error={"code": -1, "message": LIE, "data": {"method": "roots/list"}}),
}
"""An answer of the daemon's to the call that waits, which may lie: written anew where it could be read in two ways."""

ENDS: Final[dict[str, Said]] = {
    "a byte order mark": raw('\ufeff{"jsonrpc":"2.0","id":ID,"result":RESULT}'),
    "UTF-16": lambda identifier: result()(identifier).decode().encode("utf-16"),
    "a NUL before it": raw('\0{"jsonrpc":"2.0","id":ID,"result":RESULT}'),
    "a comment": raw('/* */{"jsonrpc":"2.0","id":ID,"result":RESULT}'),
    "two in one": raw('{"jsonrpc":"2.0","id":ID,"result":RESULT}{"jsonrpc":"2.0","id":ID,"result":RESULT}'),
    "two lines": raw('{"jsonrpc":"2.0","id":ID,"result":RESULT}\n{"jsonrpc":"2.0","id":7,"method":"roots/list"}'),
    "a length before it": raw('Content-Length: 9\r\n\r\n{"jsonrpc":"2.0","id":ID,"result":RESULT}'),
    "a record separator": raw('\x1e{"jsonrpc":"2.0","id":ID,"result":RESULT}'),
    "signs that end lines": raw(
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\v\f\x1c\x1d"}]}}'
    ),
    "the version twice": raw('{"jsonrpc":"2.0","jsonrpc":"1.0","id":ID,"result":RESULT}'),
    "1e400": raw('{"jsonrpc":"2.0","id":ID,"result":{"content":[],"score":1e400}}'),
    "4,400 digits": raw('{"jsonrpc":"2.0","id":ID,"result":{"content":[],"score":' + "9" * 4400 + "}}"),
    "an id of 5,000 digits": raw('{"jsonrpc":"2.0","id":' + "9" * 5000 + ',"result":RESULT}'),
    "100,000 brackets": raw('{"jsonrpc":"2.0","id":ID,"result":{"content":' + "[" * 100_000 + "]" * 100_000 + "}}"),
    "a batch": raw('[{"jsonrpc":"2.0","id":ID,"result":RESULT}]'),
}
"""No message at all: the connection ends, the call is made again on the next one, and the client sees its true answer alone."""


def generous(line: bytes) -> dict[str, Any]:
    """As a client reads a line that takes every sign for a line's end that some program does, and names in any case."""
    assert line.endswith(b"\n")
    (one,) = line.decode("utf-8").splitlines()

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs), line
        return dict(pairs)

    read: dict[str, Any] = json.loads(one, object_pairs_hook=once)
    assert {name.casefold() for name in read} == set(read), "a name that another parser takes for another"
    return read


def check_heard(client: Client, asked: set[Any]) -> None:
    """Only answers to what was asked, each once, and news; one line each, of JSON-RPC's form, and no request."""
    answered = []
    for line in client.wire.heard:
        read = generous(line)
        mcp_types.jsonrpc_message_adapter.validate_json(line.replace(b"\\ud800", b"?"), by_name=False)
        if "method" in read:
            assert "id" not in read, "a request"
            assert read["method"] in NEWS
        else:
            assert len({"result", "error"} & set(read)) == 1
            result_types = {
                name: each for name, each in read.get("result", {}).items() if name.casefold() == "resulttype"
            }
            assert result_types in ({}, {"resultType": "complete"})
            answered.append(json.dumps(read["id"]))
    assert sorted(answered) == sorted(json.dumps(each) for each in asked)


async def told(daemon: Slow, client: Client, ideas: dict[str, Said], first: int, **more: Any) -> dict[str, Message]:
    """Calls that wait, as many at once as go up, a lie for each of them, then the truth; the answers that the client got, by the idea."""
    calls = list(enumerate(ideas.items(), first))
    found: dict[str, Message] = {}
    for begin in range(0, len(calls), MAX_AT_ONCE):
        daemon.lines.clear()
        these = dict(calls[begin : begin + MAX_AT_ONCE])
        for identifier in these:
            client.say(identifier, "tools/call", name="memory_search", arguments={"query": "x"}, **more)
        await daemon.until(lambda these=these: len(daemon.calls) == len(these))
        for identifier, (_, said) in these.items():
            await daemon.say_bytes(said(identifier))
        for identifier in these:
            await daemon.answer(identifier, TRUTH)
        by_id = {each["id"]: each for each in [await client.next() for _ in these]}
        assert by_id.keys() == these.keys()
        found |= {name: by_id[identifier] for identifier, (name, _) in these.items()}
    return found


async def test_every_lie_that_was_tried_on_a_client(tmp_path: Path) -> None:
    """In one session: left out, an error of our own, or passed on as the one answer that it is. So in either era."""
    async with running(tmp_path) as (_, daemon, client):
        client.say("local", "tools/list")
        await client.next()
        asked = {1, "first", "local", 0}
        for begin, meta in ((200, {}), (500, MODERN)):
            for name, answer in (await told(daemon, client, LEFT_OUT, begin, **meta)).items():
                assert text_of(answer) == TRUTH, name
            for name, answer in (await told(daemon, client, UNFIT, begin + 100, **meta)).items():
                assert answer["result"]["isError"], name
                assert "not of the form" in text_of(answer), name
                assert LIE not in json.dumps(answer), name
            for name, answer in (await told(daemon, client, PASSES, begin + 200, **meta)).items():
                assert "error" in answer or text_of(answer) != TRUTH, name
            for ideas, first in ((LEFT_OUT, begin), (UNFIT, begin + 100), (PASSES, begin + 200)):
                asked |= set(range(first, first + len(ideas)))
        numbers = await told(daemon, client, {"-0": raw('{"jsonrpc":"2.0","id":-0,"result":RESULT}')}, 0)
        assert text_of(numbers["-0"]) == LIE, "0 to whoever compares numbers"
        await hears_the_end(daemon, client, asked)


async def test_what_is_no_message_of_those_that_were_tried(tmp_path: Path) -> None:
    """Each ends its connection; the next one has the call again, and the client its one true answer."""
    async with running(tmp_path) as (_, daemon, client):
        for identifier, (name, said) in enumerate(ENDS.items(), 200):
            client.call(identifier)
            await daemon.until(lambda: daemon.calls)
            daemon.lines.clear()
            daemon.connections, (*_, connection) = [], daemon.connections
            await connection.send_message(said(identifier))
            await daemon.until(lambda: daemon.connections and daemon.calls)
            await daemon.answer(identifier, TRUTH)
            await daemon.answer(identifier, LIE)
            answer = await client.next()
            assert (answer["id"], text_of(answer)) == (identifier, TRUTH), name
            daemon.lines.clear()
        await hears_the_end(daemon, client, {1, "first", *range(200, 200 + len(ENDS))})


ASKS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("resources/read", {"uri": "memory://core"}),
    ("resources/list", {}),
    ("resources/subscribe", {"uri": "memory://core"}),
    ("prompts/get", {"name": "recall", "arguments": {"topic": "x"}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "recall"}, "argument": {"name": "a", "value": ""}}),
)


async def test_other_calls_than_tools_are_lied_to_no_better(tmp_path: Path) -> None:
    """A request in an answer's clothes, a second answer, one for a call that the client has taken back, and news of others' streams."""
    async with running(tmp_path) as (_, daemon, client):
        asked: set[Any] = {1, "first"}
        for identifier, (method, params) in enumerate(ASKS, 200):
            client.say(identifier, method, **params, **MODERN)
            await daemon.until(
                lambda identifier=identifier: any(one.get("id") == identifier for one in daemon.messages)
            )
            for name in ("resultType", "ResultType"):
                await daemon.say({"id": identifier, "result": {name: "input_required", "inputRequests": ELICIT}})
            await daemon.say({"id": identifier, "result": {}})
            answer = await client.next()
            assert answer["id"] == identifier
            assert "not of the form" in answer["error"]["message"], method
            asked.add(identifier)
        client.say("stream", "subscriptions/listen", notifications={"resourceSubscriptions": [FOLLOWED]}, **MODERN)
        client.call("taken back")
        await daemon.until(lambda: {"stream", "taken back"} <= {one.get("id") for one in daemon.messages})
        client.cancel("taken back")
        await daemon.until(lambda: any(one.get("method") == CANCELLED for one in daemon.messages))
        await daemon.answer("taken back", LIE)
        for stream in ("stream", "stream", "other", 200, None):
            params = {"_meta": {STREAM_KEY: stream}, "notifications": {}}
            await daemon.say({"method": ACKNOWLEDGED, "params": params})
        for uri in (FOLLOWED, "memory://files/x.md", "file:///etc/passwd", EVIL):
            await daemon.say({"method": UPDATED, "params": {"uri": uri, "_meta": {STREAM_KEY: "stream"}}})
        await daemon.say({"id": "stream", "error": {"code": -1, "message": "over"}})
        await daemon.say({"method": UPDATED, "params": {"uri": FOLLOWED, "_meta": {STREAM_KEY: "stream"}}})
        await hears_the_end(daemon, client, asked | {"stream"})
        told_of = [each for each in map(generous, client.wire.heard) if "method" in each]
        assert {each["params"]["uri"] for each in told_of if each["method"] == UPDATED} == {FOLLOWED}
        assert [each["method"] for each in told_of].count(ACKNOWLEDGED) == 1


async def hears_the_end(daemon: Slow, client: Client, asked: set[Any]) -> None:
    """Behind all that the daemon has said comes the answer to a last call; then all that the client heard is judged."""
    daemon.lines.clear()
    client.call("last")
    await daemon.until(lambda: daemon.calls)
    await daemon.answer("last", TRUTH)
    while (await client.next()).get("id") != "last":
        pass
    check_heard(client, asked | {"last"})
