"""Who gets nothing of a gateway: pages of others, names that lead here, programs without a token or with a lesser one, and floods."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.door_attacks import LISTEN, METADATA, DoorAttacks, listen
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.processes import Machine

CANARY = "quetzal-canary"


class TestDoor(DoorAttacks):
    paths = ("/health", METADATA, "/mcp", "/api/memories", "/panel", "/nothing")


@pytest.fixture
def many(gateway: Gateway) -> str:
    """Whose streams are counted."""
    return gateway.token("many")


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
    """Soon after `confide http token rm`: one that went on would be kept alive with comments."""
    token = gateway.machine.json("token", "new", "brief")["token"]
    connection, answer = listen(gateway, token)
    assert answer.status == 200
    assert b"acknowledged" in answer.readline() + answer.readline()
    gateway.machine.run("token", "rm", "brief")
    began = time.monotonic()
    while answer.readline():
        assert time.monotonic() - began < DEADLINE_S
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


def test_each_address_of_its_name_is_its_own(gateway: Gateway) -> None:
    """`localhost` may lead to any of them, and where it does not listen another user of the machine could."""
    has_ipv6 = any(address[4][0] == "::1" for address in socket.getaddrinfo("localhost", gateway.port))
    for host in ("127.0.0.1", "localhost", *(["::1"] if has_ipv6 else [])):
        asked = http.client.HTTPConnection(host, gateway.port, timeout=DEADLINE_S)
        asked.request("GET", "/health")
        assert asked.getresponse().status == 200
        asked.close()


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
        said = gateway.stop()
        connection.close()
    assert CANARY not in said
    assert token not in said
    for path in (own.home / "proxy/gateway").rglob("*"):
        assert not path.is_file() or token[4:] not in path.read_text()
    (used,) = own.json("token", "ls")
    assert used["lastUsed"] is not None
