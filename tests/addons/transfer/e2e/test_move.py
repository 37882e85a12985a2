"""`confide daemon move`: from one machine to a server and back, with every secret, file and revision."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.programs.forked import Program
from tests.support.programs.mcp_session import session
from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDE, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire
from tests.support.sealing.sealed_files import TOKEN

SEED: Final = int(os.environ.get("CONFIDE_KILL_SEED", random.randrange(10**6)))
KILLS: Final = int(os.environ.get("CONFIDE_MOVE_KILLS", "1"))
VICTIMS: Final = ("machine", "new daemon", "old daemon")


@pytest.fixture
def ann(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose own daemon is ended with the test."""
    machine = Inside(tmp_path, "ann")
    try:
        yield machine
    finally:
        machine.stop_local_daemon()


def grown(machine: Machine) -> str:
    """A memory of some weeks: revisions, a deleted file, a sealed secret, a link; the secret's placeholder."""
    machine.run("quickstart")
    machine.write("memory/heron.md", "# Herons\n\nThey fish at dawn.\n")
    machine.write("memory/stork.md", "# Storks\n\nThey nest on chimneys.\n")
    machine.run("sync")
    machine.write("memory/heron.md", "# Herons\n\nThey fish at dawn, and at dusk.\n")
    (machine.project / "memory/stork.md").unlink()
    machine.run("store", f"the deploy token is {TOKEN}")
    other = machine.project.parent / "other"
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "crane.md").write_text("# Cranes\n\nThey dance.\n")
    machine.run("sync", "--project", str(other))
    machine.run("link", "other")
    machine.run("task", "add", "look at the herons", "--recipe", "review", "--repo", "shop", "--schedule", "0 2 * * *")
    (sealed,) = machine.json("secrets", "ls")
    return f"(sealed:{sealed['kind']}:{sealed['id']})"


def past(machine: Machine) -> dict[str, Any]:
    """All that a person sees of it."""
    return {
        "history": {path: machine.json("history", path) for path in ("memory/heron.md", "memory/stork.md")},
        "deleted": machine.json("deleted"),
        "links": machine.json("link"),
        "projects": machine.json("projects"),
        "tasks": machine.json("task", "ls"),
    }


def test_a_memory_goes_to_a_server_and_back_whole(ann: Machine, tmp_path: Path) -> None:
    """Every secret, revision, deleted file and link is there after a move, and after the way back."""
    with running_daemon(tmp_path) as daemon:
        placeholder = grown(ann)
        before = past(ann)
        looked = ann.json("move", "--dry-run")
        told = ann.run("move", "--yes", stdin=daemon.invite("notebook") + "\n")
        assert f"{looked['revisions']} revisions" in told
        assert "1 sealed secret" in told
        assert "every revision was compared" in told
        assert f"moved to confide://127.0.0.1:{daemon.port}: " in told
        assert f"compare these words with the server's: {ann.json('key', 'show')['words']}" in told
        assert str(ann.home / "daemon") in told
        ann.stop_local_daemon()
        assert past(ann) == before
        # The server calls the machine as its invite does; people read the name that the devices of the space know.
        (mine,) = ann.json("device", "ls")["devices"]
        ann.run("recovery", "new")
        assert f"1 device and 1 recovery code, secrets are sealed; this device is {mine['name']}: " in ann.run("status")
        with Wire(ann) as wire:
            wire.open()
            status = wire.tool("memory_status", {})
        assert status["structuredContent"]["link"]["caller"] == "notebook" != mine["name"]
        text = status["content"][0]["text"]
        assert f"link up: {mine['name']} in space" in text
        assert "1 device and 1 recovery code, epoch" in text
        assert TOKEN in ann.run("secrets", "show", placeholder, "--raw")
        assert "nothing" not in ann.run("search", "herons at dusk")
        ann.run("restore", "memory/stork.md")
        assert "chimneys" in (ann.project / "memory/stork.md").read_text()
        assert ann.local_daemon is None, "the old daemon was started again"

        before = past(ann)
        back = ann.json("move", "--to", "local", "--yes")
        assert Path(back["aside"]).is_dir()
    assert past(ann) == before
    assert TOKEN in ann.run("secrets", "show", placeholder, "--raw")


