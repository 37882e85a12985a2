"""Who gets nothing of a gateway: pages of others, names that lead here, programs without a token or with a lesser one, and floods."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.processes import Machine, wait_until

from confide_proxy.gateway.door.limits import MAX_BODY_BYTES, MAX_STREAMS_EACH
from confide_proxy.gateway.exchange import ENVELOPE, PROTOCOL

CANARY = "quetzal-canary"
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": dict(ENVELOPE)},
}
LATER = {"MCP-Protocol-Version": PROTOCOL, "Mcp-Method": "subscriptions/listen", "Accept": "text/event-stream, */*"}
OPEN = ("/health", "/.well-known/oauth-protected-resource")


def listen(gateway: Gateway, token: str) -> Any:
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
        ({"Host": "evil.example:7734"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
    ids=str,
)
def test_what_a_page_could_cause_is_refused(
    gateway: Gateway, writer: str, path: str, headers: dict[str, str], status: int
) -> None:
    """Everywhere, with a good token too; and no answer lets a page of another origin read it."""
    answer = gateway.request("GET", path, token=writer, headers=headers)
    assert answer.status == status
    for method in ("OPTIONS", "POST"):
        asked = gateway.request(method, path, b"{}", token=writer, headers={**headers, "Content-Type": "text/plain"})
        assert asked.status == status
        assert not [name for name in asked.headers if name.startswith("access-control")]


def test_a_page_of_ours_is_let_in(gateway: Gateway, writer: str) -> None:
    for host in (f"127.0.0.1:{gateway.port}", f"localhost:{gateway.port}"):
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        answer = gateway.request("GET", "/health", token=writer, headers=headers)
        assert answer.status == 200
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_two_hosts_are_refused(gateway: Gateway) -> None:
    """One would be read here, and the other by whoever stands between."""
    with socket.create_connection(("127.0.0.1", gateway.port), DEADLINE_S) as wire:
        wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\nHost: evil.example\r\n\r\n" % gateway.port)
        assert wire.recv(64).split()[1] in (b"400", b"421")


@pytest.mark.parametrize("path", ["/health", "/mcp"])
def test_a_token_in_an_address_is_refused(gateway: Gateway, writer: str, path: str) -> None:
    for query in (f"token={writer}", f"access_token={writer}", f"q={writer}"):
        answer = gateway.request("GET", f"{path}?{query}")
        assert (answer.status, answer.code) == (400, "invalid")
        assert writer not in answer.body.decode()


def test_without_a_good_token_there_is_nothing(gateway: Gateway) -> None:
    """Neither for one that was taken away, nor for one that has expired: and all are told the same."""
    gone = gateway.machine.json("token", "new", "gone")["token"]
    assert gateway.request("GET", "/health", token=gone).status == 200
    gateway.machine.run("token", "rm", "gone")
    old = gateway.machine.json("token", "new", "old")["token"]
    kept = gateway.machine.home / "proxy/gateway/tokens.json"
    tokens = json.loads(kept.read_bytes())
    next(each for each in tokens["tokens"] if each["name"] == "old")["expires"] = time.time() - 1
    kept.write_text(json.dumps(tokens))
    told = set()
    for token in (gone, old, "cfd_" + "A" * 43):
        answer = gateway.request("POST", "/mcp", LISTEN, token=token)
        told.add((answer.status, answer.body, answer.headers["www-authenticate"]))
    assert len(told) == 1
    assert gateway.request("POST", "/mcp", LISTEN).status == 401
    assert json.loads(gateway.request("GET", "/health").body).keys() == {"status", "version"}


def test_streams_end_with_their_token(gateway: Gateway) -> None:
    """Within a second of `confide token rm`."""
    token = gateway.machine.json("token", "new", "brief")["token"]
    connection, answer = listen(gateway, token)
    assert answer.status == 200
    assert b"acknowledged" in answer.readline() + answer.readline()
    gateway.machine.run("token", "rm", "brief")
    began = time.monotonic()
    while answer.readline():
        pass
    assert time.monotonic() - began < 3  # a second, on a machine that has other work
    connection.close()


def test_streams_have_places(gateway: Gateway, reader: str) -> None:
    """Of a thousand that one token opens sixteen are, and the others are told when to come again; who leaves makes room."""
    with ExitStack() as stack:
        statuses = []
        for _ in range(MAX_STREAMS_EACH + 20):
            connection, answer = listen(gateway, reader)
            stack.callback(connection.close)
            statuses.append(answer.status)
        assert statuses == [200] * MAX_STREAMS_EACH + [429] * 20
        assert (answer.getheader("Retry-After"), answer.getheader("Connection")) == ("2", "close")
        other = gateway.token("other")
        connection, answer = listen(gateway, other)
        stack.callback(connection.close)
        assert answer.status == 200

    def has_room() -> bool:
        connection, answer = listen(gateway, reader)
        connection.close()
        return bool(answer.status == 200)

    wait_until("the places to be free again", has_room)


def test_a_large_body_is_refused_before_it_has_come(gateway: Gateway, writer: str) -> None:
    connection = gateway.connection()
    connection.putrequest("POST", "/mcp")
    for name, value in (
        ("Authorization", f"Bearer {writer}"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(MAX_BODY_BYTES + 1)),
    ):
        connection.putheader(name, value)
    connection.endheaders(b"{")
    assert connection.getresponse().status == 413
    connection.close()


def test_a_reader_changes_nothing(gateway: Gateway, reader: str) -> None:
    """Whatever it calls: it is told the scope that it lacks."""
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    session = {"Mcp-Session-Id": gateway.request("POST", "/mcp", opening, token=reader).headers["mcp-session-id"]}
    for name, arguments in (
        ("memory_store", {"content": CANARY, "path": "memory/canary.md"}),
        ("memory_delete", {"path": "MEMORY.md"}),
        ("memory_update", {"id": "mem_x", "content": CANARY}),
        ("memory_sync", {"force": True}),
        ("secret_get", {"id": "0" * 32}),
    ):
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        answer = gateway.request("POST", "/mcp", call, token=reader, headers=session)
        assert answer.status == 403
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert not (gateway.machine.project / "memory/canary.md").exists()
    assert (gateway.machine.project / "MEMORY.md").exists()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, "bob")
    yield machine
    machine.stop_local_daemon()


async def test_what_it_writes_of_itself_names_nothing(own: Machine) -> None:
    """Neither tokens nor what was asked or stored, whatever went wrong; and it ends at once, streams and all, when it is told to."""
    with serving(own) as gateway:
        token = gateway.token("editor", "--scope", "write")
        async with gateway.session(token) as client:
            await client.call_tool("memory_store", {"content": f"The {CANARY} sings.", "path": "memory/a.md"})
            await client.call_tool("memory_search", {"query": CANARY})
            await client.call_tool("memory_read", {"path": f"memory/{CANARY}.md"})
        gateway.request("GET", f"/{CANARY}?q={CANARY}", token=token)
        gateway.request("POST", "/mcp", CANARY.encode(), token=token)
        connection, answer = listen(gateway, token)
        assert answer.status == 200
        began = time.monotonic()
        said = gateway.stop()
        assert time.monotonic() - began < 5
        connection.close()
    assert CANARY not in said
    assert token not in said
    for path in (own.home / "proxy/gateway").iterdir():
        assert token[4:] not in path.read_text()
    (used,) = own.json("token", "ls")
    assert used["lastUsed"] is not None
