"""Several sessions of one machine in one folder: one of them watches it, and none of them loses anything."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.programs.pair import pair
from tests.support.programs.processes import Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire


def watches(wire: Wire) -> bool:
    """Whether the process holds watches of inotify, as the kernel has it."""
    for fd in Path(f"/proc/{wire.process.pid}/fdinfo").iterdir():
        try:
            if "inotify wd:" in fd.read_text():
                return True
        except OSError:
            continue
    return False


def opened(machine: Machine) -> Wire:
    """A session whose link is up."""
    wire = Wire(machine)
    wire.open()
    assert not wire.tool("memory_status", {}).get("isError")
    return wire


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="looks at /proc")
def test_one_of_three_sessions_watches_and_another_takes_over(tmp_path: Path) -> None:
    """The holder is killed: within two seconds another one watches, and what was saved in between arrives as well."""
    with pair(tmp_path) as (_daemon, ann, bob):
        wires = [opened(ann) for _ in range(3)]
        far = opened(bob)
        try:
            wait_until("one watcher", lambda: sum(map(watches, wires)) == 1)
            time.sleep(1.2)  # two rounds of those who wait for the seat
            assert sum(map(watches, wires)) == 1
            first = next(wire for wire in wires if watches(wire))
            first.process.kill()
            killed = time.monotonic()
            ann.write("memory/between.md", "The heron fishes at dawn.\n")
            rest = [wire for wire in wires if wire is not first]
            wait_until("another watcher", lambda: any(map(watches, rest)))
            # They look twice a second; a seat whose holder is believed to live is free after 300 s.
            assert time.monotonic() - killed < 100
            wait_until("the file at bob", (bob.project / "memory/between.md").exists)
            second = next(wire for wire in rest if watches(wire))
            second.process.kill()
            ann.write("memory/after.md", "The ibis waits.\n")
            wait_until("the other file at bob", (bob.project / "memory/after.md").exists)
            last = next(wire for wire in rest if wire is not second)
            bob.write("memory/back.md", "The okapi sleeps.\n")
            wait_until("bob's file at ann", (ann.project / "memory/back.md").exists)
            assert "okapi" in str(last.tool("memory_search", {"query": "okapi"}))
        finally:
            for wire in (*wires, far):
                wire.__exit__(None, None, None)


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="looks at /proc")
def test_a_session_that_is_stopped_is_stood_in_for(tmp_path: Path) -> None:
    """Ctrl-Z at an agent stops its server, which keeps its lock: another session watches, and both go on when it is continued."""
    with pair(tmp_path) as (_daemon, ann, bob):
        first, far = opened(ann), opened(bob)
        wait_until("the first to watch", lambda: watches(first))
        second = opened(ann)
        try:
            first.process.send_signal(signal.SIGSTOP)
            ann.write("memory/a.md", "The heron fishes.\n")
            wait_until("the file at bob", (bob.project / "memory/a.md").exists)
            assert watches(second)
            first.process.send_signal(signal.SIGCONT)
            ann.write("memory/a.md", "The heron sleeps.\n")
            there = bob.project / "memory/a.md"
            wait_until("the edit at bob", lambda: there.read_text() == "The heron sleeps.\n")
            there.write_text("The heron wakes.\n")
            wait_until("the edit at ann", lambda: (ann.project / "memory/a.md").read_text() == "The heron wakes.\n")
        finally:
            first.process.send_signal(signal.SIGCONT)
            for wire in (first, second, far):
                wire.__exit__(None, None, None)


def test_a_session_that_does_not_watch_still_writes_its_own(tmp_path: Path) -> None:
    """Its stores are on disk when they answer, build upon what a person has just saved, and reach the other machine."""
    with pair(tmp_path) as (_daemon, ann, bob):
        first, second, far = opened(ann), opened(ann), opened(bob)
        try:
            for number in range(6):
                wire = (first, second)[number % 2]
                with (ann.project / "memory/log.md").open("a") as file:
                    file.write(f"- by hand {number}\n")
                answer = wire.tool("memory_store", {"content": f"- by tool {number}", "path": "memory/log.md"})
                assert answer["structuredContent"]["onDisk"], answer
                text = (ann.project / "memory/log.md").read_text()
                for kind in ("hand", "tool"):
                    assert text.count(f"- by {kind} {number}\n") == 1, text
            expected = (ann.project / "memory/log.md").read_text()
            assert len(expected.splitlines()) == 12
            wait_until(
                "the same at bob",
                lambda: (
                    (bob.project / "memory/log.md").exists() and (bob.project / "memory/log.md").read_text() == expected
                ),
                10,
            )
        finally:
            for wire in (first, second, far):
                wire.__exit__(None, None, None)


def test_commands_work_with_and_without_a_session(tmp_path: Path) -> None:
    """`confide sync` and `search` beside a session that watches, and after it was killed."""
    machine = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        with opened(machine) as wire:
            machine.write("memory/a.md", "The heron fishes at dawn.\n")
            assert "heron" in machine.run("search", "heron at dawn")
            wire.process.kill()
        machine.write("memory/a.md", "The ibis waits at noon.\n")
        assert "ibis" in machine.run("search", "ibis at noon")
        assert machine.json("sync")["filesScanned"] == 1


def test_many_processes_at_one_file_lose_no_line(tmp_path: Path) -> None:
    """Stores from three sessions at once, a person who appends by hand, another machine: every line is there once, and on both disks."""
    with pair(tmp_path) as (_daemon, ann, bob):
        wires = [opened(ann), opened(ann), opened(ann), opened(bob)]
        file = ann.project / "memory/2026-11-21.md"
        try:
            lines = []
            for round_ in range(5):
                asked = []
                for number, wire in enumerate(wires):
                    lines.append(f"- tool {round_} {number}")
                    arguments = {"content": lines[-1], "path": "memory/2026-11-21.md"}
                    asked.append(wire.ask("tools/call", {"name": "memory_store", "arguments": arguments}))
                lines.append(f"- hand {round_}")
                subprocess.run(["sh", "-c", 'printf "%s\\n" "$1" >> "$2"', "sh", lines[-1], str(file)], check=True)
                for wire, identifier in zip(wires, asked, strict=True):
                    assert not wire.answer(identifier)["result"].get("isError")

            def settled() -> bool:
                here, there = file.read_text(), (bob.project / "memory/2026-11-21.md").read_text()
                return here == there and all(here.count(f"{line}\n") >= 1 for line in lines)

            wait_until("every line on both disks", settled)
            text = file.read_text()
            assert sorted(text.split("\n")[:-1]) == sorted(lines), text
        finally:
            for wire in wires:
                wire.__exit__(None, None, None)
