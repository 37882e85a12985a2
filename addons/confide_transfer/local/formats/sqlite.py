"""Opens SQLite databases of other programs without writing: no journal, no index of a write-ahead
log, no lock file.

An open database keeps new data in a write-ahead log beside it (https://sqlite.org/wal.html). SQLite
reads that log only with a file of its own in the same folder, so the reader copies both to a
private temporary folder and reads the copy.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from confide_proxy.errors import UnreadableError
from confide_transfer.local.import_files import head, open_plain
from confide_transfer.local.reader import MAX_STORE_BYTES, Fields, Losses, MemoryRecord, Reader

MAGIC = b"SQLite format 3\0"
MAX_VALUE_BYTES = 2**25
"""Limit of one value in a row; SQLite reports an error above it."""
_LOOKED_AT_BYTES = 2**26
"""Limit of a copy that is made only to read the table names."""
_TRIES = 3
_WAL = 2
"""The file format of a database with a write-ahead log, in byte 19 of the header
(https://sqlite.org/fileformat.html, 1.3.3).
"""
Tables = Mapping[str, frozenset[str]]
"""Maps tables to their columns."""


@dataclass(frozen=True, slots=True)
class SqliteReader(Reader):
    """The reader of a system that keeps its memories in known tables of one database.

    Attributes:
        tables: tables and columns that reading requires.
        marks: tables and columns that identify the system, if more than `tables`.
        records: function that yields the memories of a database.
    """

    name: str
    title: str
    tables: Tables
    records: Callable[[sqlite3.Connection, Losses], Iterator[MemoryRecord]]
    stores: tuple[str, ...] = ()
    marks: Tables = field(default_factory=dict)

    def recognises(self, path: Path) -> bool:
        return has_tables(path, self.marks or self.tables)

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        with open_database(path, self.tables) as database:
            yield from self.records(database, losses)


@contextmanager
def open_database(path: Path, tables: Tables) -> Iterator[sqlite3.Connection]:
    """Open the database read-only once it has these tables and columns; rows are `sqlite3.Row`.

    Text that is not UTF-8 has lone surrogates (PEP 383), so that one bad row does not stop the
    reading.

    Raise UnreadableError if it is no such database, is damaged, or keeps changing; also for errors
    of SQLite and files in the `with` block.
    """
    if head(path, len(MAGIC)) != MAGIC:
        open_plain(path, limit=MAX_STORE_BYTES).close()  # raises a precise error unless it is a regular file
        raise UnreadableError(path, "is no SQLite database, or is encrypted")
    open_plain(path, limit=MAX_STORE_BYTES).close()
    try:
        with _connection(path) as connection:
            found = columns_in(connection)
            for table, columns in tables.items():
                if table not in found:
                    raise UnreadableError(path, f"has no table {table}")
                if missing := columns - found[table]:
                    raise UnreadableError(path, f"has a table {table} without the column {min(missing)}")
            yield connection
    except sqlite3.Error as error:
        raise UnreadableError(path, f"cannot be read as a database: {error}") from error
    except UnicodeDecodeError as error:  # SQLite's message quotes the damaged text
        raise UnreadableError(path, "cannot be read as a database: its schema is damaged") from error
    except OSError as error:
        raise UnreadableError(path, f"cannot be read: {error.strerror}") from error


def tables_of(path: Path) -> dict[str, frozenset[str]]:
    """Return the table names with their columns; empty if the file is not a readable database."""
    if head(path, len(MAGIC)) != MAGIC:
        return {}
    try:
        size = path.stat().st_size + _log_bytes(path)
        with _connection(path, may_copy=size <= _LOOKED_AT_BYTES) as connection:
            return columns_in(connection)
    except (sqlite3.Error, OSError, UnreadableError, ValueError):
        return {}


def has_tables(path: Path, tables: Tables) -> bool:
    """Return True if the file is a database with these tables and columns; never raises."""
    found = tables_of(path)
    return all(table in found and found[table] >= columns for table, columns in tables.items())


def telling(row: Mapping[str, object], usual: Mapping[str, object], but: Collection[str] = ()) -> Fields:
    """Return the columns of a row that carry information. Columns in `but`, empty ones, binary
    ones, and those with the value in `usual` are left out.
    """
    return {
        name: value
        for name, value in row.items()
        if name not in but and not isinstance(value, bytes) and value not in (None, "", [], {}, usual.get(name, ""))
    }


@contextmanager
def _connection(path: Path, *, may_copy: bool = True) -> Iterator[sqlite3.Connection]:
    header = head(path, 20)
    if _log_bytes(path) and may_copy:
        with tempfile.TemporaryDirectory(prefix="confide-import-") as folder:
            yield from _connect(_copy(path, Path(folder)), "mode=rw")
    else:
        # No program has a database open that has no log beside it: `immutable` keeps SQLite from
        # creating one.
        is_logged = len(header) == 20 and header[19] == _WAL
        yield from _connect(path, "mode=ro&immutable=1" if is_logged else "mode=ro")


def _connect(path: Path, how: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{how}", uri=True, isolation_level=None, timeout=10
    )
    try:
        connection.execute("PRAGMA query_only = on")
        # The schema is foreign: nothing in it may call a function with side effects.
        connection.execute("PRAGMA trusted_schema = off")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        connection.execute("BEGIN")  # one consistent state
        yield connection
    finally:
        connection.close()


def columns_in(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Return the columns by table; only of plain tables, since a view could be a query that never
    ends.
    """
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' LIMIT 1000"
    ).fetchall()
    names = [str(row["name"]) for row in rows]
    columns = "SELECT name FROM pragma_table_info(?) LIMIT 1000"
    return {name: frozenset(str(row["name"]) for row in connection.execute(columns, (name,))) for name in names}


def _log_bytes(path: Path) -> int:
    try:
        return os.lstat(f"{path}-wal").st_size
    except OSError:
        return 0


def _copy(path: Path, folder: Path) -> Path:
    """Copy the database and its log, both of the same moment. Raise UnreadableError if they change
    in each of three tries.
    """
    copy = folder / "copy.db"
    for _ in range(_TRIES):
        before = _state(path)
        for source, target in ((path, copy), (Path(f"{path}-wal"), folder / "copy.db-wal")):
            with open_plain(source, limit=MAX_STORE_BYTES) as reading, open(target, "wb") as writing:
                shutil.copyfileobj(reading, writing, 2**20)
        if _state(path) == before:
            return copy
    raise UnreadableError(path, "is being written to", hint="stop the program whose memory it is, and try again")


def _state(path: Path) -> tuple[tuple[int, int], ...]:
    found = (os.lstat(path), os.lstat(f"{path}-wal"))
    return tuple((status.st_size, status.st_mtime_ns) for status in found)
