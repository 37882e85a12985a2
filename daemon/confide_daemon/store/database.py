"""A connection to an encrypted SQLite database: opening, error messages, transactions, reads, and a
cache of results that is valid until the next write. It knows nothing about the tables.

SQLite3 Multiple Ciphers encrypts and authenticates the pages with AEGIS-256, and the write-ahead
log in the same way. Temporary tables stay in memory. So no plaintext reaches the disk. The key is
32 random bytes, used without key derivation: there is no passphrase.

When the disk is full and the user frees some space, two things would use it up before the next
write does, so both check for room first:

- A checkpoint copies the log's pages into the database file, which may grow by all that the log
  holds, while the log keeps its length until the last page is copied. By default SQLite tries a
  checkpoint after every commit of a long log, uses the free space, and stops halfway
  (https://sqlite.org/wal.html, "Checkpointing").
- The index, which is derived data, would continue to store vectors.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import apsw
import sqlite_vec

from confide_daemon.errors import DamagedError, SpaceFullError, StorageError, WrongKeyError
from confide_daemon.store.quota import UNLIMITED
from confide_memory.globs import matches

T = TypeVar("T")

KEY_BYTES = 32
BUSY_MS = 5000  # only a checkpoint or a foreign process holds a lock; a longer wait is an error
CACHE_KIB = 32 * 1024  # default for each connection (`page_budget`)
WAL_LIMIT = 16 * 1024 * 1024

# Meaning and hint of each SQLite error; the first match counts.
MEANINGS: tuple[tuple[type[apsw.Error], str, str | None], ...] = (
    (apsw.FullError, "the disk is full", "free some space and try again; nothing that was acknowledged is lost"),
    (
        apsw.NotADBError,
        "it is not a database, or the key is not the one it was written with",
        "was master.key replaced, or the file beside it that says who keeps its key?",
    ),
    (apsw.CorruptError, "the file is damaged", "restore it from a backup, or delete it: the working copies rebuild it"),
    (
        apsw.ReadOnlyError,
        "the file or its folder is not writable",
        "check the owner and the permissions of the data folder",
    ),
    (apsw.PermissionsError, "permission denied", "check the owner and the permissions of the data folder"),
    (apsw.CantOpenError, "the file cannot be opened", "check that the data folder exists and is writable"),
    (apsw.BusyError, "another process holds it", "is a second daemon using this data folder?"),
    (apsw.IOError, "the disk reported an error", "check the disk; is it full?"),
)

_RAISED: dict[type[apsw.Error], type[StorageError]] = {apsw.CorruptError: DamagedError, apsw.NotADBError: WrongKeyError}


class storage_errors:  # noqa: N801 - a context manager; as a generator it took a tenth of a short query's time
    """Raise SQLite's errors within the context as StorageError, without SQL or values in the
    message.
    """

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, apsw.Error):
            return
        # SQLite reports a full disk as a disk fault when it cannot make the -shm file.
        is_full = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
        for known, meaning, hint in MEANINGS:
            if isinstance(error, known) or is_full:  # the first row means a full disk
                raised = _RAISED.get(known, StorageError)
                raise raised(f"cannot {self._doing}: {meaning}", hint=hint) from None
        raise StorageError(f"cannot {self._doing}: {type(error).__name__}") from None


def id_array(ids: Iterable[int]) -> object:
    """Return ids (at least one) as a parameter for `carray(?)`. They are sorted, so that rows on
    one page are read together.

    Passing them to `json_each` would format and parse them, which took a twentieth of a search.
    """
    return apsw.carray(array("q", sorted(ids)))


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Open a transaction: either everything written inside is committed or nothing.

    apsw's `with connection` does the same. But if SQLite has already rolled back the transaction,
    as on a full disk, it fails on exit and hides the cause.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connect(path: Path, key: bytes, *, writer: bool, damaged: bool = False) -> apsw.Connection:
    """Open a connection, load the vector extension, and check the key. Raises WrongKeyError if the
    key does not open the file, StorageError if the file cannot be opened.

    `damaged`: True to open even a file that is shorter than its header says, to salvage the rest.
    """
    if len(key) != KEY_BYTES:
        raise StorageError("cannot open the database: the key is not 32 bytes long")
    if writer and not path.exists():
        create_private(path)
    is_new = writer and path.stat().st_size == 0
    with storage_errors("open the database"):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(BUSY_MS)
            give_key(connection, key)
            if damaged:
                # SQLite then uses the file's real length instead of the one in its header (btree.c,
                # lockBtree).
                connection.execute("PRAGMA writable_schema = ON")
            if is_new:
                # Free pages return to the file system in steps. This can only be set before the
                # first table.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # fails when the key is wrong
            connection.enable_load_extension(True)
            connection.load_extension(sqlite_vec.loadable_path())
            connection.enable_load_extension(False)
            # SQLite's GLOB lets one star match across folders; here only two stars do.
            connection.create_scalar_function("path_matches", _path_matches, 2, deterministic=True)
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA foreign_keys = ON")
            if writer:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
                connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}").fetchall()
                checkpoint_where_there_is_room(connection)
                # An acknowledged write survives a power cut; NORMAL would only survive a crash of
                # the process.
                connection.execute("PRAGMA synchronous = FULL")
                # Deleted content is overwritten, so that no page of the file shows it to a later
                # holder of the key.
                connection.execute("PRAGMA secure_delete = ON").fetchall()
            else:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def _path_matches(*said: object) -> bool:
    path, glob = said
    return isinstance(path, str) and isinstance(glob, str) and matches(path, glob)


def is_copy(connection: apsw.Connection) -> bool:
    """Return True if the database is a local copy of a log in the shared store (docs/cluster.md).
    Such a copy must not be written to without the log.
    """
    return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'shipped'").fetchall())


def stand_alone(connection: apsw.Connection) -> None:
    """Turn a local copy of a log in the shared store into an independent database, in the caller's
    transaction.
    """
    connection.execute("DROP TABLE IF EXISTS shipped")


def give_key(connection: apsw.Connection, key: bytes) -> None:
    """Set the cipher and the key of a connection; call it before the first page is read or written."""
    connection.execute("PRAGMA cipher = 'aegis'")
    connection.execute(f'PRAGMA key = "raw:{key.hex()}"')


def create_private(path: Path) -> None:
    """Create an empty file with mode 0600. SQLite would create it with the mode that the umask
    allows; it gives the -wal and -shm files the same mode as the file.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StorageError(
            f"cannot create the database: {error.strerror}", hint="check that the data folder exists and is writable"
        ) from None


