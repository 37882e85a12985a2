"""One connection to an encrypted SQLite database: how it is opened, what its errors mean to a person, its transactions, its reads, and what
it remembers of one state. It knows no table.

Pages are encrypted and authenticated with AEGIS-256 by SQLite3 Multiple Ciphers; the write-ahead log is encrypted the same way and
temporary tables stay in memory, so no plaintext reaches the disk. The key is 32 random bytes, used raw: there is no pass phrase.

Two things would take what a person has freed on a full disk, so that every write is refused as before. A checkpoint copies the log's pages
into the database file, which may grow by all that the log holds, while the log keeps its length until the last page is across: SQLite
tries one behind every commit of a long log, takes what room there is, and ends half done (https://sqlite.org/wal.html, "Checkpointing").
And the index, which is derived, would go on with the vectors it owes.
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
BUSY_MS = 5000  # only a checkpoint or a foreign process can hold a lock; beyond this something is wrong
CACHE_KIB = 32 * 1024  # for each connection, where nothing else is said (`page_budget`)
WAL_LIMIT = 16 * 1024 * 1024

# What the errors of the database mean; the first match counts.
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
    """Turns SQLite's errors into StorageError; SQL and values stay out of the message."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, apsw.Error):
            return
        # No room for the file beside a database that its connections share is told as a fault of the disk.
        is_full = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
        for known, meaning, hint in MEANINGS:
            if isinstance(error, known) or is_full:  # the first of them says that the disk is full
                raised = _RAISED.get(known, StorageError)
                raise raised(f"cannot {self._doing}: {meaning}", hint=hint) from None
        raise StorageError(f"cannot {self._doing}: {type(error).__name__}") from None


def carried(ids: Iterable[int]) -> object:
    """Ids, one at least, as the value of `carray(?)`, in rising order: what lies on one page is then read from it together.

    For `json_each` they had to be written and read again, which took a twentieth of a search.
    """
    return apsw.carray(array("q", sorted(ids)))


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """All that is written inside, or nothing.

    apsw has `with connection`, but it fails on leaving when SQLite has undone the transaction already, as on a full disk, and hides why.
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
    """A connection with the extension loaded and the key proven right (else WrongKeyError). Raises StorageError.

    `damaged`: also where the file is shorter than it should be, to save what is left.
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
                # With it SQLite takes the file's own length for its length, not the one in its header (btree.c, lockBtree).
                connection.execute("PRAGMA writable_schema = ON")
            if is_new:
                # What is deleted goes back to the file system page by page; it can be chosen before the first table only.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # fails when the key is wrong
            connection.enable_load_extension(True)
            connection.load_extension(sqlite_vec.loadable_path())
            connection.enable_load_extension(False)
            # Not SQLite's GLOB, to which a star is every folder and two of them want one.
            connection.create_scalar_function("path_matches", _path_matches, 2, deterministic=True)
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA foreign_keys = ON")
            if writer:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
                connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}").fetchall()
                checkpoint_where_there_is_room(connection)
                # An acknowledged write survives a power cut; NORMAL would only survive a crash of the process.
                connection.execute("PRAGMA synchronous = FULL")
                # What is deleted is overwritten, so that it is in no page of the file for whoever has the key later.
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
    """Whether a database is a copy of what a store has the log of (docs/cluster.md), so that nobody may write to it alone."""
    return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'shipped'").fetchall())


def stand_alone(connection: apsw.Connection) -> None:
    """Have it be no copy any more; in the caller's transaction."""
    connection.execute("DROP TABLE IF EXISTS shipped")


def give_key(connection: apsw.Connection, key: bytes) -> None:
    """Says how the pages of a connection are encrypted, before the first of them is read or written."""
    connection.execute("PRAGMA cipher = 'aegis'")
    connection.execute(f'PRAGMA key = "raw:{key.hex()}"')


def create_private(path: Path) -> None:
    """The empty file with mode 0600, before SQLite would make it with the umask's; -wal and -shm take its mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StorageError(
            f"cannot create the database: {error.strerror}", hint="check that the data folder exists and is writable"
        ) from None


def _file_of(path: Path) -> tuple[int, int] | None:
    """Device and number of the file that has the path now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# When the log is folded into the database file. SQLite's own number: 4 MiB.
LONG_LOG_PAGES = 1000
# The largest document takes so much: its revision, its pieces, their keywords.
RESERVE_BYTES = 4 * 1024 * 1024


def checkpoint_where_there_is_room(connection: apsw.Connection) -> None:
    """Make the writer's connection look for room before each checkpoint, in place of SQLite's automatic ones."""
    connection.set_wal_hook(_committed)


def close(connection: apsw.Connection) -> None:
    """Close a connection; the last one of a file folds the log in, unless there is no room: then the log stays for the next start."""
    try:
        has_room = _has_room_for_log(connection)
    except apsw.InterruptError:
        has_room = False  # cut off in the middle of a statement, the connection takes no other; one that is closed later folds the log in
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(not has_room))
    connection.close()


def check_room_for_derived(connection: apsw.Connection) -> None:
    """Keep the last room for documents. Raises StorageError: less is free than they may need."""
    if _free_bytes(connection) < RESERVE_BYTES:
        raise StorageError(
            "cannot write to the index: the disk is nearly full",
            hint="free some space; what is left is kept for documents, which are found by their words meanwhile",
        )


def _committed(connection: apsw.Connection, _database: str, pages: int) -> int:
    if pages >= LONG_LOG_PAGES:
        try:
            if _has_room_for_log(connection):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            # The commit is done and must not be told as failed; what is wrong with the disk, the next write tells.
            pass
    return apsw.SQLITE_OK


