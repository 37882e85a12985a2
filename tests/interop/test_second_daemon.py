"""The real `confide` against the second daemon, which was written from PROTOCOL.md alone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.interop.frames import REKEY_EVERY, Type
from tests.interop.notes import NOTE, Notes, ask_backlog
from tests.interop.peer import Daemon
from tests.interop.texts import Identity, decode, fingerprint
from tests.support.draws import IS_THOROUGH
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.wire import Wire

ASKED = REKEY_EVERY + 100 if IS_THOROUGH else 100
"""Under `make fuzz` enough for new keys in both directions; else `test_go_peer.py` shows them, and the channel's own tests."""


async def join(machine: Machine, daemon: Daemon) -> str:
    """`confide join`."""
    return await asyncio.to_thread(machine.run, "join", str(daemon.invite()))


async def test_join_search_store(second: Daemon, notes: Notes, ann: Machine) -> None:
    """Join in mode 1, sessions in mode 0 after it; files go up, hits come back, and what is stored lands on the disk."""
    joined = await join(ann, second)
    (key,) = second.callers
    assert fingerprint(key) in joined
    assert second.sessions[0].caller.mode == 1
    assert [call["params"]["name"] for call in notes.called] == ["memory_status"]
    assert {tuple(asked["toolsets"]) for asked in notes.ops("attach")} == {("all",)}
    status = await asyncio.to_thread(ann.json, "status")
    assert status
    found = await asyncio.to_thread(ann.run, "search", "postgres")
    assert "row locks" in found
    assert notes.text("project", "MEMORY.md") == NOTE
    await asyncio.to_thread(ann.run, "store", "- tokens are cached for five minutes")
    assert "five minutes" in (ann.project / "memory" / "2026-11-21.md").read_text()
    assert {served.caller.key for served in second.sessions} == {key}
    assert {(await served.session.end()).word for served in second.sessions} == {"done"}
    assert len({served.session.records.session_id for served in second.sessions}) == len(second.sessions) > 3


async def test_pin_by_hand(second: Daemon, notes: Notes, ann: Machine) -> None:
    """The key line that `confide device key show` prints is what the daemon then sees; the pin is our Bech32m."""
    shown = await asyncio.to_thread(ann.run, "key", "show")
    line = re.search(r"confide-ed25519 (confide1\w+)", shown)
    assert line is not None, shown
    key = decode("confide", line[1])
    assert fingerprint(key) in shown
    await asyncio.to_thread(ann.run, "pin", second.url, second.identity.pin)
    denied = await asyncio.to_thread(ann.run, "status", code=6)
    assert "not enrolled" in denied
    second.callers.add(key)
    assert "row locks" in await asyncio.to_thread(ann.run, "search", "postgres")
    assert all(served.caller.mode == 0 for served in second.sessions)


async def test_another_key_than_the_pinned_one(second: Daemon, ann: Machine) -> None:
    """A daemon of another key gets message 1 and no more."""
    await asyncio.to_thread(ann.run, "pin", second.url, Identity.generate().pin)
    told = await asyncio.to_thread(ann.run, "status", code=6)
    assert "pinned key" in told
    assert second.failures
    assert not second.sessions
    second.failures.clear()


async def test_an_invite_that_was_used(second: Daemon, ann: Machine, tmp_path: Path) -> None:
    """The second to come with an invite is denied with its own sentence."""
    invite = str(second.invite())
    await asyncio.to_thread(ann.run, "join", invite)
    told = await asyncio.to_thread(Machine(tmp_path, "bob").run, "join", invite, code=6)
    assert "this invite was used already" in told
    assert len(second.callers) == 1


async def test_mcp_bodies_and_rekey(second: Daemon, notes: Notes, ann: Machine) -> None:
    """An agent's session: a body of a megabyte goes up, 2^14 requests of the daemon (ASKED) are answered, and a search still works."""
    await join(ann, second)
    big = "# Big\n\n" + "- one line of a long log, with ünicode\n" * 25_000
    ann.write("memory/big.md", big)
    notes.put("project", "memory/from-elsewhere.md", "# Written on another machine\n")
    with Wire(ann) as wire:
        await asyncio.to_thread(wire.open)
        pulled = ann.project / "memory" / "from-elsewhere.md"
        await asyncio.to_thread(wait_until, "the upload", lambda: notes.text("project", "memory/big.md") == big)
        await asyncio.to_thread(wait_until, "the file of another machine", pulled.exists)
        assert notes.bodies == 1
        session = second.sessions[-1].session
        assert session.seen[Type.DATA] > 1_000_000 // 16376
        assert await ask_backlog(second.sessions[-1], ASKED) == ASKED
        assert min(session.records.sent, session.records.received) > ASKED - 100
        answer = await asyncio.to_thread(wire.tool, "memory_search", {"query": "postgres"})
        assert "row locks" in answer["structuredContent"]["results"][0]["snippet"]
        pulled.unlink()
        await asyncio.to_thread(
            wait_until, "the deletion", lambda: notes.text("project", "memory/from-elsewhere.md") is None
        )
    ended = await asyncio.wait_for(asyncio.shield(session.ended), 10)
    assert ended.word == "done"


async def test_a_daemon_that_goes_away(second: Daemon, notes: Notes, ann: Machine) -> None:
    """GOAWAY and CLOSE end a session cleanly; the agent's server comes again, with fresh keys, and works."""
    await join(ann, second)
    with Wire(ann) as wire:
        await asyncio.to_thread(wire.open)
        await asyncio.to_thread(wait_until, "the note", lambda: notes.text("project", "MEMORY.md"))
        first, before = second.sessions[-1].session, len(second.sessions)
        await first.go_away("restart")
        ended = await first.close("restart")
        assert ended.word is not None
        assert ended.code == 1000
        await asyncio.to_thread(wait_until, "the next session", lambda: len(second.sessions) > before)
        answer = await asyncio.to_thread(wire.tool, "memory_search", {"query": "postgres"})
        assert "row locks" in answer["structuredContent"]["results"][0]["snippet"]
        assert second.sessions[-1].session.records.session_id != first.records.session_id
