"""The protocol of one connection, message by message: what the client of the SDK never sends is here."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from confide_daemon.server.mcp import mcp_protocol
from confide_daemon.server.mcp.mcp_protocol import (
    CAPABILITIES,
    CLIENT,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    VERSION,
    McpRequest,
)

SERVER = {"serverInfo": {"name": "s", "version": "1"}, "capabilities": {}, "instructions": "ask"}
OPENING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
ENVELOPE = {VERSION: "2026-07-28", CAPABILITIES: {}}


async def called(asked: McpRequest) -> dict[str, Any]:
    if asked.params["name"] == "slow":
        await asyncio.sleep(60)
    if asked.params["name"] == "broken":
        raise RuntimeError("a secret")
    await asked.report(1, 2, "half")
    return {"content": []}


async def listed(_asked: McpRequest) -> dict[str, Any]:
    return {"tools": []}


async def talk(*messages: tuple[Any, str, dict[str, Any] | None]) -> list[dict[str, Any]]:
    """All that comes back for (id, method, parameters); an id of None is a notification."""
    told: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        told.append(json.loads(mcp_protocol.encode(message)))

    conversation = mcp_protocol.Conversation(SERVER, {"tools/call": called, "tools/list": listed}, send)
    running = asyncio.create_task(conversation.run())
    for key, method, params in messages:
        message = {"jsonrpc": "2.0", "method": method, "id": key, "params": params}
        said = {name: value for name, value in message.items() if value is not None}
        await conversation.receive(await mcp_protocol.parse(json.dumps(said).encode()))
        for _ in range(5):
            await asyncio.sleep(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return told


def code(message: dict[str, Any]) -> int | None:
    error = message.get("error")
    return None if error is None else error["code"]


def test_its_versions_are_those_of_the_sdk() -> None:
    assert (HANDSHAKE_VERSIONS, MODERN_VERSIONS) == (HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS)


@pytest.mark.parametrize(
    ("asked", "spoken"), [("2024-11-05", "2024-11-05"), ("2026-07-28", "2025-11-25"), ("x", "2025-11-25")]
)
async def test_an_older_client_has_its_version_or_the_newest(asked: str, spoken: str) -> None:
    (opened,) = await talk((1, "initialize", {**OPENING, "protocolVersion": asked}))
    assert opened["result"]["protocolVersion"] == spoken


async def test_nothing_is_answered_before_the_opening_but_ping() -> None:
    told = await talk((1, "tools/list", None), (2, "ping", None), (3, "x", None), (4, "initialize", {}))
    assert [code(each) for each in told] == [-32602, None, -32601, -32602]
    told = await talk(
        (None, "notifications/initialized", None), (1, "tools/list", {"cursor": 5}), (2, "tools/list", {})
    )
    assert [code(each) for each in told] == [-32602, None]


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({VERSION: "2026-07-28"}, -32602),
        ({VERSION: "2030-01-01", CAPABILITIES: {}}, -32022),
        ({VERSION: 5, CAPABILITIES: {}}, -32602),
        ({**ENVELOPE, CAPABILITIES: 5}, -32602),
        ({**ENVELOPE, CLIENT: {"name": "c"}}, -32602),
        ({**ENVELOPE, CLIENT: None}, None),
    ],
)
async def test_every_request_of_the_later_era_has_its_envelope(meta: dict[str, Any], expected: int | None) -> None:
    (told,) = await talk((1, "tools/list", {"_meta": meta}))
    assert code(told) == expected
    assert expected or told["result"] == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {mcp_protocol.SERVER: SERVER["serverInfo"]},
    }


async def test_a_connection_stays_in_its_era() -> None:
    modern = {"_meta": ENVELOPE}
    told = await talk((1, "initialize", OPENING), (2, "tools/list", modern), (3, "server/discover", {}))
    assert [code(each) for each in told] == [None, -32600, -32601]
    told = await talk((1, "server/discover", modern), (2, "initialize", OPENING), (3, "ping", modern))
    assert [code(each) for each in told] == [None, -32022, -32601]


async def test_what_is_cancelled_is_not_answered_and_its_id_may_be_spelled() -> None:
    slow = {"name": "slow"}
    told = await talk(
        (1, "initialize", OPENING),
        (2, "tools/call", slow),
        (None, "notifications/cancelled", {"requestId": "2"}),
        (None, "notifications/cancelled", {"requestId": 99}),
        (3, "ping", None),
    )
    assert [each["id"] for each in told] == [1, 3]


async def test_progress_is_told_where_it_was_asked_for() -> None:
    quick = {"name": "quick"}
    token = {"_meta": {"progressToken": "t"}}
    told = await talk((1, "initialize", OPENING), (2, "tools/call", quick), (3, "tools/call", quick | token))
    assert [each.get("params") for each in told[1:]] == [
        None,
        {"progressToken": "t", "progress": 1, "total": 2, "message": "half"},
        None,
    ]


async def test_a_fault_of_ours_says_nothing_of_what_it_holds() -> None:
    *_, told = await talk((1, "initialize", OPENING), (2, "tools/call", {"name": "broken"}))
    assert told["error"] == {"code": -32603, "message": "Internal server error"}


@pytest.mark.parametrize(
    "data",
    [
        b"{", b"[]", b"null", b'{"method": "ping", "id": 1}', b'{"jsonrpc": "2.0"}', b'{"jsonrpc": "2.0", "id": 1}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', b"\xff", b"[" * 100_000,
    ],
)  # fmt: skip
async def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
        await mcp_protocol.parse(data)
