"""Finds the existing note that a new one repeats: it has the same text, and no other title or
entity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confide_crypto.errors import ConfideError
from confide_daemon.notes.note_edit import Draft, merge_draft
from confide_daemon.store.rows import NoteRow
from confide_daemon.store.space_store import Store
from confide_memory.classes import lowest
from confide_memory.note import digest_of


@dataclass(frozen=True, slots=True)
class Twin:
    """An existing note that a draft repeats. `change` adds the draft's fields that the note lacks;
    it has the value None if the note lacks none.
    """

    row: NoteRow
    change: Callable[[str], str] | None


def find_twin(store: Store, project: str, draft: Draft, *, by: str) -> Twin | None:
    """Return the existing note with the draft's text, in the same project and task, or None. A note
    to which the draft's other fields cannot be added does not count.

    `by`: the trust class of the writer. If it is lower than the class of the existing note, adding
    fields would lower that class. Then both notes are kept.
    """
    for row in store.notes.twins(project, draft.task_id, digest_of(draft.body)):
        if not draft.is_said_by(row.title, row.entity):
            continue
        revision = store.documents.revision(row.document, row.revision)
        change = merge_draft(draft)
        try:
            text = None if revision is None else revision.text
            is_whole = text is None or change(text) == text
        except ConfideError:
            continue
        if is_whole or lowest((by, row.class_)) == row.class_:
            return Twin(row, None if is_whole else change)
    return None
