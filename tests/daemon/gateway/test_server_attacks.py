"""Who gets nothing of a server's gateway: pages of others, names that lead there, programs without a token or with a lesser one, floods."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import wait_until
from tests.support.programs.server_gateway import ServerGateway, served

from confide_daemon.gateway import limits
from confide_daemon.gateway.limits import MAX_BODY_BYTES, MAX_SESSIONS_EACH, MAX_STREAMS_EACH
from confide_daemon.gateway.refusals import RefusalError

CANARY = "quetzal-canary"
VERSION = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE},
}
ACCEPTS = {"MCP-Protocol-Version": VERSION, "Accept": "application/json, text/event-stream"}
LATER = ACCEPTS | {"Mcp-Method": "subscriptions/listen"}
OPEN = ("/health", "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp")


def call(gateway: ServerGateway, token: str, name: str, **arguments: Any) -> Any:
    """A tool call of the later era."""
    params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = ACCEPTS | {"Mcp-Method": "tools/call", "Mcp-Name": name}
    return gateway.request("POST", "/mcp", message, token=token, headers=headers)


def listen(gateway: ServerGateway, token: str) -> Any:
    """A stream of news that was opened, as a connection and its answer."""
    connection = gateway.connection()
    headers = LATER | {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/mcp", json.dumps(LISTEN), headers)
    return connection, connection.getresponse()


@pytest.mark.parametrize("path", [*OPEN, "/mcp", "/nothing"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
    ids=str,
)
def test_what_a_page_could_cause_is_refused(
    gateway: ServerGateway, writer: str, path: str, headers: dict[str, str], status: int
) -> None:
    """Everywhere, with a good token too; and no answer lets a page of another origin read it."""
    for method, body in (("GET", None), ("OPTIONS", b"{}"), ("POST", b"{}")):
        answer = gateway.request(method, path, body, token=writer, headers=headers)
        assert answer.status == status
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_two_hosts_are_refused(gateway: ServerGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), DEADLINE_S) as wire:
        wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\nHost: evil.example\r\n\r\n" % gateway.port)
        assert wire.recv(64).split()[1] in (b"400", b"421")


@pytest.mark.parametrize("path", ["/health", "/mcp"])
def test_a_token_in_an_address_is_refused(gateway: ServerGateway, writer: str, path: str) -> None:
    for query in (f"token={writer}", f"access_token={writer}", f"q={writer}", f"{writer}"):
        answer = gateway.request("GET", f"{path}?{query}")
        assert (answer.status, answer.code) == (400, "invalid")
        assert writer not in answer.body.decode()


def test_strangers_are_told_what_a_token_takes_and_nothing_else(gateway: ServerGateway) -> None:
    for path in OPEN:
        assert gateway.request("GET", path).headers["cache-control"] == "no-store"
    assert gateway.request("GET", "/health").json.keys() == {"status", "version"}
    described = gateway.request("GET", OPEN[1]).json
    assert described["resource"] == f"{gateway.url}/mcp"
    assert described["scopes_supported"] == ["memory:read", "memory:write"]
    answer = gateway.request("POST", "/mcp", LISTEN)
    challenge = answer.headers["www-authenticate"]
    assert answer.status == 401
    assert f'resource_metadata="{gateway.url}{OPEN[1]}"' in challenge
    assert 'scope="memory:read memory:write"' in challenge
    assert gateway.request("GET", "/nothing").status == 404


def test_without_a_good_token_there_is_nothing(gateway: ServerGateway) -> None:
    """Neither for one that was taken away, nor for a machine's key or the hash of a token; and all are told the same."""
    gone = gateway.made("gone")["token"]
    assert call(gateway, gone, "memory_status").status == 200
    gateway.confided.run("gateway", "rm", "gone")
    told = set()
    for token in (gone, "cfd_" + "A" * 43, "x" * 4000):
        answer = gateway.request("POST", "/mcp", LISTEN, token=token)
        told.add((answer.status, answer.body, answer.headers["www-authenticate"]))
    assert len(told) == 1
    two = gateway.connection()
    two.putrequest("POST", "/mcp")
    for _ in range(2):
        two.putheader("Authorization", f"Bearer {gateway.token('reader')}")
    two.endheaders()
    assert two.getresponse().status == 400
    two.close()


