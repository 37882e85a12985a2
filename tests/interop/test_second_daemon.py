"""The real `confide` against the second daemon, which was written from PROTOCOL.md alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.interop.frames import REKEY_EVERY, Type
from tests.interop.notes import Notes, ask_backlog
from tests.interop.peer import Daemon
from tests.interop.texts import Identity, decode, fingerprint
from tests.support.programs import Machine, wait_until
from tests.support.wire import Wire

NOTE = "# Decisions\n\nWe chose postgres over mysql for its row locks.\n"


@pytest.fixture
def notes() -> Notes:
    """What the second daemon keeps."""
    return Notes()


@pytest.fixture
async def daemon(notes: Notes) -> AsyncIterator[Daemon]:
    """The second daemon, listening."""
    async with notes.daemon().serving() as daemon:
        yield daemon
        assert not daemon.failures


@pytest.fixture
def ann(tmp_path: Path) -> Machine:
    """A machine with one note."""
    machine = Machine(tmp_path, "ann")
    machine.write("MEMORY.md", NOTE)
    return machine


async def join(machine: Machine, daemon: Daemon) -> str:
    """`confide join`."""
    return await asyncio.to_thread(machine.run, "join", str(daemon.invite()))


async def test_join_search_store(daemon: Daemon, notes: Notes, ann: Machine) -> None:
    """Join in mode 1, sessions in mode 0 after it; files go up, hits come back, and what is stored lands on the disk."""
    joined = await join(ann, daemon)
    (key,) = daemon.callers
    assert fingerprint(key) in joined
    assert daemon.sessions[0].caller.mode == 1
    status = await asyncio.to_thread(ann.json, "status")
    assert status
    found = await asyncio.to_thread(ann.run, "search", "postgres")
    assert "row locks" in found
    assert notes.text("project", "MEMORY.md") == NOTE
    await asyncio.to_thread(ann.run, "store", "- tokens are cached for five minutes")
    assert "five minutes" in (ann.project / "memory" / "2026-11-21.md").read_text()
    assert {served.caller.key for served in daemon.sessions} == {key}
    assert {served.session.ended.result().word for served in daemon.sessions} == {"done"}
    assert len({served.session.records.session_id for served in daemon.sessions}) == len(daemon.sessions) > 3


async def test_pin_by_hand(daemon: Daemon, notes: Notes, ann: Machine) -> None:
    """The key line that `confide key show` prints is what the daemon then sees; the pin is our Bech32m."""
    shown = await asyncio.to_thread(ann.run, "key", "show")
    line = re.search(r"confide-ed25519 (confide1\w+)", shown)
    assert line is not None, shown
    key = decode("confide", line[1])
    assert fingerprint(key) in shown
    await asyncio.to_thread(ann.run, "pin", daemon.url, daemon.identity.pin)
    denied = await asyncio.to_thread(ann.run, "search", "postgres", code=6)
    assert "key" in denied
    daemon.callers.add(key)
    assert "row locks" in await asyncio.to_thread(ann.run, "search", "postgres")
    assert all(served.caller.mode == 0 for served in daemon.sessions)


async def test_another_key_than_the_pinned_one(daemon: Daemon, ann: Machine) -> None:
    """A daemon of another key gets message 1 and no more."""
    await asyncio.to_thread(ann.run, "pin", daemon.url, Identity.generate().pin)
    told = await asyncio.to_thread(ann.run, "search", "postgres", code=6)
    assert "pinned key" in told
    assert daemon.failures
    assert not daemon.sessions
    daemon.failures.clear()


async def test_an_invite_that_was_used(daemon: Daemon, ann: Machine, tmp_path: Path) -> None:
    """The second to come with an invite is denied with its own sentence."""
    invite = str(daemon.invite())
    await asyncio.to_thread(ann.run, "join", invite)
    told = await asyncio.to_thread(Machine(tmp_path, "bob").run, "join", invite, code=6)
    assert "this invite was used already" in told
    assert len(daemon.callers) == 1


async def test_mcp_bodies_and_rekey(daemon: Daemon, notes: Notes, ann: Machine) -> None:
    """An agent's session: a body of megabytes goes up, 2^14 requests of the daemon are answered, and a search still works."""
    await join(ann, daemon)
    big = "# Big\n\n" + "- one line of a long log, with ünicode\n" * 80_000
    ann.write("memory/big.md", big)
    notes.put("project", "memory/from-elsewhere.md", "# Written on another machine\n")
    with Wire(ann) as wire:
        await asyncio.to_thread(wire.open)
        pulled = ann.project / "memory" / "from-elsewhere.md"
        await asyncio.to_thread(wait_until, "the upload", lambda: notes.text("project", "memory/big.md") == big)
        await asyncio.to_thread(wait_until, "the file of another machine", pulled.exists)
        assert notes.bodies == 1
        session = daemon.sessions[-1].session
        assert session.seen[Type.DATA] > 3_000_000 // 16376
        assert await ask_backlog(daemon.sessions[-1], REKEY_EVERY + 100) == REKEY_EVERY + 100
        assert min(session.records.sent, session.records.received) > REKEY_EVERY
        answer = await asyncio.to_thread(wire.tool, "memory_search", {"query": "postgres"})
        assert "row locks" in answer["structuredContent"]["results"][0]["snippet"]
        pulled.unlink()
        await asyncio.to_thread(
            wait_until, "the deletion", lambda: notes.text("project", "memory/from-elsewhere.md") is None
        )
    ended = await asyncio.wait_for(asyncio.shield(session.ended), 10)
    assert ended.word == "done"


async def test_a_daemon_that_goes_away(daemon: Daemon, notes: Notes, ann: Machine) -> None:
    """GOAWAY and CLOSE end a session cleanly; the agent's server comes again, with fresh keys, and works."""
    await join(ann, daemon)
    with Wire(ann) as wire:
        await asyncio.to_thread(wire.open)
        await asyncio.to_thread(wait_until, "the note", lambda: notes.text("project", "MEMORY.md"))
        first, before = daemon.sessions[-1].session, len(daemon.sessions)
        await first.go_away("restart")
        ended = await first.close("restart")
        assert ended.word is not None
        assert ended.code == 1000
        await asyncio.to_thread(wait_until, "the next session", lambda: len(daemon.sessions) > before)
        answer = await asyncio.to_thread(wire.tool, "memory_search", {"query": "postgres"})
        assert "row locks" in answer["structuredContent"]["results"][0]["snippet"]
        second = daemon.sessions[-1].session
        assert second.records.session_id != first.records.session_id
