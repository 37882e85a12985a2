"""One connection to the database of a space: its transactions, its reads, and what it remembers of one state. It knows no table."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import apsw

from confide_daemon.errors import DamagedError
from confide_daemon.store.connection import (
    check_room_for_derived,
    close,
    connect,
    storage_errors,
    transaction,
)

T = TypeVar("T")

# Parts that can turn out to be unreadable.
KEYWORDS: Final = "keywords"
VECTORS: Final = "vectors"
PAGES: Final = "pages"  # somewhere


class Damage:
    """What of a space's database is unreadable, as its connections tell one another so that searches go around it; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: frozenset[str] = frozenset()
        self._listener: Callable[[], None] | None = None

    @property
    def parts(self) -> frozenset[str]:
        return self._parts

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Calls back, in whatever thread meets it, when something new is found."""
        self._listener = listener

    def note(self, part: str) -> None:
        with self._lock:
            if part in self._parts:
                return
            self._parts |= {part}
        if self._listener is not None:
            self._listener()

    def clear(self) -> None:
        with self._lock:
            self._parts = frozenset()

    def around(self, read: Callable[[], T]) -> T:
        """What `read` gives, tried again as long as it meets legs that were not known to be unreadable: it leaves those out then.

        A transaction that has met a damaged page cannot read anything more, so the whole reading begins anew.
        """
        while True:
            known = self._parts
            try:
                return read()
            except DamagedError:
                if not (self._parts - known) & {KEYWORDS, VECTORS}:
                    raise

    def warnings(self) -> list[str]:
        """What a search has to say about it."""
        said = {
            KEYWORDS: "the keyword index is damaged and being rebuilt; found by meaning alone",
            VECTORS: "stored vectors are damaged and being rebuilt; found by keywords alone",
        }
        return [said[part] for part in sorted(self._parts) if part in said]


Rows = Callable[[str, Sequence[Any]], list[Any]]
"""Runs SQL with its values: the rows that it gives (`Database.rows`)."""

AMONG = "IN (SELECT value FROM json_each(?))"
"""In SQL: one of the values of a list, which is given as JSON."""


def within(column: str, names: Iterable[str] | None) -> tuple[str, list[Any]]:
    """A further condition in SQL, that the column is one of the names (None: whatever), with the value it takes."""
    return ("", []) if names is None else (f" AND {column} {AMONG}", [json.dumps(sorted(names))])


# Filters differ with every caller and day.
MOST_REMEMBERED = 64


class Remembered:
    """What was counted or listed in one state of the database, for the searches that follow while nobody changes it."""

    def __init__(self) -> None:
        self._kept: dict[object, object] = {}
        self._version: object = None
        self._is_in_view = False

    @contextmanager
    def view(self, connection: apsw.Connection) -> Iterator[None]:
        """Around the reads of a transaction that has begun; what other connections have committed since the last one is noticed."""
        version = connection.execute("PRAGMA data_version").fetchall()[0][0]
        if version != self._version:
            self._kept.clear()
            self._version = version
        self._is_in_view = True
        try:
            yield
        finally:
            self._is_in_view = False

    def forget(self) -> None:
        """This connection itself is about to write, which the version does not tell."""
        self._kept.clear()

    def get(self, key: object, compute: Callable[[], T]) -> T:
        """What was computed under the key in this state, else what is computed now; outside of a view it is always computed."""
        if not self._is_in_view:
            return compute()
        if key not in self._kept:
            if len(self._kept) >= MOST_REMEMBERED:
                self._kept.clear()
            self._kept[key] = compute()
        return cast("T", self._kept[key])


class Database:
    """Used by one thread at a time; a space has one that writes and a few that read. Every method may raise StorageError.

    Attributes:
        connection: SQLite's own; another one after the file was replaced.
        key: what the file is encrypted with now; empty once this is closed.
        damage: what of it cannot be read, shared by all connections of the space.
        remembered: counts and lists that hold until somebody writes.
    """

    def __init__(self, connection: apsw.Connection, *, path: Path, key: bytes, damage: Damage | None = None) -> None:
        self.connection = connection
        self.path = path
        self.key = key
        self.damage = damage or Damage()
        self.remembered = Remembered()
        self._after_commit: list[Callable[[], None]] = []

    def close(self) -> None:
        """Closes the connection and forgets the key; the last one folds the log into the file."""
        # Whoever refers to this longer, as the thread that closes it does for a moment, has no key of a space that is locked.
        self.key = b""
        with storage_errors("close the database"):
            close(self.connection)

    def interrupt(self) -> None:
        """Makes what runs in it now fail; any thread may call it, also when it is closed."""
        with contextlib.suppress(apsw.ConnectionClosedError):
            self.connection.interrupt()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction for all that is written inside: all or nothing, on disk when it ends."""
        self.remembered.forget()
        self._after_commit.clear()
        with storage_errors("write to the database"), transaction(self.connection):
            yield
        for follow in self._after_commit:
            follow()
        self._after_commit.clear()

    @contextmanager
    def writing_derived(self) -> Iterator[None]:
        """The same for what can be rebuilt: a power cut may undo it, since the log is not forced to the disk for it."""
        self.check_room()
        self.rows("PRAGMA synchronous = NORMAL")
        try:
            with self.writing():
                yield
        finally:
            self.rows("PRAGMA synchronous = FULL")

    def after_commit(self, follow: Callable[[], None]) -> None:
        """Calls it once the transaction that is under way is committed."""
        self._after_commit.append(follow)

    def check_room(self) -> None:
        """Raises StorageError where the disk is too full for what can be rebuilt, before anybody computes or pays for that."""
        check_room_for_derived(self.connection)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One unchanging view for all that is read inside."""
        with storage_errors("read the database"):
            self.connection.execute("BEGIN DEFERRED")
            try:
                with self.remembered.view(self.connection):
                    yield
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def replacing(self, doing: str) -> Iterator[None]:
        """Around what puts another file in the place of this one: the connection is closed before it, and opened anew behind it.

        Also where that fails. No other connection may be open. `doing` is for the error.
        """
        with storage_errors(doing):
            close(self.connection)
            try:
                yield
            finally:
                self.connection = connect(self.path, self.key, writer=True)
                self.remembered.forget()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """What the SQL gives."""
        try:
            with storage_errors("read the database"):
                return self.connection.execute(sql, tuple(values)).fetchall()
        except DamagedError:
            self.damage.note(PAGES)
            raise

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        rows = self.rows(sql, values)
        return rows[0][0] if rows else None

    @contextmanager
    def leg(self, part: str) -> Iterator[None]:
        """Around what one leg of a search reads: tells the other connections when that cannot be read."""
        try:
            yield
        except DamagedError:
            self.damage.note(part)
            raise

    def schema_version(self) -> int:
        """The newest migration that was made."""
        return int(self.one("SELECT max(version) FROM migration") or 0)

    def size_bytes(self) -> int:
        """The size of the database, free pages apart."""
        pages = int(self.one("PRAGMA page_count")) - int(self.one("PRAGMA freelist_count"))
        return pages * int(self.one("PRAGMA page_size"))


class Table:
    """The SQL of one part of the database, over one connection to it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = database.rows
        self._one = database.one
