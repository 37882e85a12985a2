"""The changes that were made under an id, as SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.store.rows import OperationRow

KEPT_S = 90 * 86400.0
"""How long a change is known by its id. A machine that comes back later than this does not send what waits there by itself."""

Rows = Callable[[str, Sequence[Any]], list[Any]]


def find(rows: Rows, identity: str) -> OperationRow | None:
    """What was done under this id, or None."""
    sql = "SELECT id, asked, revision, hash, previous, lines FROM operation WHERE id = ?"
    found = rows(sql, (identity,))
    return OperationRow(*found[0]) if found else None


def add(rows: Rows, row: OperationRow, *, now: float) -> None:
    """Notes what was done, and forgets what is older than `KEPT_S`."""
    rows("DELETE FROM operation WHERE done_at < ?", (now - KEPT_S,))
    sql = "INSERT INTO operation (id, asked, revision, hash, previous, lines, done_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
    rows(sql, (row.id, row.asked, row.revision, row.hash, row.previous, row.lines, now))
