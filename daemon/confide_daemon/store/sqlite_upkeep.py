"""The part of the SQLite store that its upkeep uses: what is wrong in it, what puts that right, and the room it takes on the disk."""

# ruff: noqa: S608 - only table names with a number of our own are put into SQL; every value is a parameter

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from confide_daemon.errors import StorageError
from confide_daemon.store import breaches, disk, health, mending, rekeying, salvage, space_return
from confide_daemon.store.connection import connect, migrate, storage_errors
from confide_daemon.store.remembered import Remembered
from confide_daemon.store.rows import Breach, Healed


class SqliteUpkeep:
    """Part of `sqlite.SqliteStore`, which has the connection; see `Store`."""

    _db: apsw.Connection
    _path: Path
    _key: bytes
    _remembered: Remembered
    _rekeying: rekeying.Rekeying | None = None

    if TYPE_CHECKING:

        def reading(self) -> AbstractContextManager[None]: ...
        def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]: ...
        def _one(self, sql: str, values: Sequence[Any] = ()) -> Any: ...
        def _remove_pieces(self, pieces: Sequence[int], *, now: float) -> None: ...

    def heal(self) -> Healed:
        """Puts all right that a glance finds."""
        return mending.heal(self._rows, self._drop_pieces)

    def schema_version(self) -> int:
        """The newest migration that was made."""
        return int(self._one("SELECT max(version) FROM migration") or 0)

    def glance(self) -> list[Breach]:
        """What the ids tell, in one view: a generation may go between two looks."""
        with self.reading():
            return health.glance(self._rows)

    def examine(self) -> Iterator[list[Breach]]:
        """Reads everything, in slices, each in a view of its own."""
        slices = health.examine(self._rows)
        while True:
            with self.reading():
                found = next(slices, None)
            if found is None:
                return
            yield found

    def mend(self, what: str, *, limit: int) -> int:
        """Puts some of a breach right."""
        return mending.mend(self._rows, self._drop_pieces, what, limit=limit)

    def _drop_pieces(self, pieces: Sequence[int]) -> None:
        self._remove_pieces(pieces, now=time.time())

    def copy_readable(self) -> int:
        """Copies what can be read into a new file."""
        with storage_errors("rebuild the damaged database"):
            return salvage.copy(self._path, self._key)

    def swap_copy(self) -> None:
        """Goes on with that file."""
        self.abandon_rekeying()
        with storage_errors("rebuild the damaged database"):
            disk.close(self._db)
            try:
                salvage.swap(self._path, self._key)
            finally:
                self._db = connect(self._path, self._key, writer=True)
                self._remembered.forget()
            migrate(self._db, now=time.time())

    @property
    def key(self) -> bytes:
        """What the file is encrypted with now."""
        return self._key

    def begin_rekeying(self, key: bytes) -> Callable[[], None]:
        """Begins to copy the database under another key."""
        self.abandon_rekeying()
        self._rekeying = rekeying.Rekeying(self._db, self._path, key)
        return self._rekeying.sync

    def step_rekeying(self, *, leave: int) -> tuple[int, int]:
        """Copies some pages: how many are left, and of how many."""
        return self._copying().step(leave=leave)

    def finish_rekeying(self) -> None:
        """Copies the rest, and brings the copy to the disk."""
        self._copying().finish()

    def swap_rekeyed(self) -> None:
        """Goes on with the copy."""
        copying = self._copying()
        self._rekeying = None
        with storage_errors("change the key of the database"):
            disk.close(self._db)
            try:
                copying.swap(self._key)
            finally:
                if copying.is_swapped:
                    self._key = copying.key
                else:
                    copying.abandon()
                self._db = connect(self._path, self._key, writer=True)
                self._remembered.forget()

    def abandon_rekeying(self) -> None:
        """Ends a change of the key that is under way; the old one stays."""
        if self._rekeying is not None:
            self._rekeying.abandon()
            self._rekeying = None

    def _copying(self) -> rekeying.Rekeying:
        if self._rekeying is None:
            raise StorageError(
                "cannot change the key of the database: it was rebuilt meanwhile", hint="it is tried again"
            )
        return self._rekeying

    def sample_vectors(self, generation: int, count: int, *, seed: float) -> list[tuple[str, bytes]]:
        """(text, packed vector) of some pieces in a row."""
        last = int(self._one(f"SELECT max(chunk) FROM vector_{generation}") or 0)
        sql = f"""SELECT c.text, v.embedding FROM vector_{generation} v JOIN chunk c ON c.id = v.chunk
                  WHERE v.chunk > ? ORDER BY v.chunk LIMIT ?"""
        return self._rows(sql, (max(0, int(last * seed) - count), count))

    def forget_damaged(self, before: float) -> bool:
        """Removes the damaged file beside this one."""
        return salvage.forget_damaged(self._path, before)

    def note_breach(self, breach: Breach) -> None:
        """Writes down what was found."""
        breaches.note(self._rows, breach)

    def settle_breaches(self, what: Sequence[str], *, now: float) -> None:
        """These are healed."""
        breaches.settle(self._rows, what, now=now)

    def breaches(self, *, limit: int) -> list[Breach]:
        """What was ever found."""
        return breaches.noted(self._rows, limit=limit)

    def give_back(self) -> int:
        """Cuts off some free pages."""
        with storage_errors("shorten the database"):
            return space_return.give_back(self._db)

    def merge_words(self, *, begin: bool) -> bool:
        """A step of merging the full text."""
        with storage_errors("merge the keyword index"):
            return space_return.merge(self._db, begin=begin)

    def is_old(self) -> bool:
        """Whether the file should be rewritten, and can be."""
        with storage_errors("read the database"):
            return space_return.is_old(self._db)

    def compact(self) -> None:
        """Rewrites the file."""
        with storage_errors("rewrite the database"):
            space_return.compact(self._db)

    def fold_log(self) -> bool:
        """Empties the log."""
        with storage_errors("fold the log into the database"):
            return space_return.fold_log(self._db)

    def mark(self, name: str) -> float:
        """A moment or flag."""
        return float(self._one("SELECT value FROM mark WHERE name = ?", (name,)) or 0.0)

    def set_mark(self, name: str, value: float) -> None:
        """Sets it."""
        self._rows("INSERT OR REPLACE INTO mark (name, value) VALUES (?, ?)", (name, value))
