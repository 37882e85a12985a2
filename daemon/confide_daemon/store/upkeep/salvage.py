"""Builds a new database from all readable rows of a damaged one.

Pages are authenticated, so one wrong bit makes a page unreadable, and SQLite can then neither drop
nor rewrite its table. So every readable row is copied to a new file, indexes are built again, and
the new file replaces the old one, which is kept beside it. `repair` does the rest: it handles
missing rows like other faults.

A transaction that has met a damaged page fails from then on, so rows are read in transactions of
their own.
"""

# ruff: noqa: S608 - only names out of the database's own schema are put into SQL; every value is a
# parameter

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from confide_crypto import atomic
from confide_daemon.store.database import connect, storage_errors, transaction
from confide_daemon.store.upkeep.copies import check_room, empty_log, put_in_place
from confide_daemon.store.upkeep.integrity import KEYWORD_TABLE

DOING: Final = "rebuild the damaged database"
NEW: Final = ".new"
DAMAGED: Final = ".damaged"
_DERIVED: Final = re.compile(r"chunk|vector_\w+|note\w*|document_use|recall|doubted_text|breach|mark")
_BATCH: Final = 512
# In unreadable pages, row ids are tried one by one, 15 us each, up to the highest id that was ever
# given. If that is unknown, the reader stops after so many ids without a row.
_BARREN: Final = 65_536


def salvage(path: Path, key: bytes) -> int:
    """Rebuild a damaged file that no process has open (`copy`, then `swap`); return how many rows
    are lost.
    """
    lost = copy(path, key)
    swap(path, key)
    return lost


def copy(path: Path, key: bytes) -> int:
    """Copy the readable rows to `<name>.new`; return how many source rows are lost. Nothing may
    write to the database meanwhile.

    The number of rows on unreadable pages is unknown, so the result is an estimate. But 0 means
    that nothing is lost.

    Raises StorageError if the disk has no room for the copy, DamagedError if not even the names of
    the tables are readable.
    """
    new = path.with_name(path.name + NEW)
    _remove(new)
    problem = f"cannot {DOING}: the disk has no room for it beside the old one"
    check_room(path, path.stat().st_size, problem, "; it is tried again by itself")
    return _copy(path, key, new)


def swap(path: Path, key: bytes) -> None:
    """Replace the database file by `<name>.new`, and keep the old file as `<name>.damaged`, beside
    earlier ones. No process may have the file open.

    It can be interrupted at any moment: the path always leads to a complete database. Raises
    StorageError if another process has the file open.
    """
    empty_log(path, key, DOING)
    places = _damaged_paths(path)
    # The first one is kept, since it has the rows that were lost then; if a disk keeps failing, the
    # last one is replaced.
    kept = next((place for place in places if not place.exists()), places[-1])
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    put_in_place(path.with_name(path.name + NEW), path)


def sweep(path: Path) -> None:
    """Remove an unfinished copy, since it may contain erased data or have an older key."""
    with contextlib.suppress(OSError):
        _remove(path.with_name(path.name + NEW))


def forget_damaged(path: Path, before: float) -> bool:
    """Remove the damaged files kept beside this database that were put there before a time (seconds
    since 1970); return True if there were any.
    """
    # Their mtime is that of their last change; ctime is the time when they were put aside.
    old = [kept for kept in _damaged_paths(path) if kept.exists() and kept.stat().st_ctime < before]
    for kept in old:
        kept.unlink(missing_ok=True)
    return bool(old)


def count_damaged_copies(path: Path) -> int:
    """Count the damaged files that were replaced and are kept beside this database."""
    return sum(kept.exists() for kept in _damaged_paths(path))


def _damaged_paths(path: Path) -> list[Path]:
    """Return the paths for damaged files, in the order of their use."""
    return [path.with_name(path.name + DAMAGED + number) for number in ("", ".2", ".3")]


def _copy(path: Path, key: bytes, new: Path) -> int:
    with contextlib.closing(connect(path, key, writer=False, damaged=True)) as source:
        try:
            with contextlib.closing(connect(new, key, writer=True)) as target, storage_errors(DOING):
                # Without a log: on a full disk, data that stays in the log would be lost without an
                # error.
                target.execute("PRAGMA journal_mode = MEMORY").fetchall()
                target.execute("PRAGMA synchronous = OFF")
                target.execute("PRAGMA foreign_keys = OFF")
                lost = _fill(source, target)
        except BaseException:
            _remove(new)
            raise
    atomic.sync(new)
    return lost


