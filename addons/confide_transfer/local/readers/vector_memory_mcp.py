"""Reads vector-memory-mcp: up to version 1 a LanceDB table `memories`, since then the same columns
and more in SQLite.

A replaced memory names its successor in `superseded_by`; a deleted one has the word DELETED there.

The library of the extra `lancedb` reads the Lance table (https://lance.org/format). The extra is
`pylance` alone: LanceDB's own package has the same code again, and opens a database where one table
is enough.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from confide_memory.note import MAX_RELATIONS
from confide_proxy.errors import UnreadableError
from confide_transfer.errors import ReaderMissingError
from confide_transfer.local.fields import json_object, moment, record_of
from confide_transfer.local.formats.sqlite import has_tables, open_database
from confide_transfer.local.import_files import head, is_folder
from confide_transfer.local.reader import MAX_STORE_BYTES, Fields, Losses, MemoryRecord, Reader

_DELETED = "DELETED"
_TABLE = "memories.lance"
_NEEDED = frozenset({"id", "content", "metadata", "created_at", "updated_at", "superseded_by"})
_MARKS = _NEEDED | {"usefulness"}
_SINCE = ("usefulness", "access_count", "last_accessed")
"""Columns that its first versions lack."""
_TIMES = ("created_at", "updated_at", "last_accessed", "expires_at")
_TAKEN = frozenset({"id", "content", "metadata", "superseded_by", "embedding", "vector"})
_USUAL = {"usefulness": 0.0, "access_count": 0, "pinned": 0, "archived": 0}
"""Values of columns that carry no information."""

_Rows = Callable[[], Iterator[Mapping[str, object]]]
_EXTRA = "lancedb"
MAX_PARTS = 500_000
"""Limit of files in one table. Each write leaves three, until the table is compacted."""
_BATCH_ROWS = 256
_MANIFEST_BYTES = 2**16


class VectorMemoryReader(Reader):
    """Reads a LanceDB folder or a SQLite file of vector-memory-mcp."""

    name = "vector-memory-mcp"
    title = "vector-memory-mcp"
    # The device's store. A project has its own: `.memory/db`, later `.vector-memory/memories.db`.
    stores = (".local/share/vector-memory-mcp/memories.db",)

    def recognises(self, path: Path) -> bool:
        if is_folder(path):
            return _has_columns(_table(path))
        return has_tables(path, {"memories": _MARKS})

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        if is_folder(path):
            yield from _records(lambda: _lance_rows(_table(path), self.title), losses)
            return
        with open_database(path, {"memories": _MARKS}) as database:
            yield from _records(lambda: map(dict, database.execute("SELECT * FROM memories ORDER BY rowid")), losses)


def _table(path: Path) -> Path:
    return path if path.name == _TABLE else path / _TABLE


def _records(rows: _Rows, losses: Losses) -> Iterator[MemoryRecord]:
    """Yield the memories; reads the rows twice, since the newer memory states a relation that only
    the older row has.
    """
    newer_of = {row["id"]: row["superseded_by"] for row in rows()}
    alive = {memory for memory, newer in newer_of.items() if newer != _DELETED}
    older_than: dict[Any, list[str]] = defaultdict(list)
    for memory, newer in newer_of.items():
        if memory in alive and newer in alive:
            older_than[newer].append(str(memory))
    for row in rows():
        origin, content = str(row["id"]), row["content"]
        if row["superseded_by"] == _DELETED:
            losses.add(origin, "was deleted there")
        elif not isinstance(content, str):
            losses.add(origin, "has no text")
        else:
            older = older_than.get(row["id"], [])
            yield _record(row, origin, content, older[:MAX_RELATIONS], is_known=row["superseded_by"] in alive)


def _record(row: Mapping[str, object], origin: str, content: str, older: list[str], *, is_known: bool) -> MemoryRecord:
    fields: Fields = {}
    for name in _TIMES:
        if (time := row.get(name)) is not None:
            # SQLite has milliseconds, Lance a `datetime`. Other values stay as they are.
            fields[name] = moment(time.isoformat() if isinstance(time, datetime) else time) or time
    fields |= {
        name: value
        for name, value in row.items()
        if name not in fields and name not in _TAKEN and not isinstance(value, bytes) and value != _USUAL.get(name)
    }
    metadata: Fields = {}
    for name, value in json_object(row["metadata"]).items():
        # A metadata value under the name of a column that has a value stays in the metadata.
        (metadata if name in fields and fields[name] is not None else fields)[name] = value
    project = fields.get("project")
    if isinstance(project, str) and "/" in project:
        # Since version 2 it is the project's folder.
        metadata["project"] = project
        fields["project"] = Path(project).name
    if row["superseded_by"] is not None and not is_known:
        metadata["superseded_by"] = row["superseded_by"]
    relations = tuple(("supersedes", other) for other in older)
    return record_of(VectorMemoryReader.name, origin, content, fields, relations=relations, metadata=metadata)


def _has_columns(table: Path) -> bool:
    """Return True if the newest manifest of the table names its columns. Needs no library; never
    raises.
    """
    try:
        with os.scandir(table / "_versions") as found:
            names = sorted(entry.name for entry in found if entry.name.endswith(".manifest"))
    except (OSError, ValueError):
        return False
    # Newer versions count down from 2^64 in their names; in older tables the first name may not be
    # the newest, which does not matter here.
    manifest = head(table / "_versions" / names[0], _MANIFEST_BYTES) if names else b""
    return all(column in manifest for column in (b"superseded_by", b"content", b"metadata"))


def _lance_rows(table: Path, title: str) -> Iterator[Fields]:
    """Yield the rows; times are `datetime` in UTC without a zone.

    Raise ReaderMissingError if the library is not installed, and UnreadableError if it is not a
    Lance table, is damaged, or refers to files elsewhere.
    """
    try:
        import lance
    except ImportError as error:
        raise ReaderMissingError(title, _EXTRA) from error
    _check(table)
    batches = _batches(lance, table)
    while (batch := _reading(table, lambda: next(batches, None))) is not None:
        yield from batch


def _batches(lance: Any, table: Path) -> Iterator[list[Fields]]:
    import pyarrow

    dataset = lance.dataset(str(table.absolute()))
    found = dataset.schema.names
    if missing := _NEEDED - set(found):
        raise UnreadableError(table, f"has no column {min(missing)}")
    for fragment in dataset.get_fragments():
        for file in fragment.data_files():
            if getattr(file, "base_id", None) is not None or Path(file.path).name != file.path:
                raise UnreadableError(table, "refers to files outside of it")
    present = [*sorted(_NEEDED), *(column for column in _SINCE if column in found)]
    scanner = dataset.scanner(columns=present, batch_size=_BATCH_ROWS, scan_in_order=True)
    for batch in scanner.to_batches():
        part = pyarrow.Table.from_batches([batch])
        for index, field in enumerate(part.schema):
            if pyarrow.types.is_timestamp(field.type):
                # The unit changed with the versions; times finer than milliseconds would require
                # pandas.
                column = part.column(index).cast(pyarrow.timestamp("ms"), safe=False)
                part = part.set_column(index, field.name, column)
        yield part.to_pylist()


def _reading(table: Path, step: Any) -> Any:
    try:
        return step()
    except UnreadableError:
        raise
    except BaseException as error:
        # A panic in the library is not an `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        problem = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise UnreadableError(
            table,
            f"cannot be read as a Lance table: {problem}",
            hint="if a newer LanceDB wrote it: pip install --upgrade pylance",
        ) from error


def _check(table: Path) -> None:
    """Refuse a table with symlinks, which the library would follow, or one that is too large."""
    if not is_folder(table):
        raise UnreadableError(table, "is no folder")
    left, size, folders = MAX_PARTS, 0, [table]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    left -= 1
                    if entry.is_symlink():
                        raise UnreadableError(table, "holds a symlink")
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        size += entry.stat(follow_symlinks=False).st_size
                    if left < 0 or size > MAX_STORE_BYTES:
                        raise UnreadableError(table, "is larger than what is imported", hint="compact the table first")
        except OSError as error:
            raise UnreadableError(table, f"cannot be listed: {error.strerror}") from error


READER = VectorMemoryReader()
