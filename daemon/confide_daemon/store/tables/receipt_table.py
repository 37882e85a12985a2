"""The lives of a database, by which it finds out that it was put back from an older copy."""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import os
from dataclasses import dataclass

from confide_daemon.store.database import Table

KEPT = 1000
"""Lives. What an older one told counts as known."""
NUMBERS = 1_000_000
"""Revisions of a document between two restores, at most: numbers begin anew above all that were given in the time that is lost."""
_COLUMNS = "number, id, change, last_at, restores, back_to"


@dataclass(frozen=True, slots=True)
class Life:
    """One opening of the database.

    Attributes:
        id: 16 random bytes.
        change: how many changes there were when it began.
        last_at: when the last of them was made, in seconds since 1970; where there was none, when it began.
        restores: how often the folder was found to be put back, until then.
        back_to: when the last change was made that was not forgotten then, in seconds since 1970; None: it never was.
    """

    number: int
    id: bytes
    change: int
    last_at: float
    restores: int
    back_to: float | None


class LifeTable(Table):
    """The lives of the database, and the key of its receipts."""

    def is_empty(self) -> bool:
        """Return whether nothing was ever stored or sealed here."""
        return not self._one("SELECT EXISTS (SELECT 1 FROM document) OR EXISTS (SELECT 1 FROM sealed_record)")

    def begin(self, *, now: float) -> None:
        """The database is opened, by its one writer."""
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
        """Of the receipts, 32 bytes; None: no life has begun, as on a full disk."""
        rows = self._rows("SELECT key FROM receipt_key")
        return bytes(rows[0][0]) if rows else None

    def newest(self) -> Life | None:
        """The present one."""
        return self._found("ORDER BY number DESC")

    def oldest(self) -> Life | None:
        """The first that is still known."""
        return self._found("ORDER BY number")

    def of(self, identity: bytes) -> Life | None:
        """The life with this id."""
        return self._found("WHERE id = ?", identity)

    def numbered(self, number: int) -> Life | None:
        """The life with this number, or the next that is still known."""
        return self._found("WHERE number >= ? ORDER BY number", number)

    def following(self, life: Life) -> Life | None:
        """The one behind it; None: it is the present one."""
        return self._found("WHERE number > ? ORDER BY number", life.number)

    def put_back(self, life: Life, *, restores: int, to: float) -> None:
        """Note, in the present life, that the database was put back to a time, in seconds since 1970."""
        self._rows("UPDATE life SET restores = ?, back_to = ? WHERE number = ?", (restores, to, life.number))

    def changes(self) -> int:
        """How many revisions and sealed records there ever were; it only grows."""
        sql = "SELECT coalesce(sum(seq), 0) FROM sqlite_sequence WHERE name IN ('revision', 'sealed_record')"
        return int(self._rows(sql)[0][0])

    def _found(self, where: str, *values: bytes | int) -> Life | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM life {where} LIMIT 1", values)
        return Life(*rows[0]) if rows else None
