"""What can happen to a memory that lives on several machines, as steps that can be drawn at random and carried out.

Every text that is written has a mark of its own, so that it can be looked for at the end. A mark is owed if an agent was told that it is
kept, or if a person wrote it to a file and did not overwrite or delete that very text later; what a person throws away before anybody
else saw it is gone, as it should be.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hypothesis import strategies as st
from tests.chaos.fleet import Fleet, Place

PATHS: Final = ["MEMORY.md", "memory/2026-11-21.md", "memory/notes.md", "memory/deep/er/plan.md", "memory/Notes.md"]
MARK: Final = re.compile(r"mark-\d+-end")
DAY_S: Final = 86_400
JUMPS_S: Final = [-2 * DAY_S, -3600, -5, 0, 3600, 2 * DAY_S]
"""By how much a clock can be off, as after a wrong battery, a wrong zone, and a network time that came late."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: `what` to machine number `who`, with the file `path`; `other` and `amount` as it needs."""

    what: str
    who: int = 0
    path: str = PATHS[0]
    other: str = PATHS[0]
    amount: int = 0


@dataclass(slots=True)
class Ledger:
    """Which marks have to be found at the end: `owed` were kept as an agent was told, `persons` wrote and did not throw away."""

    owed: set[str] = field(default_factory=set)
    persons: set[str] = field(default_factory=set)
    count: int = 0

    def new(self) -> str:
        """A mark that nobody has used."""
        self.count += 1
        return f"mark-{self.count}-end"

    def thrown_away(self, text: str, *, but: str = "") -> None:
        """A person has overwritten or deleted this."""
        for mark in set(MARK.findall(text)) - set(MARK.findall(but)):
            self.persons.discard(mark)


def steps(machines: int, *, least: int = 4, most: int = 14) -> st.SearchStrategy[list[Step]]:
    """Schedules for so many machines, of `least` to `most` steps.

    Edits and stores are the most frequent, since the rest only matters in between them.
    """
    who, path, amount = st.integers(0, machines - 1), st.sampled_from(PATHS), st.integers(0, 5)
    kinds = [
        *["append", "prepend", "edit", "store", "store", "pause"] * 2,
        *["replace", "save-by-rename", "store-replace", "delete", "rename", "checkout", "clock"],
        *[
            "jump",
            "jump-daemon",
            "cut",
            "mend",
            "kill-proxy",
            "end-proxy",
            "start-proxy",
            "kill-daemon",
            "start-daemon",
        ],
    ]
    step = st.builds(Step, st.sampled_from(kinds), who, path, path, amount)
    return st.lists(step, min_size=least, max_size=most)


def perform(step: Step, fleet: Fleet, ledger: Ledger) -> None:
    """Carry a step out. Where it makes no sense (a file that is not there) nothing happens."""
    place = fleet.places[step.who]
    match step.what:
        case "pause":
            time.sleep(0.1 * step.amount)
        case "jump" if place.clock:
            place.clock.jump(JUMPS_S[step.amount])
        case "jump-daemon" if fleet.clock:
            fleet.clock.jump(JUMPS_S[step.amount])
        case "cut":
            place.cable.cut()
        case "mend":
            place.cable.mend()
        case "kill-proxy":
            place.kill()
        case "end-proxy":
            place.end()
        case "start-proxy":
            place.start()
        case "kill-daemon":
            fleet.kill_daemon()
        case "start-daemon":
            fleet.start_daemon()
        case "store" | "store-replace":
            mark = ledger.new()
            if place.store(step.path, f"- told {mark}", "append" if step.what == "store" else "replace"):
                ledger.owed.add(mark)
        case _:
            _by_hand(step, place, ledger)


def _by_hand(step: Step, place: Place, ledger: Ledger) -> None:
    file = place.machine.project / step.path
    before = _text(file)
    match step.what:
        case "append":
            _save(file, before + f"- noted {_mark(ledger)}\n", before, ledger)
        case "prepend":
            _save(file, f"- first {_mark(ledger)}\n" + before, before, ledger)
        case "edit" if before:
            lines = before.splitlines(keepends=True)
            lines.insert(step.amount % len(lines), f"- between {_mark(ledger)}\n")
            _save(file, "".join(lines), before, ledger)
        case "replace":
            _save(file, f"# Anew\n\n- only {_mark(ledger)}\n", before, ledger)
        case "save-by-rename":
            _save(file, before + f"- saved {_mark(ledger)}\n", before, ledger, by_rename=True)
        case "delete" if before:
            ledger.thrown_away(before)
            file.unlink(missing_ok=True)
        case "rename" if before and step.other != step.path:
            target = place.machine.project / step.other
            ledger.thrown_away(_text(target))
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                file.rename(target)
        case "checkout":
            for number in range(10 * step.amount):
                other = place.machine.project / f"memory/many/{number}.md"
                _save(other, f"- many {_mark(ledger)}\n", _text(other), ledger)
        case "clock" if before:
            then = time.time() + (step.amount - 2) * 30 * DAY_S
            with suppress(FileNotFoundError):
                os.utime(file, (then, then))


def _mark(ledger: Ledger) -> str:
    mark = ledger.new()
    ledger.persons.add(mark)
    return mark


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return ""


def _save(file: Path, text: str, before: str, ledger: Ledger, *, by_rename: bool = False) -> None:
    ledger.thrown_away(before, but=text)
    file.parent.mkdir(parents=True, exist_ok=True)
    if by_rename:
        part = file.with_name(f".{file.name}.swp")
        part.write_bytes(text.encode())
        part.replace(file)
    else:
        file.write_bytes(text.encode())
