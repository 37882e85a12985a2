"""SQL for the openings ("lives") of a database. They reveal that the database was restored from an
older copy.
"""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import os
from dataclasses import dataclass

from confide_daemon.store.database import Table

KEPT = 1000
"""Openings that are kept. Changes confirmed in older ones count as known."""
NUMBERS = 1_000_000
"""Upper limit for the revisions of a document between two restores: after a restore, numbers start
above all that may have been given in the lost time.
"""
_COLUMNS = "number, id, change, last_at, restores, back_to"


@dataclass(frozen=True, slots=True)
class Life:
    """An opening of the database, from its start to the next opening.

    Attributes:
        id: 16 random bytes.
        change: the number of changes made before it.
        last_at: when the last change before it was made, in seconds since 1970; its own start if
            there was none.
        restores: how many restores had been detected.
        back_to: when the last change that survived the latest restore was made, in seconds since
            1970; None: there was no restore.
    """

    number: int
    id: bytes
    change: int
    last_at: float
    restores: int
    back_to: float | None


class LifeTable(Table):
    """The openings of the database, and the key that encrypts receipts. A device gets a receipt for
    the changes made so far, and shows it later to reveal that the database was restored from an
    older copy.
    """

    def is_empty(self) -> bool:
        """Return True if nothing was ever stored or sealed in this database."""
        return not self._one("SELECT EXISTS (SELECT 1 FROM document) OR EXISTS (SELECT 1 FROM sealed_record)")

    def begin(self, *, now: float) -> None:
        """Record that the database was opened for writing now."""
        if not self._rows("SELECT 1 FROM receipt_key"):
            self._rows("INSERT INTO receipt_key (key) VALUES (?)", (os.urandom(32),))
        newest = self.newest()
        last = self._rows("SELECT created_at FROM revision ORDER BY change DESC LIMIT 1")
        self._rows(
            "INSERT INTO life (id, change, last_at, restores, back_to) VALUES (?, ?, ?, ?, ?)",
            (
                os.urandom(16),
                self.changes(),
                last[0][0] if last else now,
                newest.restores if newest else 0,
                newest.back_to if newest else None,
            ),
        )
        self._rows("DELETE FROM life WHERE number <= (SELECT max(number) FROM life) - ?", (KEPT,))

    def key(self) -> bytes | None:
        """Return the key of the receipts (32 bytes), or None if no opening could be recorded yet,
        as on a full disk.
        """
        rows = self._rows("SELECT key FROM receipt_key")
        return bytes(rows[0][0]) if rows else None

    def newest(self) -> Life | None:
        """Return the current opening, or None if none could be recorded yet."""
        return self._find("ORDER BY number DESC")

    def oldest(self) -> Life | None:
        """Return the oldest opening that is still recorded, or None."""
        return self._find("ORDER BY number")

    def of(self, identity: bytes) -> Life | None:
        """Return the opening with this id, or None if it is not recorded here."""
        return self._find("WHERE id = ?", identity)

    def life_from(self, number: int) -> Life | None:
        """Return the opening with this number, or the next one that is still recorded; None if
        there is none.
        """
        return self._find("WHERE number >= ? ORDER BY number", number)

    def following(self, life: Life) -> Life | None:
        """Return the opening after `life`, or None if `life` is the current one."""
        return self._find("WHERE number > ? ORDER BY number", life.number)

    def put_back(self, life: Life, *, restores: int, to: float) -> None:
        """Record in an opening that the database was restored. `restores`: the number of restores
        so far; `to`: when the last surviving change was made, in seconds since 1970.
        """
        self._rows("UPDATE life SET restores = ?, back_to = ? WHERE number = ?", (restores, to, life.number))

    def changes(self) -> int:
        """Return how many revisions and sealed records were ever written. The number never falls."""
        sql = "SELECT coalesce(sum(seq), 0) FROM sqlite_sequence WHERE name IN ('revision', 'sealed_record')"
        return int(self._rows(sql)[0][0])

    def _find(self, where: str, *values: bytes | int) -> Life | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM life {where} LIMIT 1", values)
        return Life(*rows[0]) if rows else None
