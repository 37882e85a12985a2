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
        deleted = store.deleted_notes(projects, limit=MAX_DELETED)
        named = [row for row in deleted if naming.is_named(row.path, identity) or _has_id(row, identity)]
        others = [row for row in deleted if row not in named]
        for document in (*named, *others[:MAX_READ]):
            if _is(store, document, identity):
                return document.project, document.path
    raise NotFoundError("there is no note of that id", hint="memory_search and memory_list show ids")


def _has_id(row: DocumentRow, identity: str) -> bool:
    return naming.id_of_path(row.project, row.path) == identity


def _is(store: Store, row: DocumentRow, identity: str) -> bool:
    last = store.revision(row.id, row.revision - 1)
    found = note.read(row.project, row.path, last.text) if last is not None and last.text is not None else None
    return found is not None and identity in (found.id, found.path_id)