def _has_room_for_log(connection: apsw.Connection) -> bool:
    """Whether the disk can take all that the database file would grow by."""
    try:
        present = Path(connection.filename).stat().st_size
    except OSError:
        return True  # removed while it was open; SQLite finds out what that means
    pages, page_bytes = (int(connection.pragma(name)) for name in ("page_count", "page_size"))
    return pages * page_bytes - present <= _free_bytes(connection)


def _free_bytes(connection: apsw.Connection) -> float:
    try:
        disk = os.statvfs(Path(connection.filename).parent)
    except OSError:
        return float("inf")
    return disk.f_bavail * disk.f_frsize


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


@contextmanager
def _alone(connection: apsw.Connection) -> Iterator[Callable[[], None]]:
    """A transaction of a file that is all there is; as `ReplicationOutbox.transaction`."""
    with transaction(connection):
        yield lambda: None


class ReplicationOutbox(Protocol):
    """Where what is written goes before it is committed here, of a database that is a copy of a log (`store.log`).

    Attributes:
        custody: who will keep the key once a change of it that is under way is done, as JSON has it.
        lease: the number under which is written.
        has_pending: whether truths wait here that changed with what is derived.
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
    """Used by one thread at a time; a space has one that writes and a few that read. Every method may raise StorageError.

    Attributes:
        connection: SQLite's own; another one after the file was replaced.
        key: what the file is encrypted with now; empty once this is closed.
        damage: what of it cannot be read, shared by all connections of the space.
        remembered: counts and lists that hold until somebody writes.
        refused: why the last write was, where that is a fault of the disk or of the file; None: it was made.
        quota: what it may hold.
        outbox: where what is written goes first; None: this file is all there is.
    """

    def __init__(self, connection: apsw.Connection, *, path: Path, key: bytes, damage: Damage | None = None) -> None:
        self.connection = connection
        self.path = path
        self.key = key
        self.damage = damage or Damage()
        self.remembered = Remembered()
        self.refused: StorageError | None = None
        self.quota = UNLIMITED
        self.outbox: ReplicationOutbox | None = None
        self._file = _file_of(path)
        self._kept_kib = CACHE_KIB
        self._behind: list[Callable[[], object]] = []
        self._after_commit: list[Callable[[], None]] = []

    def keep_pages(self, kib: int) -> None:
        """Keep at most so much of what was read."""
        if kib != self._kept_kib:
            self.rows(f"PRAGMA cache_size = -{kib}")
            self._kept_kib = kib

    def shrink(self) -> None:
        """Keep nothing of what was read; it is read again when it is needed."""
        self.rows("PRAGMA shrink_memory")

    def close(self) -> None:
        """Closes the connection and forgets the key; the last one folds the log into the file."""
        # Whoever refers to this longer, as the thread that closes it does for a moment, has no key of a space that is locked.
        self.key = b""
        if self.outbox is not None:
            self.outbox.detach()
        with storage_errors("close the database"):
            close(self.connection)

    def interrupt(self) -> None:
        """Makes what runs in it now fail; any thread may call it, also when it is closed."""
        with contextlib.suppress(apsw.ConnectionClosedError):
            self.connection.interrupt()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction for all that is written inside: all or nothing, on disk when it ends."""
        with self._committing(is_derived=False):
            yield

    @contextmanager
    def writing_derived(self) -> Iterator[None]:
        """The same for what can be rebuilt: a power cut may undo it, since the log is not forced to the disk for it."""
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
        self.remembered.forget()
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
            self.refused = error
            raise
        self.refused = None
        for follow in self._after_commit:
            follow()
        self._after_commit.clear()

    def behind(self, make: Callable[[], object]) -> None:
        """Makes what is derived of truths once all of the transaction that is under way are written, before it commits.

        Where there is a log, that is the time in which it takes them. A failure has nothing stored here, though it may be in the log then.
        """
        self._behind.append(make)

    def derive(self) -> None:
        """Makes all that is to be made behind the truths now, for who reads it in the same transaction."""
        made, self._behind = self._behind, []
        for make in made:
            make()

    def after_commit(self, follow: Callable[[], None]) -> None:
        """Calls it once the transaction that is under way is committed."""
        self._after_commit.append(follow)

    def require_file(self) -> None:
        """Raises StorageError where another file has the path of this one, or none: what is written then lasts as long as this process.

        Where there is a log, that has all that is written, and the file is a copy.
        """
        if self.outbox is None:
            self._require_own_file("write to")

    def require_reader_file(self) -> None:
        """Raise StorageError where the path leads to another file than this connection's, or to none.

        Call it before another connection is opened by the path. SQLite would treat the other file as a database that no process has open,
        and truncate the -shm file, which all connections map by its name: their next access ends the process with SIGBUS.
        """
        self._require_own_file("read")

    def _require_own_file(self, doing: str) -> None:
        if (found := _file_of(self.path)) != self._file:
            what = "deleted" if found is None else "replaced by another file"
            raise StorageError(
                f"cannot {doing} the database: its file was {what} while it was open",
                hint="stop the daemon, put the file back or restore a backup, and start it again",
            )

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
            if self.outbox is not None:
                self.outbox.detach()
            close(self.connection)
            try:
                yield
            finally:
                self.connection = connect(self.path, self.key, writer=True)
                self._file = _file_of(self.path)
                if self.outbox is not None:
                    self.outbox.attach(self.connection, self.key)
                self._kept_kib = CACHE_KIB
                self.remembered.forget()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
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

    def require_room(self) -> None:
        """Refuse to grow beyond what the space may hold. Raises SpaceFullError."""
        most = self.quota.size_bytes
        if most and self.size_bytes() >= most:
            raise SpaceFullError(f"its database has {most >> 20:,} MiB", "space_mib")

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
