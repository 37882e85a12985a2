"""The proxy dies, or the disk is full, at each step of a sync: nothing is lost, nothing is there twice, and the next sync mends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.deadline import DEADLINE_S
from tests.support.programs.pair import pair
from tests.support.programs.processes import Machine

ROOT = Path(__file__).parents[4]
MOST_STEPS = 120
STRIDE = 1 if os.environ.get("CONFIDE_EVERY_FAULT") else 30
"""Every 30th step in the suite, each kind of fault at others; all of them (a minute) where that variable is set."""


class Syncs:
    """Syncs of one machine, each in a process of its own."""

    def __init__(self, machine: Machine) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kills.faulty_sync", str(machine.home), str(machine.project)],
            cwd=ROOT,
            env=machine.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, kind: str, at: int = 0) -> str:
        """How it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {at}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=DEADLINE_S)


def memory(machine: Machine) -> dict[str, str]:
    """Every memory file's text."""
    files = (machine.project / "memory").rglob("*.md")
    return {file.relative_to(machine.project).as_posix(): file.read_text() for file in files}


def parts(machine: Machine) -> list[str]:
    """What is left of writes that were not finished."""
    return [name for _, _, names in os.walk(machine.project) for name in names if "confide-part" in name]


FIRST = {"kill": 1, "full": 2}
"""The step with which each kind of fault begins."""


def test_each_step(tmp_path: Path) -> None:
    """Ann receives a new file, a changed one and a deletion, and sends an edit of her own and a new file, while her disk fails."""
    with pair(tmp_path) as (_daemon, ann, bob), Syncs(ann) as ours, Syncs(bob) as theirs:
        ann.write("memory/log.md", "- start\n")
        ann.write("memory/changed.md", "revision of nobody\n")
        assert ours.run("whole").startswith("done")
        assert theirs.run("whole").startswith("done")
        tried: list[str] = []
        for kind, at in FIRST.items():
            faults = 0
            while fails(ann, bob, ours, theirs, kind, at, tried):
                faults += 1
                at += STRIDE
                assert at < MOST_STEPS
            assert faults * STRIDE > 20, kind


def fails(ann: Machine, bob: Machine, ours: Syncs, theirs: Syncs, kind: str, at: int, tried: list[str]) -> bool:
    """Whether Ann's disk, or her process, fails before her sync is done; what is there then, and after the next sync, is whole."""
    name = f"{kind}-{at}"
    before = memory(ann)
    bob.write("memory/changed.md", f"revision {name}\n")
    bob.write(f"memory/deep/{name}/new.md", f"new {name}\n")
    if tried:
        (bob.project / f"memory/deep/{tried[-1]}/new.md").unlink()
    tried.append(name)
    assert theirs.run("whole").startswith("done")
    with (ann.project / "memory/log.md").open("a") as file:
        file.write(f"- by hand {name}\n")
    ann.write(f"memory/own-{name}.md", f"own {name}\n")
    ended = ours.run(kind, at)
    now = memory(ann)
    whole = {*before.values(), f"revision {name}\n", f"new {name}\n", f"own {name}\n"}
    for path, text in now.items():
        assert text in whole or path == "memory/log.md", f"{path} after {name}: {text!r}"
    assert now["memory/log.md"].count("by hand") == len(tried)
    again = ours.run("whole")
    assert again.startswith("done"), again
    assert theirs.run("whole").startswith("done")
    expected = {"memory/log.md": "- start\n" + "".join(f"- by hand {one}\n" for one in tried)}
    expected |= {"memory/changed.md": f"revision {name}\n", f"memory/deep/{name}/new.md": f"new {name}\n"}
    expected |= {f"memory/own-{one}.md": f"own {one}\n" for one in tried}
    assert memory(ann) == expected, f"after {name}"
    assert memory(bob) == expected, f"after {name}"
    assert parts(ann) == []
    if ended.startswith("done") and int(ended.split()[1]) < at:
        return False
    assert kind != "kill" or ended == "killed", ended
    return True
