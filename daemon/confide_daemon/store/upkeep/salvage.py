"""A new database out of all that can be read of a damaged one.

Pages are authenticated, so one wrong bit makes a page unreadable, and SQLite can then neither drop nor rewrite the table it belongs to.
So every row that can be read goes into a new file, indexes are made anew, and the new file takes the place of the old one, which stays
beside it. The rest is what `repair` does: what is missing now is a breach like any other.

A reading that has met a damaged page fails until its transaction ends, so rows are read in transactions of their own.
"""

# ruff: noqa: S608 - only names out of the database's own schema are put into SQL; every value is a parameter

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
# Where pages are unreadable, row ids are tried one by one, 15 us each, up to the highest that was ever given; where nobody knows that, so
# many without a row are the end.
_BARREN: Final = 65_536


def salvage(path: Path, key: bytes) -> int:
    """`copy` and `swap`, where nobody has the file open; how many rows are lost."""
    lost = copy(path, key)
    swap(path, key)
    return lost


def copy(path: Path, key: bytes) -> int:
    """Makes `<name>.new` of what can be read, which nobody may write to meanwhile; how many rows that are not derived are lost.

    Of rows on unreadable pages nobody knows how many there were: the number is a guess, but 0 means none.

    Raises StorageError: there is no room for it; DamagedError: not even the names of the tables can be read.
    """
    new = path.with_name(path.name + NEW)
    _remove(new)
    problem = f"cannot {DOING}: the disk has no room for it beside the old one"
    check_room(path, path.stat().st_size, problem, "; it is tried again by itself")
    return _copy(path, key, new)


def swap(path: Path, key: bytes) -> None:
    """Puts `<name>.new` in the place of the file, which nobody may have open; that one stays as `<name>.damaged`, beside others.

    It can be interrupted at any moment: the name always leads to a whole database. Raises StorageError: another process has it open.
    """
    empty_log(path, key, DOING)
    places = _damaged(path)
    # The first one has what was lost then; where a disk goes on failing, the last one makes way.
    kept = next((place for place in places if not place.exists()), places[-1])
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    put_in_place(path.with_name(path.name + NEW), path)


def sweep(path: Path) -> None:
    """Removes the copy that was cut off before it was whole: it may hold what was erased since, or be under an older key."""
    with contextlib.suppress(OSError):
        _remove(path.with_name(path.name + NEW))


def forget_damaged(path: Path, before: float) -> bool:
    """Removes the damaged files that were kept beside this one, if they are from before then; whether any was."""
    # They keep the time of their last change; when each was put aside, its link tells (ctime).
    old = [kept for kept in _damaged(path) if kept.exists() and kept.stat().st_ctime < before]
    for kept in old:
        kept.unlink(missing_ok=True)
    return bool(old)


def damaged_copies(path: Path) -> int:
    """How many damaged files are kept beside this one."""
    return sum(kept.exists() for kept in _damaged(path))


def _damaged(path: Path) -> list[Path]:
    """Where damaged files are kept, in the order they are used."""
    return [path.with_name(path.name + DAMAGED + number) for number in ("", ".2", ".3")]


def _copy(path: Path, key: bytes, new: Path) -> int:
    with contextlib.closing(connect(path, key, writer=False, damaged=True)) as source:
        try:
            with contextlib.closing(connect(new, key, writer=True)) as target, storage_errors(DOING):
                # Without a log: what a full disk kept from being folded out of it would stay behind, and nobody would be told.
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
    return reader.lost


class _RowReader:
    """All rows of a table that can be read, in the order of their row ids."""

    def __init__(self, source: apsw.Connection, table: str, fields: str, highest: int | None) -> None:
        self._source = source
        self._table = table
        self._fields = fields
        self._highest = highest
        self._has_rowid = not source.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table,)).get
        self.lost = 0

    def batches(self) -> Iterator[list[Any]]:
        if not self._has_rowid:
            # Small tables of notes, none of which is a document.
            try:
                yield self._source.execute(f"SELECT {self._fields} FROM {self._table}").fetchall()
            except apsw.CorruptError:
                self.lost += 1
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
        """What can be read of the next ids, one by one, up to a batch; up to where that was, and whether it was the end."""
        found: list[Any] = []
        barren = 0
        while not self._is_end(after, barren) and len(found) < _BATCH:
            after += 1
            try:
                rows = self._read("rowid = ?", after)
            except apsw.CorruptError:
                rows = []
            self.lost += barren if rows else 0
            barren = 0 if rows else barren + 1
            found += rows
        # Behind the last row every id lies on the last page: how many of them were rows, nobody knows.
        is_last = self._is_end(after, barren)
        self.lost += 1 if is_last and barren else barren
        return found, after, is_last

    def _is_end(self, after: int, barren: int) -> bool:
        return barren >= _BARREN if self._highest is None else after >= self._highest


def _highest_id(source: apsw.Connection) -> int | None:
    """No row of any table has a higher id than this, if it can be read: of pieces, revisions, sealed records and lives."""
    try:
        counted = "('chunk', 'revision', 'sealed_record', 'life')"
        highest = source.execute(f"SELECT max(seq) FROM sqlite_sequence WHERE name IN {counted}").get
    except apsw.CorruptError:
        return None
    return int(highest) if isinstance(highest, int) else None


def _continue_ids(source: apsw.Connection, target: apsw.Connection) -> None:
    """Ids are never given twice, even those of rows that are lost."""
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
