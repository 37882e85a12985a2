"""Reads a document, at its newest revision or an older one, and knows names like one that is not there."""

from __future__ import annotations

import difflib

from confide_daemon.documents import source_of
from confide_daemon.errors import DamagedError, NotFoundError
from confide_daemon.results import DocumentText
from confide_daemon.search import iso
from confide_daemon.store import Store
from confide_daemon.writes import LOST_HINT

NEAR_NAMES = 5


def read_document(store: Store, project: str, path: str, revision: int | None) -> DocumentText:
    """One revision of a document. Raises NotFoundError."""
    with store.reading():
        row = store.document(project, path)
        if row is None or (row.deleted and revision is None):
            raise NotFoundError("no such document", hint=near_names(store, project, path))
        found = store.revision(row.id, row.revision if revision is None else revision)
    if found is None and (revision is None or revision == row.revision):
        raise DamagedError("the newest text of the document is lost", hint=LOST_HINT)
    if found is None:
        raise NotFoundError(f"the document has no revision {revision}", hint=f"its newest is {row.revision}")
    if found.text is None:
        raise NotFoundError(f"revision {found.number} deleted the document", hint="ask for the one before")
    updated_at = iso(found.created_at)
    return DocumentText(row.project, row.path, found.text, found.number, found.hash, found.author, updated_at, row.id)


def newest_text(store: Store, project: str, path: str) -> str | None:
    """The text that a document has now; None where there is none, and no names like it, which are a walk over all."""
    row = store.document(project, path)
    return None if row is None or row.deleted else read_document(store, project, path, None).text


def near_names(store: Store, project: str, path: str) -> str | None:
    """A hint with the paths most like the one asked for, of its source: whoever asks may reach no other."""
    present = [row.path for row in store.documents(frozenset((project,))) if not row.deleted]
    present = [name for name in present if source_of(name) == source_of(path)]
    same_name = [name for name in present if name.rsplit("/", 1)[-1] == path.rsplit("/", 1)[-1]]
    near = list(dict.fromkeys(same_name + difflib.get_close_matches(path, present, NEAR_NAMES, 0.5)))[:NEAR_NAMES]
    return f"did you mean {', '.join(near)}?" if near else None