def _fill(source: apsw.Connection, target: apsw.Connection) -> int:
    found: list[Any] = source.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    tables = [
        (name, sql)
        for kind, name, sql in found
        if kind == "table" and not name.startswith(("sqlite_", f"{KEYWORD_TABLE}_"))
    ]
    lost = 0
    for name, sql in tables:
        target.execute(sql)
        if not sql.upper().startswith("CREATE VIRTUAL"):
            missing = _fill_table(source, target, name)
            lost += 0 if _DERIVED.fullmatch(name) else missing
    for kind, _, sql in found:
        if kind == "index":
            target.execute(sql)
    _continue_ids(source, target)
    return lost


def _fill_table(source: apsw.Connection, target: apsw.Connection, name: str) -> int:
    columns = [row[1] for row in source.execute(f"PRAGMA table_info({name})")]
    fields = ", ".join(f'"{column}"' for column in columns)
    insert = f"INSERT OR IGNORE INTO {name} ({fields}) VALUES ({', '.join('?' * len(columns))})"
    reader = _RowReader(source, name, fields, _highest_id(source))
    for rows in reader.batches():
        with transaction(target):
            target.executemany(insert, rows)
    return reader.lost_rows


class _RowReader:
    """Reads all readable rows of a table, in the order of their row ids."""

    def __init__(self, source: apsw.Connection, table: str, fields: str, highest: int | None) -> None:
        self._source = source
        self._table = table
        self._fields = fields
        self._highest = highest
        self._has_rowid = not source.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table,)).get
        self.lost_rows = 0

    def batches(self) -> Iterator[list[Any]]:
        if not self._has_rowid:
            # These are small tables of notes; none contains documents.
            try:
                yield self._source.execute(f"SELECT {self._fields} FROM {self._table}").fetchall()
            except apsw.CorruptError:
                self.lost_rows += 1
            return
        after = 0
        while True:
            try:
                rows = self._read("rowid > ? ORDER BY rowid LIMIT ?", after, _BATCH)
            except apsw.CorruptError:
                rows, after, is_last = self._search(after)
                yield [row[1:] for row in rows]
                if is_last:
                    return
                continue
            if not rows:
                return
            yield [row[1:] for row in rows]
            after = rows[-1][0]

    def _read(self, where: str, *values: int) -> list[Any]:
        sql = f"SELECT rowid, {self._fields} FROM {self._table} NOT INDEXED WHERE {where}"
        return self._source.execute(sql, values).fetchall()

    def _search(self, after: int) -> tuple[list[Any], int, bool]:
        """Read the next ids one by one, up to a batch; return the readable rows, the last id that
        was tried, and True at the end.
        """
        found: list[Any] = []
        barren = 0
        while not self._is_end(after, barren) and len(found) < _BATCH:
            after += 1
            try:
                rows = self._read("rowid = ?", after)
            except apsw.CorruptError:
                rows = []
            self.lost_rows += barren if rows else 0
            barren = 0 if rows else barren + 1
            found += rows
        # All ids after the last row are on the last page; it is unknown how many of them were rows.
        is_last = self._is_end(after, barren)
        self.lost_rows += 1 if is_last and barren else barren
        return found, after, is_last

    def _is_end(self, after: int, barren: int) -> bool:
        return barren >= _BARREN if self._highest is None else after >= self._highest


def _highest_id(source: apsw.Connection) -> int | None:
    """Return an upper limit for the row ids of all tables (the highest of chunks, revisions, sealed
    records and openings), or None if it is unreadable.
    """
    try:
        counted = "('chunk', 'revision', 'sealed_record', 'life')"
        highest = source.execute(f"SELECT max(seq) FROM sqlite_sequence WHERE name IN {counted}").get
    except apsw.CorruptError:
        return None
    return int(highest) if isinstance(highest, int) else None


def _continue_ids(source: apsw.Connection, target: apsw.Connection) -> None:
    """Continue the id sequences, so that no id is given twice, not even that of a lost row."""
    ids = "SELECT name, seq FROM sqlite_sequence"
    present: list[Any] = target.execute(ids).fetchall()
    last: list[Any] = []
    with contextlib.suppress(apsw.CorruptError):
        last = source.execute(ids).fetchall()
    target.execute("DELETE FROM sqlite_sequence")
    for name in {name for name, _ in (*last, *present)}:
        highest = max(seq for other, seq in (*last, *present) if other == name)
        target.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, highest))


def _remove(new: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
