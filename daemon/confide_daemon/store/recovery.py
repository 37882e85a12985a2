"""Documents that have lost a part of themselves, brought back from what is left, as SQL."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.documents import text_hash

Rows = Callable[[str, Sequence[Any]], list[Any]]

# Where documents stand whose names are lost. A working copy that has the file sends it again under its own.
RECOVERED = "recovered"


def text_again(rows: Rows, document: int) -> bool:
    """Brings the newest text of a document back from its pieces; False, and its hash is blank, where they do not hold all of it.

    A blank hash is no text's, so that a machine that has the file sends it at its next comparison, as if it had changed.
    """
    ((number, content, author, updated_at),) = rows(
        "SELECT revision, hash, author, updated_at FROM document WHERE id = ?", (document,)
    )
    text = _joined(rows, document, content) if content else None
    if text is None:
        rows("UPDATE document SET hash = '' WHERE id = ?", (document,))
        return False
    packed, size = zlib.compress(text.encode()), len(text.encode())
    rows(
        """INSERT INTO revision (document, number, hash, text, author, created_at, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (document, number) DO UPDATE SET hash = excluded.hash, text = excluded.text, bytes = excluded.bytes""",
        (document, number, content, packed, author, updated_at, size),
    )
    return True


def _joined(rows: Rows, document: int, content: str) -> str | None:
    """The pieces put together, if that is the text: blank lines are in no piece, so only its hash tells."""
    text, line = "", 1
    pieces = rows("SELECT start_line, end_line, text FROM chunk WHERE document = ? ORDER BY position", (document,))
    for start, end, piece in pieces:
        text += "\n" * (start - line) + piece
        line = end
    wholes = [text + end for end in ("\n", "", "\n\n")]
    wholes += [whole.replace("\n", "\r\n") for whole in wholes]
    return next((whole for whole in wholes if text_hash(whole) == content), None)


def name_again(rows: Rows, found: Sequence[int]) -> int:
    """Gives a project to documents without one, and a document to revisions without one (their ids are negative here)."""
    for identity in found:
        if identity > 0:
            rows(
                """INSERT INTO project (id, name) SELECT project, ? || '-' || project FROM document WHERE id = ?
                   ON CONFLICT (id) DO NOTHING""",
                (RECOVERED, identity),
            )
            continue
        rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (RECOVERED,))
        rows(
            """INSERT INTO document (id, project, path, revision, hash, deleted, author, updated_at, source, day)
               SELECT r.document, p.id, ? || '/' || r.document || '.md', r.number, r.hash, r.text IS NULL, r.author, r.created_at,
                      'memory', date(r.created_at, 'unixepoch')
               FROM revision r, project p WHERE p.name = ? AND r.document = ? ORDER BY r.number DESC LIMIT 1""",
            (RECOVERED, RECOVERED, -identity),
        )
    return len(found)