def identify_file(path: Path) -> tuple[int, int] | None:
    """Return the device and inode numbers of the file at the path, or None."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# Length of the log at which it is copied into the database file; SQLite's default, 4 MiB.
LONG_LOG_PAGES = 1000
# Space that the largest document needs: its revision, its chunks, their keywords.
RESERVE_BYTES = 4 * 1024 * 1024


def checkpoint_where_there_is_room(connection: apsw.Connection) -> None:
    """Make the writer's connection check for free disk space before each checkpoint, instead of
    SQLite's automatic checkpoints.
    """
    connection.set_wal_hook(_on_commit)


def close(connection: apsw.Connection) -> None:
    """Close a connection. The last one copies the write-ahead log into the file; if the disk has no
    room for that, the log stays until the next start.
    """
    try:
        has_room = _has_room_for_log(connection)
    except apsw.InterruptError:
        # An interrupted connection accepts no further statement; one that is closed later copies
        # the log.
        has_room = False
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(not has_room))
    connection.close()


def check_room_for_derived(connection: apsw.Connection) -> None:
    """Raise StorageError if the free disk space is only enough for the largest document. Derived
    data must not use up that space.
    """
    if _free_bytes(connection) < RESERVE_BYTES:
        raise StorageError(
            "cannot write to the index: the disk is nearly full",
            hint="free some space; what is left is kept for documents, which are found by their words meanwhile",
        )


def _on_commit(connection: apsw.Connection, _database: str, pages: int) -> int:
    if pages >= LONG_LOG_PAGES:
        try:
            if _has_room_for_log(connection):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            # The commit is done and must not be reported as failed; the next write reports the
            # disk's fault.
            pass
    return apsw.SQLITE_OK


def _has_room_for_log(connection: apsw.Connection) -> bool:
    """Return True if the disk has room for the growth of the database file at a checkpoint."""
    try:
        present = Path(connection.filename).stat().st_size
    except OSError:
        return True  # removed while it was open; SQLite reports the consequences
    pages, page_bytes = (int(connection.pragma(name)) for name in ("page_count", "page_size"))
    return pages * page_bytes - present <= _free_bytes(connection)


def _free_bytes(connection: apsw.Connection) -> float:
    try:
        disk = os.statvfs(Path(connection.filename).parent)
    except OSError:
        return float("inf")
    return disk.f_bavail * disk.f_frsize


# Parts of the database that may turn out to be unreadable.
KEYWORDS: Final = "keywords"
VECTORS: Final = "vectors"
PAGES: Final = "pages"  # elsewhere


class Damage:
    """The parts of a space's database that cannot be read, shared by all of its connections so that
    searches skip these parts. Usable from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: frozenset[str] = frozenset()
        self._listener: Callable[[], None] | None = None

    @property
    def parts(self) -> frozenset[str]:
        return self._parts

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Set the function to call when damage is found; it runs in the thread that finds it. None:
        call nothing.
        """
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
        """Return the result of `read`. If it fails because the keyword index or the vectors are
        unreadable, record that and call `read` again, which then skips the damaged part.

        A transaction that has met a damaged page cannot read anything more, so the whole read
        starts again. Raises DamagedError if another part is damaged.
        """
        while True:
            known = self._parts
            try:
                return read()
            except DamagedError:
                if not (self._parts - known) & {KEYWORDS, VECTORS}:
                    raise

    def warnings(self) -> list[str]:
        """Return warnings for users that search results may be incomplete, because a part is
        unreadable.
        """
        said = {
            KEYWORDS: "the keyword index is damaged and being rebuilt; found by meaning alone",
            VECTORS: "stored vectors are damaged and being rebuilt; found by keywords alone",
        }
        return [said[part] for part in sorted(self._parts) if part in said]


Rows = Callable[[str, Sequence[Any]], list[Any]]
"""Runs SQL with its values and returns the rows (`Database.rows`)."""

AMONG = "IN (SELECT value FROM json_each(?))"
"""SQL condition: one of the values of a list, which is given as JSON."""


def within(column: str, names: Iterable[str] | None) -> tuple[str, list[Any]]:
    """Return an SQL condition that a column has one of the names, to append with AND, and its
    parameters. `names` None: both are empty.
    """
    return ("", []) if names is None else (f" AND {column} {AMONG}", [json.dumps(sorted(names))])


# Keys contain filters, which differ by caller and day.
MOST_REMEMBERED = 64


class Remembered:
    """A cache of counts and lists for searches, valid until the database changes."""

    def __init__(self) -> None:
        self._results: dict[object, object] = {}
        self._version: object = None
        self._is_in_view = False

    @contextmanager
    def view(self, connection: apsw.Connection) -> Iterator[None]:
        """Enable the cache for the reads of a transaction that has begun. Drop its contents if
        another connection has committed since the last such transaction.
        """
        version = connection.execute("PRAGMA data_version").fetchall()[0][0]
        if version != self._version:
            self._results.clear()
            self._version = version
        self._is_in_view = True
        try:
            yield
        finally:
            self._is_in_view = False

    def forget(self) -> None:
        """Drop the cache. Call it before this connection writes: SQLite's `data_version` does not
        change on a connection's own writes.
        """
        self._results.clear()

    def get(self, key: object, compute: Callable[[], T]) -> T:
        """Return the value cached under the key, or compute and cache it. Outside of `view` nothing
        is cached.
        """
        if not self._is_in_view:
            return compute()
        if key not in self._results:
            if len(self._results) >= MOST_REMEMBERED:
                self._results.clear()
            self._results[key] = compute()
        return cast("T", self._results[key])


@contextmanager
def _alone(connection: apsw.Connection) -> Iterator[Callable[[], None]]:
    """Open a transaction on a database without a replication log; the same interface as
    `ReplicationOutbox.transaction`.
    """
    with transaction(connection):
        yield lambda: None


class ReplicationOutbox(Protocol):
    """Sends a database's writes to its log in the shared store before they are committed here
    (`store.logs`).

    Attributes:
        custody: the custody record (JSON) of the new key while a key change is under way.
        lease: the number of the lease under which this node writes.
        has_pending: True if source rows that changed together with derived ones still wait here.
    """

    custody: dict[str, object] | None
    lease: int

    @property
    def has_pending(self) -> bool: ...
    def transaction(self, *, is_derived: bool) -> AbstractContextManager[Callable[[], None]]: ...
    def flush(self) -> None: ...
    def attach(self, connection: apsw.Connection, key: bytes) -> None: ...
    def detach(self) -> None: ...
    def bring(self, copy: Path, key: bytes) -> None: ...
    def take_snapshot(self) -> None: ...
    def is_snapshot_due(self, *, at_rest: bool = False) -> bool: ...
    def discard(self) -> None: ...


class Database:
    """A database connection, for one thread at a time; a space has one that writes and a few that
    read. Every method may raise StorageError.

    Attributes:
        connection: the SQLite connection; a new one after the file was replaced.
        key: the current key of the file; empty after `close`.
        damage: the unreadable parts, shared by all connections of the space.
        result_cache: counts and lists that are valid until the next write.
        write_error: the error of the last write if the disk or the file caused it; None: it
            succeeded.
        quota: the size limits of the space.
        outbox: sends writes to the log in the shared store first; None: there is no log.
    """

    def __init__(self, connection: apsw.Connection, *, path: Path, key: bytes, damage: Damage | None = None) -> None:
        self.connection = connection
        self.path = path
        self.key = key
        self.damage = damage or Damage()
        self.result_cache = Remembered()
        self.write_error: StorageError | None = None
        self.quota = UNLIMITED
        self.outbox: ReplicationOutbox | None = None
        self._file = identify_file(path)
        self._cache_kib = CACHE_KIB
        self._behind: list[Callable[[], object]] = []
        self._after_commit: list[Callable[[], None]] = []

    def keep_pages(self, kib: int) -> None:
        """Limit the connection's page cache to `kib` KiB."""
        if kib != self._cache_kib:
            self.rows(f"PRAGMA cache_size = -{kib}")
            self._cache_kib = kib

    def shrink(self) -> None:
        """Empty the page cache to free memory."""
        self.rows("PRAGMA shrink_memory")

    def close(self) -> None:
        """Close the connection and drop the key. The last connection copies the write-ahead log
        into the file.
        """
        # The closing thread refers to this object for a moment longer, and must not have the key of
        # a locked space.
        self.key = b""
        if self.outbox is not None:
            self.outbox.detach()
        with storage_errors("close the database"):
            close(self.connection)

    def interrupt(self) -> None:
        """Make the running statement fail. Any thread may call this, also after `close`."""
        with contextlib.suppress(apsw.ConnectionClosedError):
            self.connection.interrupt()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Open a transaction: either everything written inside is committed or nothing. On exit it
        is on the disk.
        """
        with self._committing(is_derived=False):
            yield

    @contextmanager
    def writing_derived(self) -> Iterator[None]:
        """Open a transaction for derived data, which a power cut may undo, since the log is not
        forced to the disk.
        """
        self.check_room()
        if self.outbox is not None:
            with self._committing(is_derived=True):
                yield
            return
        self.rows("PRAGMA synchronous = NORMAL")
        try:
            with self.writing():
                yield
        finally:
            self.rows("PRAGMA synchronous = FULL")

    @contextmanager
    def _committing(self, *, is_derived: bool) -> Iterator[None]:
        self.result_cache.forget()
        self._behind.clear()
        self._after_commit.clear()
        one = _alone(self.connection) if self.outbox is None else self.outbox.transaction(is_derived=is_derived)
        try:
            with storage_errors("write to the database"), one as send:
                yield
                if self._behind:
                    send()
                    self.derive()
            self.require_file()
        except SpaceFullError:
            raise
        except StorageError as error:
            self.write_error = error
            raise
        self.write_error = None
        for follow in self._after_commit:
            follow()
        self._after_commit.clear()

    def behind(self, make: Callable[[], object]) -> None:
        """Queue the function `make`, which writes derived rows. It runs after all source rows of
        the current transaction are written, and before the commit.

        With a replication log, it runs while the log stores the source rows. If it fails, nothing
        is committed here, although the log may have the change by then.
        """
        self._behind.append(make)

    def derive(self) -> None:
        """Run all functions queued with `behind` now, for a caller that needs their rows in the
        same transaction.
        """
        made, self._behind = self._behind, []
        for make in made:
            make()

    def after_commit(self, follow: Callable[[], None]) -> None:
        """Call `follow` once the current transaction is committed."""
        self._after_commit.append(follow)

    def require_file(self) -> None:
        """Raise StorageError if the path no longer leads to this connection's file, since writes to
        a deleted file would be lost when this process ends.

        With a replication log nothing is checked: the log has all writes, and the file is only a
        copy.
        """
        if self.outbox is None:
            self._require_own_file("write to")

    def require_reader_file(self) -> None:
        """Raise StorageError if the path no longer leads to this connection's file.

        Call it before another connection is opened by the path. SQLite would treat a different file
        as a database that no process has open, and truncate the -shm file, which all connections
        map by its name: their next access ends the process with SIGBUS.
        """
        self._require_own_file("read")

    def _require_own_file(self, doing: str) -> None:
        if (found := identify_file(self.path)) != self._file:
            what = "deleted" if found is None else "replaced by another file"
            raise StorageError(
                f"cannot {doing} the database: its file was {what} while it was open",
                hint="stop the daemon, put the file back or restore a backup, and start it again",
            )

    def check_room(self) -> None:
        """Raise StorageError if the disk is too full for derived data. Call it before computing
        such data or paying for it.
        """
        check_room_for_derived(self.connection)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Open a read transaction: all reads inside see the same state."""
        with storage_errors("read the database"):
            self.connection.execute("BEGIN DEFERRED")
            try:
                with self.result_cache.view(self.connection):
                    yield
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def replacing(self, doing: str) -> Iterator[None]:
        """Close the connection, let the caller replace the file inside the context, and open the
        connection again, also after a failure.

        No other connection may be open. `doing` describes the work in the error message.
        """
        with storage_errors(doing):
            if self.outbox is not None:
                self.outbox.detach()
            close(self.connection)
            try:
                yield
            finally:
                self.connection = connect(self.path, self.key, writer=True)
                self._file = identify_file(self.path)
                if self.outbox is not None:
                    self.outbox.attach(self.connection, self.key)
                self._cache_kib = CACHE_KIB
                self.result_cache.forget()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            with storage_errors("read the database"):
                return self.connection.execute(sql, tuple(values)).fetchall()
        except DamagedError:
            self.damage.note(PAGES)
            raise

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first result row, or None if there is no row."""
        rows = self.rows(sql, values)
        return rows[0][0] if rows else None

    @contextmanager
    def leg(self, part: str) -> Iterator[None]:
        """Wrap the reads of one part of a search (`part`: keywords or vectors). If they meet
        unreadable pages, mark the part as damaged for all connections.
        """
        try:
            yield
        except DamagedError:
            self.damage.note(part)
            raise

    def schema_version(self) -> int:
        """Return the version of the newest applied migration."""
        return int(self.one("SELECT max(version) FROM migration") or 0)

    def require_room(self) -> None:
        """Raise SpaceFullError if the database has reached the space's quota."""
        most = self.quota.size_bytes
        if most and self.size_bytes() >= most:
            raise SpaceFullError(f"its database has {most >> 20:,} MiB", "space_mib")

    def size_bytes(self) -> int:
        """Return the size of the database in bytes, without its free pages."""
        pages = int(self.one("PRAGMA page_count")) - int(self.one("PRAGMA freelist_count"))
        return pages * int(self.one("PRAGMA page_size"))


class Table:
    """Base class for the SQL of one group of tables, over one connection to the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = database.rows
        self._one = database.one