def test_streams_end_with_their_token(gateway: ServerGateway) -> None:
    """Within a second of `confided gateway rm`, those of both eras."""
    token = gateway.made("brief")["token"]
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accepts = {"Accept": "application/json, text/event-stream"}
    opened = gateway.request("POST", "/mcp", opening, token=token, headers=accepts)
    assert opened.status == 200
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
    other = gateway.request("GET", "/mcp", token=gateway.token("reader"), headers=session | accepts)
    assert other.status == 404
    older = gateway.connection()
    older.request("GET", "/mcp", headers=session | accepts | {"Authorization": f"Bearer {token}"})
    first = older.getresponse()
    later, second = listen(gateway, token)
    assert (first.status, second.status) == (200, 200)
    assert b"acknowledged" in second.readline() + second.readline()
    gateway.confided.run("gateway", "rm", "brief")
    began = time.monotonic()
    for answer in (first, second):
        while answer.readline():  # one that went on would be kept alive with comments
            assert time.monotonic() - began < 10
    assert time.monotonic() - began < 3  # a second, on a machine that has other work
    assert gateway.request("POST", "/mcp", opening, token=token, headers=accepts).status == 401
    older.close()
    later.close()


def test_streams_and_sessions_have_places(gateway: ServerGateway) -> None:
    """Of many that one token opens some are, and the others are told when to come again; others have theirs; who leaves makes room."""
    token = gateway.token("many")
    with ExitStack() as stack:
        statuses = []
        for _ in range(MAX_STREAMS_EACH + 5):
            connection, answer = listen(gateway, token)
            stack.callback(connection.close)
            statuses.append(answer.status)
        assert statuses == [200] * MAX_STREAMS_EACH + [429] * 5
        assert answer.getheader("Retry-After")
        connection, answer = listen(gateway, gateway.token("reader"))
        stack.callback(connection.close)
        assert answer.status == 200

    def has_room() -> bool:
        connection, answer = listen(gateway, token)
        connection.close()
        return bool(answer.status == 200)

    wait_until("a place", has_room)
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    opening["params"] |= {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}  # type: ignore[operator]
    accepts = {"Accept": "application/json, text/event-stream"}
    opened = [
        gateway.request("POST", "/mcp", opening, token=token, headers=accepts).status
        for _ in range(MAX_SESSIONS_EACH + 1)
    ]
    assert opened == [200] * MAX_SESSIONS_EACH + [503]


def test_large_and_slow_bodies_are_refused(gateway: ServerGateway, reader: str) -> None:
    """By what they say of their length, and by what they are."""
    large = gateway.request(
        "POST", "/mcp", b"x", token=reader, headers=LATER | {"Content-Length": str(MAX_BODY_BYTES + 1)}
    )
    assert (large.status, large.code) == (413, "too_large")
    chunked = gateway.connection()
    chunked.putrequest("POST", "/mcp")
    for name, value in (LATER | {"Authorization": f"Bearer {reader}", "Transfer-Encoding": "chunked"}).items():
        chunked.putheader(name, value)
    chunked.endheaders()
    part = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    try:
        for _ in range(5):
            chunked.send(part)
    except OSError:  # it has hung up
        pass
    else:
        assert chunked.getresponse().status == 413
    chunked.close()
    nested = gateway.request("POST", "/mcp", b"[" * 3_000_000, token=reader, headers=LATER)
    assert nested.status in (400, 413)
    assert gateway.request("GET", "/health").status == 200


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_S", 0.05)

    async def nothing() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(RefusalError) as refused:
        await limits.body_of(Request({"type": "http", "method": "POST", "headers": []}, nothing))
    assert refused.value.status == 408


def test_guesses_are_few_and_shut_nobody_out(tmp_path: Path) -> None:
    """A right token passes all the same. And what was asked and stored stands in no log, nor does a token, a wrong one or another."""
    gateway = served(tmp_path / "home")
    try:
        token = gateway.token("chat", "--scope", "write")
        statuses = [gateway.request("POST", "/mcp", b"{}", token=f"cfd_{number:043}").status for number in range(40)]
        assert statuses == [401] * 30 + [429] * 10
        stored = call(
            gateway, token, "memory_store", content=f"The {CANARY} sings.", path="memory/x.md", project=CANARY
        )
        assert stored.status == 200
        assert not stored.json["result"].get("isError"), stored.json
        assert CANARY in call(gateway, token, "memory_search", query=CANARY).body.decode()
        gateway.request("POST", f"/mcp?q={CANARY}", CANARY.encode(), token=token, headers={"Mcp-Method": CANARY})
        gateway.request("GET", f"/{CANARY}", headers={"Host": CANARY, "Origin": CANARY})
        gateway.confided.run("stop")
        log = gateway.confided.log
        assert CANARY not in log
        assert "cfd_" not in log
        assert "Traceback" not in log
        (listed,) = gateway.confided.json("gateway", "ls")
        assert listed["lastSeenAt"] is not None
    finally:
        gateway.confided.end()
