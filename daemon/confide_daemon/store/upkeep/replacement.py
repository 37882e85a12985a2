"""Puts a copy of the database in its place while the space is open: out of a damaged one, under another key, or without remains.

For another key, SQLite's online backup copies from the writer's own connection, so what it commits meanwhile reaches the pages that were
copied before (https://sqlite.org/backup.html); SQLite3 Multiple Ciphers opens and seals each page on its way. No copy ever has a log, each
is private before its first byte, and is on the disk before it takes the name. It can be interrupted at any moment: the name always leads to
a whole database, under the old key or the new one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from confide_crypto import atomic
from confide_daemon.errors import StorageError
from confide_daemon.store.database import Database, create_private, give_key, storage_errors
from confide_daemon.store.migrations import migrate
from confide_daemon.store.upkeep import copies, salvage

COPY: Final = ".rekeying"
STEP_PAGES: Final = 256
"""Copied in one go: 1 MiB, 10 ms of the writer."""
DOING: Final = "change the key of the database"


class Rekeying:
    """One change of a key, from the beginning of its copy to the swap. Used in the writer's thread only."""

    def __init__(self, source: apsw.Connection, path: Path, key: bytes) -> None:
        """Begins the copy, over the writer's connection. Raises StorageError: there is no room for it, or it cannot be written."""
        self.key = key
        self._source = source
        self._path = path
        self._copy = copy_of(path)
        sweep(path)
        pages, page_bytes = (int(source.pragma(name)) for name in ("page_count", "page_size"))
        problem = f"cannot {DOING}: the disk has no room for a second copy of it"
        copies.check_room(path, pages * page_bytes, problem, "; it is tried again by itself")
        create_private(self._copy)
        try:
            with storage_errors(DOING):
                self._target = _opened(self._copy, key)
                self._backup = self._target.backup("main", source, "main")
        except BaseException:
            sweep(path)
            raise

    def step(self, *, leave: int) -> tuple[int, int]:
        """Copies some pages, but for the last ones, 1 at least, which are for `finish`: how many are left, and of how many.

        With its last page SQLite's backup is done, and what is written from then on is not in it. Raises StorageError; call `abandon` then.
        """
        with storage_errors(DOING):
            if (some := min(STEP_PAGES, self._left()[0] - leave)) > 0:
                self._backup.step(some)
            return self._left()

    def _left(self) -> tuple[int, int]:
        # The backup itself learns how long the file is at each step only, and meanwhile that may have become shorter.
        total = int(self._source.pragma("page_count"))
        return max(0, total - (self._backup.page_count - self._backup.remaining)), total

    def finish(self) -> None:
        """Copies the rest, and brings the copy to the disk; what is written from here on would not be in it. Raises StorageError."""
        with storage_errors(DOING):
            while not self._backup.done:
                self._backup.step(STEP_PAGES)
            self._backup.finish()
            self._target.close()
        self.sync()

    def sync(self) -> None:
        """Brings what is copied so far to the disk; any thread may call it."""
        try:
            atomic.sync(self._copy)
        except OSError as error:
            raise StorageError(f"cannot {DOING}: {error.strerror}", hint="is the disk full?") from None

    def abandon(self) -> None:
        """The old key stays; the copy is removed."""
        self._backup.close(True)
        self._target.close()
        sweep(self._path)

    def swap(self, key: bytes) -> None:
        """Puts the finished copy in the place of the file, which nobody may have open; `key` is its old key. Raises StorageError."""
        try:
            copies.empty_log(self._path, key, DOING)
            copies.put_in_place(self._copy, self._path)
        except OSError as error:
            hint = "check the disk, and the permissions of the data folder"
            raise StorageError(f"cannot {DOING}: {error.strerror}", hint=hint) from None

    @property
    def is_swapped(self) -> bool:
        """Whether the file is the copy already."""
        return not self._copy.exists()


