"""What must hold between the pieces and what is derived from them, and how a breach is put right, as SQL."""

# ruff: noqa: S608 - only table names with a number of our own are put into SQL; every value is a parameter

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.store import generations, keyword
from confide_daemon.store.protocol import Healed

Rows = Callable[[str, Sequence[Any]], list[Any]]


def heal(rows: Rows) -> Healed:
    """Checks the derived rows against the pieces, and puts them right."""
    missing = rows("SELECT id FROM chunk EXCEPT SELECT id FROM keyword_docsize", ())
    # Negative row ids are the background rows of the schema, which belong to no piece.
    surplus = rows("SELECT id FROM keyword_docsize WHERE id > 0 EXCEPT SELECT id FROM chunk", ())
    keyword.remove(rows, [piece for (piece,) in surplus])
    for (piece,) in missing:
        sql = "SELECT d.path, c.heading, c.text FROM chunk c JOIN document d ON d.id = c.document WHERE c.id = ?"
        for path, heading, text in rows(sql, (piece,)):
            keyword.add(rows, piece, path, heading, text)
    orphans = 0
    for generation in generations.listed(rows):
        lost = rows(f"SELECT chunk FROM vector_{generation.id} EXCEPT SELECT id FROM chunk", ())
        for (piece,) in lost:
            rows(f"DELETE FROM vector_{generation.id} WHERE chunk = ?", (piece,))
        orphans += len(lost)
    return Healed(len(missing) + len(surplus), orphans)
