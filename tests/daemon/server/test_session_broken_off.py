"""A connection breaks, or a deadline passes, while the daemon makes a change: it is made, and the machines hear of it at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_daemon.documents.writer import Writer
from confide_daemon.server.mcp import tool_calls
from confide_daemon.store.rows import DocumentRow

PATH = "memory/a.md"


class Gate:
    """The writer stands still in the middle of a change until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._log = caplog
        self.reached, self.go = asyncio.Event(), threading.Event()
        loop, made = asyncio.get_running_loop(), Writer._keep

        def keep(writer: Writer, row: DocumentRow | None, *args: Any, **named: Any) -> Any:
            loop.call_soon_threadsafe(self.reached.set)
            assert self.go.wait(DEADLINE_S)
            return made(writer, row, *args, **named)

        monkeypatch.setattr(Writer, "_keep", keep)

    async def broken_off(self, call: asyncio.Task[Any], caller: Machine) -> None:
        """Break the connection of a machine whose call is being carried out, and let the writer go on once the daemon knows."""
        async with asyncio.timeout(DEADLINE_S):
            await self.reached.wait()
            caller.connection.abort()
            await asyncio.gather(call, return_exceptions=True)
            await caller.ended_within(DEADLINE_S)
            while ": ended after" not in self._log.text:  # noqa: ASYNC110 - of the daemon, which tells its log alone
                await asyncio.sleep(0.01)
        self.go.set()


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def desktop(daemon: Serving) -> AsyncIterator[Machine]:
    async with machine(daemon, "desktop") as connected:
        await connected.attach("proj")
        yield connected


@pytest.fixture
async def laptop(daemon: Serving, desktop: Machine) -> AsyncIterator[Machine]:
    async with machine(daemon, "laptop", space="desktop") as connected:
        await connected.attach("proj")
        yield connected


async def told(one: Machine) -> str:
    """The text that a machine was brought."""
    async with asyncio.timeout(DEADLINE_S):
        return str((await one.applied.get())["text"])


async def test_a_save_whose_connection_broke_is_told_to_the_others(
    laptop: Machine, desktop: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine sends it again, and is told that the daemon has it: nobody would tell the others then."""
    gate = Gate(monkeypatch, caplog)
    body = {"project": "proj", "path": PATH, "text": "- mine\n", "hash": text_hash("- mine\n"), "base": 0}
    await gate.broken_off(asyncio.create_task(laptop.request("put", body)), laptop)
    assert await told(desktop) == "- mine\n"


async def test_a_store_whose_connection_broke_is_told_to_the_others(
    laptop: Machine, desktop: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stored() -> None:
        async with laptop.mcp() as client:
            await client.call_tool("memory_store", {"content": "- told", "path": PATH})

    gate = Gate(monkeypatch, caplog)
    await gate.broken_off(asyncio.create_task(stored()), laptop)
    assert await told(desktop) == "- told\n"


async def test_a_call_that_waited_and_whose_connection_broke_is_told_to_the_others(
    laptop: Machine, desktop: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(monkeypatch, caplog)
    waited = {"tool": "memory_store", "arguments": {"content": "- told", "path": PATH}, "operation": "0" * 32}
    body = {"project": "proj", **waited}
    await gate.broken_off(asyncio.create_task(laptop.request("call", body)), laptop)
    assert await told(desktop) == "- told\n"


async def test_a_store_that_was_not_made_in_time_is_told_to_all(
    laptop: Machine, desktop: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asked is told that it is late; the thread that writes comes to it all the same, as behind a large file."""
    monkeypatch.setattr(tool_calls, "CALL_DEADLINE_S", 0.1)
    gate = Gate(monkeypatch, caplog)
    async with laptop.mcp() as client:
        assert (await client.call_tool("memory_store", {"content": "- told", "path": PATH})).is_error
        gate.go.set()
        assert await told(desktop) == "- told\n"
        assert await told(laptop) == "- told\n"