def test_an_invite_into_another_memory_does_not_stand_in_the_way(ann: Machine, tmp_path: Path) -> None:
    """Nothing is moved with it; the right one works after it, and after the operator has removed the device."""
    with running_daemon(tmp_path) as daemon:
        joined(tmp_path, daemon, "bob")
        ann.run("quickstart")
        ann.write("memory/heron.md", "They fish at dawn.\n")
        ann.run("sync")
        wrong = daemon.invite("ann-1", "--space", "bob")
        assert "a move goes into a new one" in ann.run("move", "--to", wrong, "--yes", code=7)
        ann.run("move", "--to", daemon.invite("ann-2"), "--yes")
        assert "dawn" in ann.run("read", "memory/heron.md")
        ann.run("move", "--to", "local", "--yes")
        daemon.run("device", "rm", "ann-2", "--yes")
        ann.run("move", "--to", daemon.invite("ann-3"), "--yes")
        assert "dawn" in ann.run("read", "memory/heron.md")


@pytest.mark.timeout(180)
async def test_a_session_goes_over_with_its_machine(ann: Machine, tmp_path: Path) -> None:
    """An agent's session that runs on through a move stores at the new daemon from then on, and nothing at the old one."""
    with running_daemon(tmp_path) as daemon:
        ann.run("quickstart")
        async with session(ann) as agent:
            await agent.call_tool("memory_store", {"content": "- before the move", "path": "memory/log.md"})
            invite = daemon.invite("ann")
            await asyncio.to_thread(ann.run, "move", "--to", invite, "--yes")
            await agent.call_tool("memory_store", {"content": "- after the move", "path": "memory/log.md"})
            ann.stop_local_daemon()
            await asyncio.to_thread(ann.run, "sync")
            told = await agent.call_tool("memory_read", {"path": "memory/log.md"})
            assert "- after the move" in str(told.content)
        assert ann.local_daemon is None
        assert [one["revision"] for one in ann.json("history", "memory/log.md")["revisions"]] == [2, 1]
    assert not (ann.home / "proxy" / "move.json").exists()


@pytest.mark.timeout(60 + 60 * KILLS)
def test_a_move_that_is_killed_goes_on(ann: Machine, tmp_path: Path) -> None:
    """kill -9 of the machine's program, of the daemon that is left or of the new one: run again, the move ends whole."""
    print(f"CONFIDE_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    with running_daemon(tmp_path) as daemon:
        placeholder = grown(ann)
        before = past(ann)
        invite = daemon.invite("ann", "--ttl", "4h")
        for party in (VICTIMS * KILLS)[: max(KILLS, 1)]:
            # A local daemon that was killed is started again by the next run.
            mover = Program(
                [CONFIDE, "move", "--yes", "--to", invite],
                cwd=ann.project,
                env=ann.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            note = ann.home / "proxy" / "move.json"
            wait_until("the move to begin, or to end", lambda: note.exists() or mover.poll() is not None)  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.8))
            if party == "machine":
                mover.kill()
            elif party == "new daemon":
                daemon.kill()
                daemon.start()
            elif address := ann.local_daemon:
                os.kill(address["pid"], signal.SIGKILL)
            mover.wait(120)
            if "127.0.0.1" in str(ann.json("move", "--dry-run")["from"]):
                break
        if str(ann.json("move", "--dry-run")["from"]) == "this device" or (ann.home / "proxy" / "move.json").exists():
            ann.run("move", "--to", invite, "--yes")
        ann.stop_local_daemon()
        assert past(ann) == before
        assert TOKEN in ann.run("secrets", "show", placeholder, "--raw")
        assert ann.local_daemon is None
        assert not (ann.home / "proxy" / "move.json").exists()


def test_a_second_device_goes_on_at_the_new_daemon(tmp_path: Path) -> None:
    """From one server to another: the other device is named, joins by itself, and opens what was sealed before."""
    with running_daemon(tmp_path / "one") as one, running_daemon(tmp_path / "two") as two:
        ann, bob = joined(tmp_path, one, "ann", "bob")
        ann.run("store", f"the deploy token is {TOKEN}")
        bob.run("sync")
        ann.run("device", "approve", "bob", "--words", bob.json("key", "show")["words"])
        (sealed,) = bob.json("secrets", "ls")
        moved = ann.json("move", "--to", two.invite("ann"), "--yes")
        assert moved["otherDevices"] == ["bob"]
        assert "was moved to another daemon" in bob.run("sync", code=5)
        invite = ann.json("device", "invite", "bob", "--no-wait")["invite"]
        bob.run("join", stdin=invite + "\n")
        bob.run("device", "confirm", "--words", ann.json("device", "ls")["space"]["headWords"])
        assert TOKEN in bob.run("secrets", "show", f"(sealed:{sealed['kind']}:{sealed['id']})", "--raw")
