"""Who gets nothing of a server's gateway: pages of others, names that lead there, programs without a token or with a lesser one, floods."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.door_attacks import ACCEPTS, ENVELOPE, LATER, LISTEN, METADATA, DoorAttacks, listen
from tests.support.programs.server_gateway import ServerGateway, served

from confide_crypto.limits import MAX_CONTAINERS
from confide_http.door.request_limits import MAX_BODY_BYTES
from confide_http.server.answering.gateway_client import MAX_SESSIONS_EACH
from confide_http.server.gateway_service import MAX_CONNECTIONS

CANARY = "quetzal-canary"
OPEN = ("/health", METADATA, f"{METADATA}/mcp")


class TestDoor(DoorAttacks):
    paths = (*OPEN, "/mcp", "/nothing")


@pytest.fixture
def many(gateway: ServerGateway) -> str:
    """Whose streams are counted."""
    return gateway.token("many")


def call(gateway: ServerGateway, token: str, name: str, **arguments: Any) -> Any:
    """A tool call of the later era."""
    params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = ACCEPTS | {"Mcp-Method": "tools/call", "Mcp-Name": name}
    return gateway.request("POST", "/mcp", message, token=token, headers=headers)


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
    gateway.confided.run("http", "rm", "gone")
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
    """Within a second of `confided http rm`, those of both eras."""
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
    gateway.confided.run("http", "rm", "brief")
    began = time.monotonic()
    for answer in (first, second):
        while answer.readline():  # one that went on would be kept alive with comments
            assert time.monotonic() - began < DEADLINE_S
    assert gateway.request("POST", "/mcp", opening, token=token, headers=accepts).status == 401
    older.close()
    later.close()


def test_sessions_have_places(gateway: ServerGateway, many: str) -> None:
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    opening["params"] |= {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}  # type: ignore[operator]
    accepts = {"Accept": "application/json, text/event-stream"}
    opened = [
        gateway.request("POST", "/mcp", opening, token=many, headers=accepts).status
        for _ in range(MAX_SESSIONS_EACH + 1)
    ]
    assert opened == [200] * MAX_SESSIONS_EACH + [503]


async def test_half_requests_keep_nobody_out(gateway: ServerGateway, writer: str) -> None:
    """More of them than there is room for: a program with a token is answered meanwhile, and so is a machine over its channel."""
    machine = gateway.confided.enroll("beside")
    room = room_for_files(gateway)
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS + 60):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), DEADLINE_S))
            one.send(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % gateway.port)
        assert call(gateway, writer, "memory_status").status == 200
        async with await gateway.confided.connect(machine) as connected:
            await connected.attach()
            await connected.put("MEMORY.md", "Somebody is at the door.\n")
    assert room_for_files(gateway) == room  # to grow it stops a process of several threads


def room_for_files(gateway: ServerGateway) -> str:
    """What the kernel has made for the daemon; nothing where it does not tell."""
    assert gateway.confided.address is not None
    status = Path("/proc") / str(gateway.confided.address["pid"]) / "status"
    lines = status.read_text().splitlines() if status.exists() else ()
    return "".join(line for line in lines if line.startswith("FDSize:"))


def test_large_bodies_are_refused(gateway: ServerGateway, reader: str) -> None:
    """By what they are, whatever they say of their length; those of a stranger unread."""
    for token, status in ((reader, 413), ("cfd_" + "A" * 43, 401)):
        chunked = gateway.connection()
        chunked.putrequest("POST", "/mcp")
        for name, value in (LATER | {"Authorization": f"Bearer {token}", "Transfer-Encoding": "chunked"}).items():
            chunked.putheader(name, value)
        chunked.endheaders()
        part = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        try:
            for _ in range(5):
                chunked.send(part)
        except OSError:  # it has hung up
            pass
        else:
            assert chunked.getresponse().status == status
        chunked.close()
    nested = gateway.request("POST", "/mcp", b"[" * 3_000_000, token=reader, headers=LATER)
    assert nested.status in (400, 413)
    assert gateway.request("GET", "/health").status == 200


def test_who_has_asked_for_too_much_is_read_no_further(gateway: ServerGateway, writer: str) -> None:
    """To parse a large request takes the loop 35 ms and more, which machines wait for."""
    dear = [[] for _ in range(MAX_CONTAINERS - 100)]  # what that costs is paid off in half a minute
    assert call(gateway, gateway.token("dear"), "memory_search", query=dear).status == 200
    head = LATER | {"Host": f"127.0.0.1:{gateway.port}", "Authorization": f"Bearer {gateway.token('dear')}"}
    lines = [f"{name}: {value}" for name, value in {**head, "Content-Length": str(MAX_BODY_BYTES)}.items()]
    with socket.create_connection(("127.0.0.1", gateway.port), DEADLINE_S) as one:
        one.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode())
        assert one.recv(12) == b"HTTP/1.1 429"
    assert call(gateway, writer, "memory_status").status == 200


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
        (listed,) = gateway.confided.json("http", "ls")
        assert listed["lastSeenAt"] is not None
    finally:
        gateway.confided.end()


@pytest.mark.parametrize(
    "body",
    [
        [{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"secret": "a canary"}}],
        {"jsonrpc": "2.0", "id": ["a canary"], "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": {"a canary": 1}},
        {"a canary": 1},
        b'{"a canary": ',
        b'"a canary"',
    ],
    ids=str,
)
def test_what_is_no_message_is_refused_in_our_own_words(gateway: ServerGateway, writer: str, body: Any) -> None:
    """A batch, as older clients send it, and others: the answer quotes nothing of them."""
    refused = gateway.request(
        "POST", "/mcp", body, token=writer, headers={"Accept": "application/json, text/event-stream"}
    )
    assert refused.status == 400
    told = refused.body.decode()
    assert "canary" not in told
    assert "pydantic" not in told
    assert "jsonrpc" in told
    assert "no batch" in told or "Missing session ID" in told


def test_a_host_without_its_port_is_told_so(gateway: ServerGateway) -> None:
    """As nginx sends it by $host; and of another name nothing is told."""
    for host, told in (
        ("127.0.0.1", "the port is missing in Host"),
        ("evil.example", None),
        (f"evil.example:{gateway.port}", None),
    ):
        refused = gateway.request("GET", "/health", headers={"Host": host})
        hint = refused.json["error"].get("hint")
        assert refused.status == 421
        assert hint is None if told is None else told in hint
