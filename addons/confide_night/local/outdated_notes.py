"""The part of the morning's report about notes that are no longer true of the project's files.

The daemon has neither these files nor the key of the hashes in the notes, and at night the device
may be off. So the device compares when the report is read, with the files as they are then. The
notes stay unchanged until a user confirms, corrects or deletes them.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

from confide_crypto.errors import printable
from confide_proxy.freshness.note_ties import TieState
from confide_proxy.freshness.tied_notes import TiedNotes

MOST_NAMED: Final = 5
WITHIN_S: Final = 5.0
"""Seconds for the comparison; notes that are not reached are not counted."""


def outdated_lines(notes: TiedNotes) -> list[str]:
    """Return a line with the number of outdated notes, and one for each of the first of them; no
    lines if there are none. Notes about missing files come before those about changed ones. Blocks.
    """
    until, is_whole = monotonic() + WITHIN_S, True
    found = []
    for path, verdict in notes.all():
        if verdict.state in (TieState.CHANGED, TieState.GONE):
            found.append((path, verdict))
        if monotonic() > until:
            is_whole = False
            break
    if not found:
        return []
    count = f"{'' if is_whole else 'at least '}{len(found)}"
    ways = "confide fresh, edit or rm PATH, or let an agent use memory_update; all: confide stale"
    head = f"Notes of this project about code that has changed or no longer exists: {count} ({ways})."
    named = sorted(found, key=lambda each: -each[1].state.value)[:MOST_NAMED]
    return [head, *(printable(f"{path}: {verdict.mark}") for path, verdict in named)]
