"""kill -9 at every kind of step while models change, fail and come back: searches, stores and generations stay whole.

`CONFIDE_EVERY_KILL=200` (or another number) is the long form; `CONFIDE_KILL_SEED` chooses other points.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

ROOT = Path(__file__).parents[3]
WRITER = ROOT / "tests" / "support" / "kills" / "generation_writer.py"
POINTS = int(os.environ.get("CONFIDE_EVERY_KILL", "2"))
SEED = int(os.environ.get("CONFIDE_KILL_SEED", "5"))
# One configured model, or one behind another: changes, outages, and changes that are taken back.
ORDERS = ([0, 1], [1, 0], [0], [1])
CALLS_AT_ONCE = 2  # what they brought may be lost when the process dies before it is stored


class Writer:
    """The process that forks the others."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "stderr").open("w+")
        self._out = folder / "out"
        self._process = subprocess.Popen(
            [sys.executable, str(WRITER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )

    def run(self, **task: Any) -> tuple[int, list[dict[str, Any]]]:
        """(exit code, what it told)"""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._out.write_text("")
        self._process.stdin.write(json.dumps({"out": str(self._out), "known": None, **task}) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return code, [json.loads(line) for line in self._out.read_text().splitlines()]

    def errors(self) -> str:
        self._log.seek(0)
        return self._log.read()[-6000:]

    def close(self) -> None:
        self._process.communicate(timeout=DEADLINE_S)
        self._log.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(60 + 10 * POINTS)
def test_killed_at_any_step_no_search_mixes_models_and_nothing_is_embedded_again(
    writer: Writer, tmp_path: Path
) -> None:
    """The same database survives one kill after the other; what a call brought is embedded again only if it could not be stored."""
    chance = random.Random(SEED)
    common = {"database": str(tmp_path / "s.db"), "key": os.urandom(32).hex()}
    code, told = writer.run(**common, seed=0, order=[0, 1], crash_at=0)
    assert code == 0, writer.errors()
    steps = told[-1]["steps"]
    known: dict[str, list[str | None]] = {}
    done: dict[str, set[str]] = defaultdict(set)
    lost: dict[str, set[str]] = defaultdict(set)
    killed = swaps = again = embedded = 0

    def note(told: list[dict[str, Any]]) -> None:
        for entry in told:
            if entry["event"] == "storing":
                known.setdefault(entry["path"], [None]).append(entry["text"])
            elif entry["event"] == "stored":
                known[entry["path"]] = [entry["text"]]

    def count(told: list[dict[str, Any]], *, was_killed: bool) -> None:
        """No text is embedded again but those of the last calls of a process that was killed, and those once."""
        nonlocal again, embedded
        mine: dict[str, list[list[str]]] = defaultdict(list)
        for entry in told:
            if entry["event"] == "embedded":
                model, texts = entry["model"], set(entry["texts"])
                twice = done[model] & texts
                assert twice <= lost[model], f"embedded again: {sorted(twice - lost[model])}"
                lost[model] -= twice
                done[model] |= texts
                again += len(twice)
                embedded += len(entry["texts"])
                mine[model].append(entry["texts"])
        for model, calls in mine.items() if was_killed else ():
            lost[model] |= {text for call in calls[-CALLS_AT_ONCE:] for text in call}

    note(told)
    count(told, was_killed=False)
    for point in range(1, 2 * POINTS + 10):
        if killed == POINTS:
            break
        order = chance.choice(ORDERS)
        code, told = writer.run(**common, seed=point, order=order, crash_at=chance.randint(1, steps))
        assert code in (0, -signal.SIGKILL), writer.errors()
        killed += code != 0
        note(told)
        swaps += sum(entry["event"] == "swapped" for entry in told)
        count(told, was_killed=code != 0)
        order = chance.choice(ORDERS)
        if killed == POINTS and not swaps:
            order = ORDERS[1]  # another model than the first one: it is sure to come in
        code, told = writer.run(**common, seed=point, order=order, crash_at=0, known=known)
        assert code == 0, writer.errors()
        assert told[-1]["event"] == "done"
        count(told, was_killed=False)
        swaps += sum(entry["event"] == "swapped" for entry in told)
    print(f"{killed} kills, {swaps} swaps, {embedded} texts embedded, {again} of them again (seed {SEED})")
    assert killed == POINTS
    assert swaps
