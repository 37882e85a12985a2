"""Replaces the database file by a copy while the space is open: a copy of a damaged file's readable
part, a copy under another key, or one without remains of deleted data.

To change the key, SQLite's online backup copies from the writer's own connection, so the writer's
commits during the copying reach pages that were copied before (https://sqlite.org/backup.html);
SQLite3 Multiple Ciphers decrypts and encrypts each page on the way. A copy never has a log, is
private before its first byte, and is on the disk before it gets the name. It can be interrupted at
any moment: the path always leads to a complete database, under the old key or the new one.
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
"""Pages that are copied in one step: 1 MiB, 10 ms of the writer."""
DOING: Final = "change the key of the database"


class Rekeying:
    """A running change of the database's key: a copy under the new key, then a swap of the files.
    Use it on the writer's thread only.
    """

    def __init__(self, source: apsw.Connection, path: Path, key: bytes) -> None:
        """Start the copy from the writer's connection. Raises StorageError: no room for it, or it
        cannot be written.
        """
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
                self._target = _open_copy(self._copy, key)
                self._backup = self._target.backup("main", source, "main")
        except BaseException:
            sweep(path)
            raise

    def step(self, *, leave: int) -> tuple[int, int]:
        """Copy some pages, but leave at least the last `leave` (1 or more) for `finish`. Return how
        many pages are left, and the total.

        SQLite's backup ends with its last page, and would miss all writes after that. Raises
        StorageError if the copy fails; call `abandon` then.
        """
        with storage_errors(DOING):
            if (some := min(STEP_PAGES, self._remaining_pages()[0] - leave)) > 0:
                self._backup.step(some)
            return self._remaining_pages()

    def _remaining_pages(self) -> tuple[int, int]:
        # The backup updates its number of pages only in a step, and the file may have become
        # shorter since.
        total = int(self._source.pragma("page_count"))
        return max(0, total - (self._backup.page_count - self._backup.remaining)), total

    def finish(self) -> None:
        """Copy the remaining pages and write the copy to the disk. The copy misses all later
        writes, so none may happen before `swap`. Raises StorageError if the copy fails.
        """
        with storage_errors(DOING):
            while not self._backup.done:
                self._backup.step(STEP_PAGES)
            self._backup.finish()
            self._target.close()
        self.sync()

    def sync(self) -> None:
        """Write the pages copied so far to the disk; any thread may call it."""
        try:
            atomic.sync(self._copy)
        except OSError as error:
            raise StorageError(f"cannot {DOING}: {error.strerror}", hint="is the disk full?") from None

    def abandon(self) -> None:
        """Remove the copy. The old key stays in force."""
        self._backup.close(True)
        self._target.close()
        sweep(self._path)

    def swap(self, key: bytes) -> None:
        """Replace the database file by the finished copy. No process may have the file open. `key`:
        the old key of the file. Raises StorageError if that fails.
        """
        try:
            copies.empty_log(self._path, key, DOING)
            copies.put_in_place(self._copy, self._path)
        except OSError as error:
            hint = "check the disk, and the permissions of the data folder"
            raise StorageError(f"cannot {DOING}: {error.strerror}", hint=hint) from None

    @property
    def is_swapped(self) -> bool:
        """True if the copy has already replaced the file."""
        return not self._copy.exists()


def copy_of(path: Path) -> Path:
    """Return the path at which a copy of this database under another key is written."""
    return path.with_name(path.name + COPY)


def sweep(path: Path) -> None:
    """Remove the copy and the journal that an interrupted change of the key has left beside this
    database.
    """
    copy = copy_of(path)
    # If the folder is not writable, no copy was left; opening the database reports that error.
    with contextlib.suppress(OSError):
        for part in (copy, copy.with_name(f"{copy.name}-journal")):
            part.unlink(missing_ok=True)


def _open_copy(copy: Path, key: bytes) -> apsw.Connection:
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    give_key(connection, key)
    connection.execute("PRAGMA journal_mode = OFF").fetchall()
    connection.execute("PRAGMA synchronous = OFF")
    # Copied pages are hardly read again, and a small cache leaves little to write at the end.
    connection.execute("PRAGMA cache_size = -256")
    return connection


_CLEANING: Final = "clean the database"


class Replacement:
    """Copies of a database that replace its file. Use it on the writer's thread. The `swap_`
    methods require that all other connections are closed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rekeying: Rekeying | None = None

    def copy_readable(self) -> int:
        """Copy all readable rows of a damaged database to a new file; return how many source rows
        are lost.
        """
        with storage_errors(salvage.DOING):
            return salvage.copy(self._database.path, self._database.key)

    def swap_readable(self) -> None:
        """Replace the database by the copy from `copy_readable`. Nothing may have been written to
        it since.
        """
        self.abandon_rekeying()
        with self._database.replacing(salvage.DOING):
            salvage.swap(self._database.path, self._database.key)
        migrate(self._database.connection, now=time.time())

    def begin_rekeying(self, key: bytes) -> Callable[[], None]:
        """Start to copy the database under another key (32 bytes). Raises StorageError if the disk
        has no room for the copy.

        Return a function that writes the pages copied so far to the disk; any thread may call it.
        """
        self.abandon_rekeying()
        self._rekeying = Rekeying(self._database.connection, self._database.path, key)
        return self._rekeying.sync

    def swap_rekeyed(self) -> None:
        """Replace the database by the finished copy under the new key."""
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
        """Cancel a running change of the key, if there is one. The old key stays in force."""
        if self._rekeying is not None:
            self._rekeying.abandon()
            self._rekeying = None

    @property
    def rekeying(self) -> Rekeying:
        """The running change of the key. Raises StorageError if no change is running."""
        if self._rekeying is None:
            raise StorageError(
                "cannot change the key of the database: it was rebuilt meanwhile", hint="it is tried again"
            )
        return self._rekeying

    def copy_clean(self) -> None:
        """Copy the current data to a new file under the same key. The copy has no remains of
        deleted data.

        It needs little memory, and misses all later writes. Raises StorageError if the disk has no
        room for it.
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
        """Replace the database by the copy from `copy_clean`. Raises StorageError if another
        process has the database open.
        """
        path = self._database.path
        with self._database.replacing(_CLEANING):
            try:
                copies.empty_log(path, self._database.key, _CLEANING)
            except StorageError as error:
                sweep(path)
                hint = "end confided doctor, and others like it, and run it again; what was sealed stays sealed"
                raise StorageError(error.message, hint=hint) from None
            copies.put_in_place(copy_of(path), path)
