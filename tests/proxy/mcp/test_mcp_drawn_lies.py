"""Drawn lies of every kind, told to a real `confide mcp`: each call has one answer, in time, and nothing comes unasked."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.hostile import EVIL, files_of, hostile
from tests.support.deadline import DEADLINE_S
from tests.support.draws import IS_THOROUGH
from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire

from confide_proxy.mcp.catalogue import packaged_catalogue
from confide_proxy.mcp.incoming import NEWS

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        ("tools/call", {"name": name, "arguments": {"query": "heron", "path": "memory/a.md"}})
        for name in packaged_catalogue().tools
    ),
    ("tools/call", {"name": "memory_store", "arguments": {"content": "herons fish"}}),
    ("tools/call", {"name": "memory_search", "arguments": {"query": "heron"}, "_meta": {"progressToken": 1}}),
    ("tools/call", {"name": "secret_get", "arguments": {"id": "0f" * 16}}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "recall", "arguments": {"topic": "heron"}}),
    ("resources/list", {}),
    ("resources/read", {"uri": "memory://core"}),
    ("resources/subscribe", {"uri": "memory://core"}),
    ("no/such/method", {}),
    ("ping", {}),
)


@pytest.mark.parametrize("seed", range(40 if IS_THOROUGH else 3))
async def test_no_lie_reaches_an_agent_unasked(tmp_path: Path, seed: int) -> None:
    """Whatever is answered to requests and calls: no second answer, no request, no line in a line, no file outside of memory."""
    machine = Machine(tmp_path, "victim")
    machine.write("memory/a.md", "# heron\n\nfishes at dawn\n")
    (machine.home / "proxy.toml").write_text('toolsets = ["all"]\n')
    draw = random.Random(seed)
    async with hostile(machine, draw) as daemon:
        before = files_of(machine)
        wire = await asyncio.to_thread(Wire, machine)
        try:
            await asyncio.to_thread(wire.open)
            calls = dict(enumerate(draw.choices(CALLS, k=40), 100))
            for identifier, (method, params) in calls.items():
                wire.send({"id": identifier, "method": method, "params": params})
            waiting = set(calls)
            async with asyncio.timeout(DEADLINE_S):
                while waiting:
                    message = await asyncio.to_thread(wire.next)
                    if "method" not in message:
                        waiting.remove(message["id"])  # and a second answer is a KeyError
                        assert ("result" in message) != ("error" in message)
            for connection in daemon.connections:
                await connection.close()
            await asyncio.to_thread(wire.call, "server/discover")
            assert wire.process.poll() is None
        finally:
            await asyncio.to_thread(wire.__exit__, None, None, None)
        for heard in wire.heard:
            assert len(heard.decode().strip().splitlines()) == 1
            message = json.loads(heard)
            assert message.get("method", "notifications/message") in NEWS
            assert "method" not in message or "id" not in message
            if method_of(calls, message) == "tools/list":
                assert EVIL not in str(message)
            if name_of(calls, message) in ("secret_get", "memory_import"):
                assert "forged" not in str(message)
        assert "Traceback" not in wire.stderr
        assert "internal error" not in wire.stderr
        assert files_of(machine) == before


def method_of(calls: dict[int, tuple[str, dict[str, Any]]], message: dict[str, Any]) -> str:
    return calls.get(message.get("id", 0), ("", {}))[0]


def name_of(calls: dict[int, tuple[str, dict[str, Any]]], message: dict[str, Any]) -> Any:
    return calls.get(message.get("id", 0), ("", {}))[1].get("name")
