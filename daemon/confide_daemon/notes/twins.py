"""The note that is the same memory as one that comes: of one text, and with nothing in its title or entity that tells them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confide_crypto.errors import ConfideError
from confide_daemon.notes.note_edit import Draft, united
from confide_daemon.store.rows import NoteRow
from confide_daemon.store.space_store import Store
from confide_memory.classes import lowest
from confide_memory.note import digest_of


@dataclass(frozen=True, slots=True)
class Twin:
    """A note that is the same memory as a draft; `change` gives it what it lacks of that, None: nothing."""

    row: NoteRow
    change: Callable[[str], str] | None


def find_twin(store: Store, project: str, draft: Draft, *, by: str) -> Twin | None:
    """The note of the draft's place that says the same, unless it cannot take what the draft says beside that.

    `by`: the class of who writes. Words of a lower class would take the note's own away, so there it stays two.
    """
    for row in store.notes.twins(project, draft.task_id, digest_of(draft.body)):
        if not draft.is_said_by(row.title, row.entity):
            continue
        revision = store.documents.revision(row.document, row.revision)
        change = united(draft)
        try:
            text = None if revision is None else revision.text
            is_whole = text is None or change(text) == text
        except ConfideError:
            continue
        if is_whole or lowest((by, row.class_)) == row.class_:
            return Twin(row, None if is_whole else change)
    return None
