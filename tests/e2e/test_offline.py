"""With the daemon out of reach: this machine answers from its files, keeps what is stored, and delivers it once, in order."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.mcp_session import ERAS, Era, session
from tests.support.programs import Daemon, Machine, running_daemon, wait_until
from tests.support.relay import RecordingRelay
from tests.support.wire import Wire


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as running:
        yield running


@pytest.fixture
def relay(daemon: Daemon) -> Iterator[RecordingRelay]:
    with RecordingRelay(daemon.port) as cable:
        yield cable


@pytest.fixture
def machine(tmp_path: Path, daemon: Daemon, relay: RecordingRelay) -> Machine:
    joined = Machine(tmp_path, "ann")
    joined.write("MEMORY.md", "# Birds\n\nThe heron fishes at dawn.\n")
    joined.run("join", daemon.invite("ann", port=relay.port))
    return joined


def store(wire: Wire, content: str, **other: Any) -> dict[str, Any]:
    """A store that succeeds, on the daemon or in the queue."""
    result = wire.tool("memory_store", {"content": content, **other})
    assert not result.get("isError"), result
    structured: dict[str, Any] = result["structuredContent"]
    return structured


def is_up(wire: Wire) -> bool:
    return not wire.tool("memory_status", {}).get("isError")


def waiting(machine: Machine) -> tuple[int, int]:
    """How many calls wait, and how many were refused, as the command counts them."""
    listed = machine.json("queue")
    return listed["queuedOffline"], listed["deadLetters"]


def lines_of(machine: Machine, path: str) -> list[str]:
    file = machine.project / path
    return file.read_text().splitlines() if file.exists() else []


def test_stores_wait_and_arrive_once_and_in_order(machine: Machine, relay: RecordingRelay) -> None:
    """The cable out: stores are queued within the deadline; the cable in: each is on disk once, in order, before what is said later."""
    with Wire(machine) as wire:
        wire.open()
        assert not store(wire, "- number 0", path="memory/log.md")["queued"]
        relay.cut()
        started = time.monotonic()
        for number in range(1, 6):
            kept = store(wire, f"- number {number}", path="memory/log.md")
            assert (kept["queued"], kept["revision"], kept["indexed"], kept["onDisk"]) == (True, 0, False, False)
            assert "since" in kept["warnings"][0]
        assert time.monotonic() - started < 5 * 3.5
        assert lines_of(machine, "memory/log.md") == ["- number 0"]
        relay.mend()
        wait_until("the link", lambda: is_up(wire))
        assert not store(wire, "- number 6", path="memory/log.md")["queued"]
        assert lines_of(machine, "memory/log.md") == [f"- number {number}" for number in range(7)]
        found = wire.tool("memory_search", {"query": "number 4", "minScore": 0})
        assert "number 4" in str(found["structuredContent"]["results"])
        status = wire.tool("memory_status", {})["structuredContent"]
        assert (status["queuedOffline"], status["deadLetters"]) == (0, 0)
