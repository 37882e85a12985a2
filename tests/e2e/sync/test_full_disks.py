"""Memory on a disk of its own: files arrive there, and what does not fit is told, kept and written later."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest
from tests.support.daemon.disks import small
from tests.support.programs.command import confide
from tests.support.programs.processes import Daemon, Inside, running_daemon

FULL = "cannot be written: the disk is full"


def devices(root: Path, daemon: Daemon) -> tuple[Inside, Inside]:
    """Two of one project."""
    ann, bob = Inside(root, "ann"), Inside(root, "bob")
    for machine, options in ((ann, ()), (bob, ("--space", "ann"))):
        machine.call_project("shared")
        machine.run("join", daemon.invite(machine.name, *options))
    return ann, bob


def fill(disk: Path) -> Path:
    """Leave no byte of it free."""
    full = disk / "full.bin"
    with full.open("wb", buffering=0) as file:
        for size in (2**16, 1):
            with suppress(OSError):
                while file.write(b"x" * size):
                    pass
    return full


@contextmanager
def mounted_alone(file: Path, at: Path) -> Iterator[None]:
    command = ["mount", "--bind", str(file), str(at)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def texts(machine: Inside) -> dict[str, str]:
    root = machine.project
    return {str(file.relative_to(root)): file.read_text() for file in (root / "memory").rglob("*.md")}


def test_what_does_not_fit_on_the_disk_of_memory_comes_once_it_does(tmp_path: Path) -> None:
    """The disk is another one than that of the project and of this device's own files. A file there is never cut."""
    with running_daemon(tmp_path) as daemon:
        ann, bob = devices(tmp_path, daemon)
        shutil.rmtree(bob.project / "memory", ignore_errors=True)
        with small(bob.project / "memory") as disk:
            first = "The heron fishes at dawn.\n" * 200
            ann.write("memory/a.md", first)
            ann.run("sync")
            assert bob.json("sync")["filesPulled"] == 1
            full = fill(disk)
            ann.write("memory/a.md", "The heron fishes at noon.\n" * 300)
            ann.write("memory/sub/b.md", "The ibis waits.\n" * 200)
            ann.run("sync")
            for _ in range(2):
                ended = confide(bob, "sync")
                assert (ended.code, ended.err.count(FULL)) == (8, 2)
            refused = f"2 memory files or folders could not be read or written here at the last comparison ({FULL})"
            assert refused in bob.run("status")
            found = {each["check"]: each for each in json.loads(confide(bob, "doctor", "--json").out)}
            assert found["files"]["state"] == "problem"
            assert refused in found["files"]["detail"]
            assert f"memory/c.md: {FULL}" in bob.run("store", "The crane is here.", "--path", "memory/c.md")
            assert texts(bob) == {"memory/a.md": first}
            assert not [file for file in disk.rglob("*") if file.name.endswith("confide-part")]
            full.unlink()
            assert bob.json("sync")["filesPulled"] == 3
            assert "could not be" not in bob.run("status")
            ann.run("sync")
            assert texts(bob) == texts(ann)
            assert set(texts(bob)) == {"memory/a.md", "memory/sub/b.md", "memory/c.md"}
            bob.write("memory/a.md", "The heron is gone.\n")
            assert bob.json("sync")["filesSent"] == 1
            bob.run("rm", "memory/c.md", "--yes")
            assert not (disk / "c.md").exists()


def test_a_full_disk_of_a_devices_own_files_loses_nothing(tmp_path: Path) -> None:
    """What cannot be queued is refused with the reason; files go on, and nothing is undone once there is room."""
    with running_daemon(tmp_path) as daemon:
        ann, bob = devices(tmp_path, daemon)
        state, kept = bob.home / "proxy", tmp_path / "kept"
        shutil.move(state, kept)
        with small(state):
            shutil.copytree(kept, state, dirs_exist_ok=True)
            state.chmod(0o700)
            ann.write("memory/a.md", "The heron fishes at dawn.\n")
            ann.run("sync")
            bob.run("sync")
            full = fill(state)
            ann.write("memory/a.md", "The heron fishes at noon.\n")
            ann.run("sync")
            bob.write("memory/own.md", "The owl sleeps.\n")
            for _ in range(2):
                confide(bob, "sync")
            confide(bob, "store", "The crane is here.", "--path", "memory/c.md")
            daemon.stop()
            refused = confide(bob, "store", "The stork is here.", "--path", "memory/d.md")
            assert refused.code == 8
            assert "no space left on device" in refused.err
            assert "Traceback" not in refused.err
            daemon.start()
            full.unlink()
            ann.run("sync")
            bob.run("sync")
            ann.run("sync")
            assert texts(bob) == texts(ann)
            assert texts(ann) == {
                "memory/a.md": "The heron fishes at noon.\n",
                "memory/own.md": "The owl sleeps.\n",
                "memory/c.md": "The crane is here.\n",
            }


def test_a_file_that_is_mounted_alone_is_told_of(tmp_path: Path) -> None:
    """As in a container: it can be read and sent, but not replaced as a whole."""
    with running_daemon(tmp_path) as daemon:
        ann, bob = devices(tmp_path, daemon)
        ann.write("MEMORY.md", "- herons\n")
        ann.run("sync")
        bob.run("sync")
        other = tmp_path / "other.md"
        other.write_text("- herons\n")
        with mounted_alone(other, bob.project / "MEMORY.md"):
            ann.write("MEMORY.md", "- herons\n- ibises\n")
            ann.run("sync")
            ended = confide(bob, "sync")
            assert "MEMORY.md: cannot be replaced: the file alone is mounted" in ended.err
            assert other.read_text() == "- herons\n"
        bob.run("sync")
        assert (bob.project / "MEMORY.md").read_text() == "- herons\n- ibises\n"


def test_what_is_restored_over_a_file_that_cannot_be_written_is_not_said_to_be_here(tmp_path: Path) -> None:
    """By revision and by time: the daemon has the older text, and the file keeps the newer one until there is room."""
    with running_daemon(tmp_path) as daemon:
        _, bob = devices(tmp_path, daemon)
        shutil.rmtree(bob.project / "memory", ignore_errors=True)
        with small(bob.project / "memory") as disk:
            older, newer = "The heron fishes at dawn.\n" * 300, "The heron sleeps.\n"
            for text in (older, newer):
                bob.write("memory/a.md", text)
                bob.write("memory/b.md", text)
                bob.run("sync")
                if text == older:
                    then = datetime.now().astimezone().isoformat()
            full = fill(disk)
            told = bob.run("restore", "memory/a.md", "--revision", "1", code=7)
            assert f"memory/a.md: was restored, but the file on this device {FULL}" in told
            for _ in range(2):  # the second time the daemon has that text already
                told = bob.run("restore", "--at", then, "memory/b.md", code=8)
                assert f"1 file could not be written on this device: memory/b.md; memory/b.md: {FULL}" in told
            ended = confide(bob, "restore", "--at", then, "memory/b.md", "--json")
            assert (ended.code, FULL in ended.err) == (8, True)
            assert texts(bob) == {"memory/a.md": newer, "memory/b.md": newer}
            full.unlink()
            bob.run("sync")
            assert texts(bob) == {"memory/a.md": older, "memory/b.md": older}