def copy_of(path: Path) -> Path:
    """Where a copy of this database is written."""
    return path.with_name(path.name + COPY)


def sweep(path: Path) -> None:
    """Removes what a change that was interrupted has left beside this database."""
    # Where nothing can be removed, nothing could be left either; whatever opens the database says what is wrong.
    with contextlib.suppress(OSError):
        copy_of(path).unlink(missing_ok=True)


def _opened(copy: Path, key: bytes) -> apsw.Connection:
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    give_key(connection, key)
    connection.execute("PRAGMA journal_mode = OFF").fetchall()
    connection.execute("PRAGMA synchronous = OFF")
    # What is copied is hardly needed again, and what is not in memory need not be written at the end.
    connection.execute("PRAGMA cache_size = -256")
    return connection


_CLEANING: Final = "clean the database"


class Replacement:
    """Used by the thread that writes. What swaps needs every other connection closed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rekeying: Rekeying | None = None

    def copy_readable(self) -> int:
        """Copies what can be read of a damaged database; how many rows that are not derived are lost."""
        with storage_errors(salvage.DOING):
            return salvage.copy(self._database.path, self._database.key)

    def swap_readable(self) -> None:
        """Goes on with that copy, which nobody has written to since."""
        self.abandon_rekeying()
        with self._database.replacing(salvage.DOING):
            salvage.swap(self._database.path, self._database.key)
        migrate(self._database.connection, now=time.time())

    def begin_rekeying(self, key: bytes) -> Callable[[], None]:
        """Begins to copy the database under another key (32 bytes). Raises StorageError where there is no room for it.

        What it returns brings to the disk what is copied so far; any thread may call it.
        """
        self.abandon_rekeying()
        self._rekeying = Rekeying(self._database.connection, self._database.path, key)
        return self._rekeying.sync

    def swap_rekeyed(self) -> None:
        """Goes on with the copy, under the new key."""
        copying = self.rekeying
        self._rekeying = None
        with self._database.replacing(DOING):
            try:
                copying.swap(self._database.key)
            finally:
                if copying.is_swapped:
                    self._database.key = copying.key
                else:
                    copying.abandon()

    def abandon_rekeying(self) -> None:
        """Ends a change of the key that is under way, if one is; the old key stays."""
        if self._rekeying is not None:
            self._rekeying.abandon()
            self._rekeying = None

    @property
    def rekeying(self) -> Rekeying:
        """The change of the key that is under way. Raises StorageError."""
        if self._rekeying is None:
            raise StorageError(
                "cannot change the key of the database: it was rebuilt meanwhile", hint="it is tried again"
            )
        return self._rekeying

    def copy_clean(self) -> None:
        """Writes all that is in the database, and nothing that was, into a file beside it, encrypted as it is.

        Takes no memory to speak of. What is written afterwards would not be there. Raises StorageError: there is no room for it.
        """
        self.abandon_rekeying()
        path = self._database.path
        copy = copy_of(path)
        sweep(path)
        problem = f"cannot {_CLEANING}: the disk has no room for a second copy of it"
        then = " and run it again; what was sealed stays sealed"
        copies.check_room(path, path.stat().st_size, problem, then)
        create_private(copy)
        try:
            with storage_errors(_CLEANING):
                self._database.connection.execute("VACUUM INTO ?", (str(copy),))
            atomic.sync(copy)
        except BaseException:
            sweep(path)
            raise

    def swap_clean(self) -> None:
        """Goes on with that copy. Raises StorageError: another process has the database open."""
        path = self._database.path
        with self._database.replacing(_CLEANING):
            try:
                copies.empty_log(path, self._database.key, _CLEANING)
            except StorageError as error:
                sweep(path)
                hint = "end confided doctor, and others like it, and run it again; what was sealed stays sealed"
                raise StorageError(error.message, hint=hint) from None
            copies.put_in_place(copy_of(path), path)
