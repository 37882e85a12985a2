"""Opening an encrypted SQLite database: key, pragmas, extension, migrations, and what SQLite's errors mean to a person.

Pages are encrypted and authenticated with AEGIS-256 by SQLite3 Multiple Ciphers; the write-ahead log is encrypted the same way and
temporary tables stay in memory, so no plaintext reaches the disk. The key is 32 random bytes, used raw: there is no pass phrase.

Two things would take what a person has freed on a full disk, so that every write is refused as before. A checkpoint copies the log's pages
into the database file, which may grow by all that the log holds, while the log keeps its length until the last page is across: SQLite
tries one behind every commit of a long log, takes what room there is, and ends half done (https://sqlite.org/wal.html, "Checkpointing").
And the index, which is derived, would go on with the vectors it owes.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import apsw
import sqlite_vec

from confide_daemon.errors import DamagedError, StorageError, WrongKeyError

KEY_BYTES = 32
BUSY_MS = 5000  # only a checkpoint or a foreign process can hold a lock; beyond this something is wrong
CACHE_KIB = 32 * 1024  # for each connection; 10,000 pieces with vectors are about 25 MiB
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

_RAISED: dict[type[apsw.Error], type[StorageError]] = {
    apsw.CorruptError: DamagedError,
    apsw.NotADBError: WrongKeyError,
}


class storage_errors:  # noqa: N801 - a context manager; as a generator it took a tenth of a short query's time
    """Turns SQLite's errors into StorageError; SQL and values stay out of the message."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, apsw.Error):
            return
        for known, meaning, hint in MEANINGS:
            if isinstance(error, known):
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


def migrations(package: str = "confide_daemon.store") -> list[tuple[int, str]]:
    """(version, SQL) of a package's schema, oldest first."""
    folder = resources.files(package) / "sql"
    found = []
    for entry in folder.iterdir():
        match = re.fullmatch(r"(\d{4})_\w+\.sql", entry.name)
        if match:
            found.append((int(match[1]), entry.read_text(encoding="utf-8")))
    return sorted(found)


def migrate(connection: apsw.Connection, *, now: float) -> None:
    """Brings the schema up to this version, each step in one transaction with the row that records it.

    Raises StorageError: a newer version has written the database.
    """
    steps = migrations()
    with storage_errors("upgrade the database"):
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, applied_at REAL NOT NULL)"
        )
        done = {int(version) for (version,) in connection.execute("SELECT version FROM migration")}
        present = max(done, default=0)
        if present > steps[-1][0]:
            raise StorageError(
                f"cannot open the database: it was written by a newer version of confide (schema {present}, known {steps[-1][0]})",
                hint="upgrade confide on this machine",
            )
        for version, sql in steps:
            if version not in done:
                with transaction(connection):
                    connection.execute(sql)
                    connection.execute("INSERT INTO migration VALUES (?, ?)", (version, now))


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
