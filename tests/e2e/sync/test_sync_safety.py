"""What must never be taken for a deletion, a shared memory, or a wish to carry on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.support.programs.processes import Inside, running_daemon, wait_until
from tests.support.programs.wire import Wire


@pytest.mark.parametrize("trick", ["symlink", "file", "root"])
def test_what_cannot_be_seen_is_not_deleted(tmp_path: Path, trick: str) -> None:
    """A linked folder, a file in its place, a missing project: nothing is removed from the daemon, and another machine keeps its files."""
    ann, bob = Inside(tmp_path, "ann"), Inside(tmp_path, "bob")
    with running_daemon(tmp_path) as daemon:
        for machine, options in ((ann, ()), (bob, ("--space", "ann"))):
            machine.call_project("shared")
            machine.run("join", daemon.invite(machine.name, *options))
        ann.write("memory/a.md", "The heron fishes at dawn.\n")
        ann.run("sync")
        bob.run("sync")
        assert (bob.project / "memory/a.md").exists()
        aside = tmp_path / "aside"
        if trick == "root":
            with Wire(ann) as wire:
                wire.open()
                wire.tool("memory_sync", {})
                shutil.move(ann.project, aside)
                wire.tool("memory_sync", {"force": True})
        else:
            shutil.move(ann.project / "memory", aside)
            if trick == "symlink":
                (ann.project / "memory").symlink_to(aside)
            else:
                (ann.project / "memory").write_text("in the way")
            ann.run("sync")
        assert "heron" in bob.run("search", "heron at dawn")
        assert (bob.project / "memory/a.md").exists()


def test_a_real_deletion_travels(tmp_path: Path) -> None:
    """Deleting the file, or its folder, deletes it for the daemon and for the other machine of the space."""
    ann, bob = Inside(tmp_path, "ann"), Inside(tmp_path, "bob")
    with running_daemon(tmp_path) as daemon:
        for machine, options in ((ann, ()), (bob, ("--space", "ann"))):
            machine.call_project("shared")
            machine.run("join", daemon.invite(machine.name, *options))
        ann.write("memory/notes/a.md", "The heron fishes at dawn.\n")
        ann.write("memory/b.md", "The ibis waits.\n")
        ann.run("sync")
        bob.run("sync")
        shutil.rmtree(ann.project / "memory" / "notes")
        ann.run("sync")
        bob.run("sync")
        assert not (bob.project / "memory/notes/a.md").exists()
        assert (bob.project / "memory/b.md").exists()
        assert "heron" not in bob.run("search", "heron at dawn")


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_file_that_was_only_touched_does_not_count_as_unsent(tmp_path: Path, is_watched: bool) -> None:
    """A `git checkout`, a backup tool or a clock that jumps changes the time of a file and nothing in it."""
    machine = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        file = machine.write("memory/a.md", "The heron fishes at dawn.\n")
        machine.run("sync")
        if not is_watched:
            os.utime(file, (1, 1))
        with Wire(machine) as wire:
            wire.open()

            def unsent() -> int:
                count: int = wire.tool("memory_status", {})["structuredContent"]["pendingUploads"]
                return count

            if is_watched:
                assert unsent() == 0
                os.utime(file, (1, 1))
            wait_until("nothing to be left to send", lambda: unsent() == 0)


def test_a_folder_named_global_is_not_the_shared_memory(tmp_path: Path) -> None:
    """Its files are not found from other projects."""
    machine = Inside(tmp_path, "ann")
    private = machine.project.parent / "global"
    (private / "memory").mkdir(parents=True)
    (private / "memory/a.md").write_text("The heron fishes at dawn.\n")
    try:
        machine.run("sync", "--project", str(private))
        assert "heron" in machine.run("search", "heron at dawn", "--project", str(private))
        assert "heron" not in machine.run("search", "heron at dawn")
    finally:
        machine.stop_local_daemon()


def test_a_cancelled_store_is_not_carried_out_later(tmp_path: Path) -> None:
    """A call that waits for the link and is cancelled meanwhile leaves no trace."""
    machine = Inside(tmp_path, "ann")
    try:
        with Wire(machine) as wire:
            wire.open()
            store = wire.ask("tools/call", {"name": "memory_store", "arguments": {"content": "- cancelled-canary"}})
            wire.send({"method": "notifications/cancelled", "params": {"requestId": store}})
            wait_until("the link", lambda: not wire.tool("memory_status", {}).get("isError"))
            wire.tool("memory_store", {"content": "- wanted"})
        files = "".join(file.read_text() for file in machine.project.rglob("*.md"))
        assert "wanted" in files
        assert "cancelled-canary" not in files
    finally:
        machine.stop_local_daemon()


def test_a_stale_address_does_not_lock_a_machine_out(tmp_path: Path) -> None:
    """After a kill -9 somebody else listens on the old port: the next command finds its way all the same."""
    import os
    import signal
    import socket

    machine = Inside(tmp_path, "ann")
    try:
        machine.run("status")
        address = machine.local_daemon
        assert address is not None
        port = int(address["url"].rsplit(":", 1)[1].strip("/"))
        os.kill(address["pid"], signal.SIGKILL)
        wait_until("the daemon to be gone", lambda: machine.local_daemon is None)
        with socket.create_server(("127.0.0.1", port), reuse_port=True):
            assert machine.json("status")["link"]["state"] == "up"
    finally:
        machine.stop_local_daemon()


def test_a_daemon_that_has_lost_texts_gets_them_again(tmp_path: Path) -> None:
    """Restored from an old copy, or without its database: the working copies bring back what they had sent, and lose nothing."""
    ann = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        ann.run("join", daemon.invite("ann"))
        ann.write("memory/a.md", "The heron fishes at dawn.\n")
        ann.run("sync")
        daemon.stop()
        shutil.copytree(daemon.data, tmp_path / "copy")
        daemon.start()
        ann.write("memory/a.md", "The heron fishes at dusk.\n")
        ann.write("memory/b.md", "The ibis waits.\n")
        ann.run("sync")
        daemon.stop()
        shutil.rmtree(daemon.data)
        shutil.copytree(tmp_path / "copy", daemon.data)
        daemon.start()
        ann.run("sync")
        assert "memory/b.md" in ann.run("search", "ibis waits")
        edited = (ann.project / "memory/a.md").read_text()
        assert "fishes at dusk" in edited
        daemon.stop()
        for file in (daemon.data / "spaces").glob("*.db*"):
            file.unlink()
        daemon.start()
        ann.run("sync")
        assert "memory/b.md" in ann.run("search", "ibis waits")
        assert "memory/a.md" in ann.run("search", "heron fishes")
        assert (ann.project / "memory/a.md").read_text() == edited
        assert (ann.project / "memory/b.md").read_text() == "The ibis waits.\n"


def test_a_machine_whose_own_files_cannot_be_used_says_so(tmp_path: Path) -> None:
    """As on a disk that is full or read-only: the agent is told why nothing was compared, and the daemon no path."""
    machine = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_sync", {})
            confirmed = machine.home / "proxy" / "confirmed"
            shutil.rmtree(confirmed)
            confirmed.write_text("in the way")
            machine.write("memory/a.md", "The heron fishes at dawn.\n")
            said = str(wire.tool("memory_sync", {"force": True}))
            assert "cannot use its own files" in said
            assert "is its disk full" in said
            assert str(tmp_path) not in said
