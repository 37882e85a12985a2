"""The report of the counters: totals by event, the notes used most, and those shown often without a
use. Notes whose files were deleted are left out, and their counters deleted.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError
from confide_memory.documents import GLOBAL_PROJECT
from confide_proxy.addons import DoctorFinding
from confide_proxy.hooks import counts, events
from confide_proxy.hooks.server import usage
from confide_proxy.hooks.server.usage import EventTotals, NoteUsage, UsageFile, UsageState
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project_names import ProjectNames

DAYS: Final = usage.TOTAL_DAYS
MOST_LISTED: Final = 10
NAMES: Final = {
    usage.START: "start of a session",
    usage.PROMPT: "a prompt",
    usage.ACTION: "a tool call",
    usage.FAILURE: "a failure",
    usage.SEARCH: "the agent's search",
}
"""The events, in the words of the report."""
_KINDS: Final = {events.BEFORE: usage.ACTION, events.AFTER: usage.FAILURE}


@dataclass(frozen=True, slots=True)
class HookTimes:
    """The time that hooks of one kind made a client wait, in milliseconds.

    Attributes:
        runs: number of hooks on record, including those that gave no answer.
    """

    runs: int
    median: int
    p95: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The report of how useful the memory was on this device.

    Attributes:
        totals: counts by event in the last `DAYS` days.
        waits: waiting times by event; an event without a hook on record is missing.
        notes: all notes with counters, most uses first.
        failures: the number of failed commands for which an agent was shown a note, and the number
            of these that failed again.
    """

    totals: Mapping[str, EventTotals]
    waits: Mapping[str, HookTimes]
    notes: Sequence[NoteUsage]
    failures: tuple[int, int]

    @property
    def used_most(self) -> list[NoteUsage]:
        """The notes that were used most, as many as the report lists."""
        return [note for note in self.notes if note.used or note.read][:MOST_LISTED]

    @property
    def unused(self) -> list[NoteUsage]:
        """The notes that were shown often and never used, as many as the report lists. Hooks show
        them after all others.
        """
        return sorted((note for note in self.notes if note.is_sunk), key=lambda note: -note.unused)[:MOST_LISTED]

    @property
    def total(self) -> EventTotals:
        """The totals of all events."""
        found = EventTotals()
        for each in self.totals.values():
            found.add(each)
        return found

    def to_json(self) -> dict[str, object]:
        """Return the JSON form of the report."""
        by_event = {
            event: {
                "times": one.times,
                "shown": one.notes,
                "used": one.used,
                "ignored": max(0, one.notes - one.used),
                "tokens": one.tokens,
                "waitMs": _wait(self.waits.get(event), one),
            }
            for event, one in self.totals.items()
        }
        met, again = self.failures
        return {
            "days": DAYS,
            "events": by_event,
            "failures": {"met": met, "again": again},
            "notes": [_note_json(note) for note in self.notes],
        }


def make_report(paths: ProxyPaths, now: float | None = None) -> UsageReport:
    """Read the counters, without those of deleted notes. Blocks."""
    now = time.time() if now is None else now
    file = UsageFile(paths.state)
    state = _drop_deleted(file, paths)
    notes = sorted(state.notes.values(), key=lambda note: (-note.used, -note.read, note.path or note.id))
    return UsageReport(
        state.total(DAYS, now),
        _waits(counts.read(os.fspath(paths.state))),
        notes,
        (
            sum(note.shown.get(usage.FAILURE, 0) + note.met for note in notes),
            sum(note.again for note in notes),
        ),
    )


def check(paths: ProxyPaths) -> list[DoctorFinding]:
    """Return the finding of `confide doctor` about use of the memory. Blocks."""
    report = make_report(paths)
    total = report.total
    if not total.notes:
        return [DoctorFinding("usage", "ok", "no note has been shown to an agent yet")]
    unused = f", {len(report.unused)} shown often and not used" if report.unused else ""
    message = f"{total.notes:,} notes shown in {DAYS} days, {total.used:,} used{unused}; about {total.tokens:,} tokens"
    return [DoctorFinding("usage", "ok", f"{message}: confide stats")]


def display_name(note: NoteUsage) -> str:
    """Return the name of a note in the report, with its project."""
    name = " ".join(part for part in (note.id, note.path) if part)
    return f"{name} [{note.project}]"


def wait_of(report: UsageReport, event: str) -> str:
    """Return the typical time that an event costs, as "24 ms"; "" if it is unknown."""
    found = _wait(report.waits.get(event), report.totals[event])
    return f"{found['median']} ms" if found else ""


def _wait(hooks: HookTimes | None, totals: EventTotals) -> dict[str, int] | None:
    if hooks is not None:
        return {"median": hooks.median, "p95": hooks.p95, "runs": hooks.runs}
    if totals.ms and totals.times:  # of searches only the sum is known
        return {"median": totals.ms // totals.times}
    return None


def _waits(ran: Sequence[tuple[float, str, str, int, str]]) -> dict[str, HookTimes]:
    """Return the times of the hooks on record, by event."""
    times: dict[str, list[int]] = {}
    for _, name, _, ms, _ in ran:
        kind = events.KINDS.get(name, "")
        times.setdefault(_KINDS.get(kind, kind), []).append(ms)
    return {
        event: HookTimes(len(all_ms), int(statistics.median(all_ms)), sorted(all_ms)[-(-95 * len(all_ms) // 100) - 1])
        for event, all_ms in times.items()
        if event in usage.EVENTS
    }


def _drop_deleted(file: UsageFile, paths: ProxyPaths) -> UsageState:
    """Return the counters; delete those of notes whose file no longer exists on this device."""
    state = file.refresh()
    roots = _roots(paths)
    gone = [
        (note.project, note.path)
        for note in state.notes.values()
        if note.path and note.project in roots and not any((root / note.path).is_file() for root in roots[note.project])
    ]
    for project, path in gone:
        file.add(lambda state, project=project, path=path: state.forget(project, [path]))  # type: ignore[misc]
    file.flush()
    return file.state


def _roots(paths: ProxyPaths) -> dict[str, list[Path]]:
    """Return the folders of each project that are on this device now."""
    found: dict[str, list[Path]] = {}
    try:
        outcomes = ProjectNames(paths.projects).all()
    except ConfideError:
        outcomes = []
    for each in outcomes:
        found.setdefault(each.name, []).append(Path(each.home))
    found[GLOBAL_PROJECT] = [paths.global_folder]
    # A folder that is not mounted, or was moved, says nothing about its notes.
    return {name: folders for name, folders in found.items() if all(folder.is_dir() for folder in folders)}


def _note_json(note: NoteUsage) -> dict[str, object]:
    return {
        "project": note.project,
        "path": note.path,
        "id": note.id,
        "shown": note.shown,
        "read": note.read,
        "used": note.used,
        "ignored": max(0, note.showings - note.used),
        "failureAgain": note.again,
        "unusedInARow": note.unused,
        "comesLast": note.is_sunk,
    }
