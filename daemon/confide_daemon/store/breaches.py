"""What was ever found wrong in a space's database (`store.health`), as SQL: written down when it is found, and again when it is healed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from confide_daemon.store.rows import Breach

Rows = Callable[[str, Sequence[Any]], list[Any]]

_KEPT: Final = 200


def note(rows: Rows, breach: Breach) -> None:
    """Writes a breach down, once until it is healed; the largest count of it stays."""
    sql = """INSERT INTO breach (what, rows, found_at, healed_at) VALUES (?, ?, ?, ?)
             ON CONFLICT (what) WHERE healed_at IS NULL DO UPDATE SET rows = max(rows, excluded.rows)"""
    rows(sql, (breach.what, breach.rows, breach.found_at, breach.healed_at))
    rows("DELETE FROM breach WHERE id <= (SELECT max(id) FROM breach) - ? AND healed_at IS NOT NULL", (_KEPT,))


def settle(rows: Rows, what: Sequence[str], *, now: float) -> None:
    """These are healed."""
    sql = "UPDATE breach SET healed_at = ? WHERE healed_at IS NULL AND what IN (SELECT value FROM json_each(?))"
    rows(sql, (now, json.dumps(list(what))))


def noted(rows: Rows, *, limit: int) -> list[Breach]:
    """What was ever found, the newest first."""
    sql = "SELECT what, rows, found_at, healed_at FROM breach ORDER BY id DESC LIMIT ?"
    return [Breach(*row) for row in rows(sql, (limit,))]
