"""`confide sync --watch`: folders are kept the same with no agent running."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.relay import RecordingRelay
from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDE, Inside, running_daemon, wait_until
from tests.support.programs.watch import Watching, watching

ROOT = Path(__file__).parents[3]


def test_two_machines_without_any_agent(tmp_path: Path) -> None:
    """Files go both ways, edits and deletions too, over a daemon that restarts and a cable that is pulled."""
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        ann, bob = joined(tmp_path, daemon, "ann", "bob", port=relay.port)
        with watching(ann) as here, watching(bob) as there:
            here.until("up")
            there.until("up")
            first = ann.write("memory/a.md", "The heron fishes at dawn.\n")
            wait_until("the file at bob", (bob.project / "memory/a.md").exists)
            (bob.project / "memory/a.md").write_text("The heron fishes at noon.\n")
            wait_until("the edit at ann", lambda: first.read_text() == "The heron fishes at noon.\n")
            daemon.stop()
            here.until("down")
            bob.write("memory/b.md", "The ibis waits.\n")
            daemon.start()
            wait_until("what was written meanwhile", (ann.project / "memory/b.md").exists)
            relay.cut()
            here.until("down")
            first.unlink()
            relay.mend()
            wait_until("the deletion", lambda: not (bob.project / "memory/a.md").exists())
            here.until("removed", path="memory/a.md")
            there.until("removed", path="memory/a.md")


def test_several_folders_in_one_process(tmp_path: Path) -> None:
    """More than one connection takes, two of them clones of one project; each arrives under its own name."""
    with running_daemon(tmp_path) as daemon:
        (machine,) = joined(tmp_path, daemon, "ann")
        folders = [tmp_path / f"work{number}" for number in range(9)]
        for number, folder in enumerate(folders):
            (folder / "memory").mkdir(parents=True)
            name = "clones" if number < 2 else f"work{number}"
            (folder / ".confide.toml").write_text(f'name = "{name}"\n')
            (folder / "memory/a.md").write_text(f"Fact number {number} is about herons.\n")
        for folder in folders[:2]:
            machine.allow("clones", folder)
        (folders[0] / "memory/only0.md").write_text("Only in the first clone.\n")
        with watching(machine, *folders) as watch:
            for number in range(2, 9):
                watch.until("watching", project=f"work{number}")
            wait_until("the file of the other clone", (folders[1] / "memory/only0.md").exists)
            for number in range(2, 9):
                wait_until(
                    f"folder {number}",
                    lambda n=number: (
                        f"Fact number {n}" in machine.run("search", f"fact {n} herons", "-p", str(folders[n]))
                    ),
                    15,
                )


def test_a_project_that_is_denied_does_not_keep_the_others_down(tmp_path: Path) -> None:
    """The machine may reach one of its two projects."""
    with running_daemon(tmp_path) as daemon:
        machine = Inside(tmp_path, "ann")
        other = tmp_path / "private"
        (other / "memory").mkdir(parents=True)
        (other / ".confide.toml").write_text('name = "private"\n')
        (other / "memory/a.md").write_text("The okapi is shy.\n")
        machine.call_project("shared")
        machine.run("join", daemon.invite("ann", "--projects", "shared"), "--json")
        machine.write("memory/a.md", "The heron fishes at dawn.\n")
        with watching(machine, other, machine.project) as watch:
            watch.until("synced", project="shared")


def test_what_no_attempt_mends_ends_it_with_its_code(tmp_path: Path) -> None:
    """A revoked key, a broken configuration, a folder that is none."""
    with running_daemon(tmp_path) as daemon:
        (machine,) = joined(tmp_path, daemon, "ann")
        daemon.run("device", "rm", "ann")
        assert "revoked" in machine.run("watch", code=6)
    assert "not a folder" in machine.run("watch", "/no/such/folder", code=7)
    (machine.home / "proxy.toml").write_text("toolsets = [")
    assert "is not TOML" in machine.run("watch", code=3)


def units() -> dict[str, list[str]]:
    """The command lines of the units that ship in configs/."""
    service = (ROOT / "configs/confide-watch.service").read_text()
    (line,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    plist = plistlib.loads((ROOT / "configs/dev.confide.watch.plist").read_bytes())
    assert plist["RunAtLoad"] is True
    return {"systemd": shlex.split(line.partition("=")[2]), "launchd": plist["ProgramArguments"]}


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_the_units_command_line_works(tmp_path: Path, kind: str) -> None:
    """As it stands in the file, with this machine's paths put in; without a server it starts and keeps a daemon here."""
    machine = Inside(tmp_path, "ann")
    command = units()[kind]
    assert command[0].endswith("/.local/bin/confide")
    folders = [tmp_path / "src" / Path(folder).name for folder in command[3:]]
    for folder in folders:
        (folder / "memory").mkdir(parents=True)
    watch = Watching([CONFIDE, *command[1:3], *map(str, folders), "--json"], machine)
    try:
        watch.until("up")
        (folders[1] / "memory/a.md").write_text("The heron fishes at dawn.\n")
        watch.until("synced", project=folders[1].name)
        assert machine.local_daemon is not None
    finally:
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(DEADLINE_S) == 0
        watch.close()
        machine.stop_local_daemon()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """As `systemd-analyze verify` sees it; its program is put where this machine has one."""
    unit = tmp_path / "confide-watch.service"
    text = (ROOT / "configs/confide-watch.service").read_text()
    unit.write_text(text.replace("%h/.local/bin/confide", CONFIDE))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    complaints = [line for line in done.stderr.splitlines() if "confide-watch.service" in line]
    assert not complaints, complaints
