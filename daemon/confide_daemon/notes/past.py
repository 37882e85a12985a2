"""Where a note is or was: the rows of notes are of living ones, so those that were deleted are known again by their files."""

from __future__ import annotations

from confide_daemon.errors import NotFoundError
from confide_daemon.notes import naming, note
from confide_daemon.store import DocumentRow, Store

MAX_DELETED = 10_000
# Of notes whose file names tell nothing, so many texts are read.
MAX_READ = 200


def place(store: Store, identity: str, projects: frozenset[str] | None) -> tuple[str, str]:
    """(project, path) of a note of these projects (None: of any), living or deleted.

    Raises:
        NotFoundError: there is none there, or it was deleted too long ago.
    """
    with store.reading():
        row = store.note(identity, projects)
        if row is not None:
            return row.project, row.path
        left = MAX_READ
        # The last one first: a file that was renamed is deleted under its old name before.
        for document in store.deleted_notes(projects, limit=MAX_DELETED):
            is_named = naming.is_named(document.path, identity)
            is_named = is_named or naming.id_of_path(document.project, document.path) == identity
            left -= not is_named
            if (is_named or left >= 0) and _is(store, document, identity):
                return document.project, document.path
    raise NotFoundError("there is no note of that id", hint="memory_search and memory_list show ids")


def _is(store: Store, row: DocumentRow, identity: str) -> bool:
    last = store.revision(row.id, row.revision - 1)
    found = note.read(row.project, row.path, last.text) if last is not None and last.text is not None else None
    return found is not None and identity in (found.id, found.path_id)
