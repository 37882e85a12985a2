"""What was ever found wrong in a space's database, and what its upkeep remembers of itself, as SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from confide_daemon.store.database import Table
from confide_daemon.store.rows import Breach

_KEPT: Final = 200


class BreachTable(Table):
    """Breaches (`integrity`): written down when they are found, and again when they are healed."""

    def note(self, breach: Breach) -> None:
        """Writes a breach down, once until it is healed; the largest count of it stays."""
        sql = """INSERT INTO breach (what, rows, found_at, healed_at) VALUES (?, ?, ?, ?)
                 ON CONFLICT (what) WHERE healed_at IS NULL DO UPDATE SET rows = max(rows, excluded.rows)"""
        self._rows(sql, (breach.what, breach.rows, breach.found_at, breach.healed_at))
        sql = "DELETE FROM breach WHERE id <= (SELECT max(id) FROM breach) - ? AND healed_at IS NOT NULL"
        self._rows(sql, (_KEPT,))

    def settle(self, what: Sequence[str], *, now: float) -> None:
        """These are healed."""
        sql = "UPDATE breach SET healed_at = ? WHERE healed_at IS NULL AND what IN (SELECT value FROM json_each(?))"
        self._rows(sql, (now, json.dumps(list(what))))

    def listed(self, *, limit: int) -> list[Breach]:
        """What was ever found, the newest first."""
        sql = "SELECT what, rows, found_at, healed_at FROM breach ORDER BY id DESC LIMIT ?"
        return [Breach(*row) for row in self._rows(sql, (limit,))]


class MarkTable(Table):
    """Moments and flags of the upkeep, by their names."""

    def find(self, name: str) -> float:
        """What was set; 0 if it never was."""
        return float(self._one("SELECT value FROM mark WHERE name = ?", (name,)) or 0.0)

    def put(self, name: str, value: float) -> None:
        """Sets it."""
        self._rows("INSERT OR REPLACE INTO mark (name, value) VALUES (?, ?)", (name, value))
