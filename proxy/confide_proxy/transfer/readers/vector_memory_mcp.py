"""vector-memory-mcp: a LanceDB table `memories` up to its version 1, the same columns and more in SQLite since.

A memory that another one replaced names it in `superseded_by`; one that was deleted has the word DELETED there.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from confide_memory.note import MAX_RELATIONS
from confide_proxy.transfer.fields import json_object, moment, record_of
from confide_proxy.transfer.files import is_folder
from confide_proxy.transfer.formats import lance
from confide_proxy.transfer.formats.sqlite import has_tables, opened
from confide_proxy.transfer.reader import Losses, Reader
from confide_proxy.transfer.record import Record

_DELETED = "DELETED"
_TABLE = "memories.lance"
_NEEDED = frozenset({"id", "content", "metadata", "created_at", "updated_at", "superseded_by"})
_MARKS = _NEEDED | {"usefulness"}
_SINCE = ("usefulness", "access_count", "last_accessed")
"""Columns that its first versions had not."""
_TIMES = ("created_at", "updated_at", "last_accessed", "expires_at")
_TAKEN = frozenset({"id", "content", "metadata", "superseded_by", "embedding", "vector"})
_USUAL = {"usefulness": 0.0, "access_count": 0, "pinned": 0, "archived": 0}
"""What a column holds that says nothing."""

_Rows = Callable[[], Iterator[Mapping[str, Any]]]


class VectorMemoryReader(Reader):
    """The folder of its LanceDB database, or its SQLite file."""

    name = "vector-memory-mcp"
    title = "vector-memory-mcp"

    def recognises(self, path: Path) -> bool:
        """By the columns of its table."""
        if is_folder(path):
            return lance.has_columns(_table(path), ("superseded_by", "content", "metadata"))
        return has_tables(path, {"memories": _MARKS})

    def places(self, home: Path) -> list[Path]:
        """The store of the whole machine. That of a project is in the project: `.memory/db`, later `.vector-memory/memories.db`."""
        return [home / ".local" / "share" / "vector-memory-mcp" / "memories.db"]

    def read(self, path: Path, losses: Losses) -> Iterator[Record]:
        """See `Reader.read`."""
        if is_folder(path):
            yield from _records(lambda: lance.rows(_table(path), self.title, sorted(_NEEDED), _SINCE), losses)
            return
        with opened(path, {"memories": _MARKS}) as database:
            yield from _records(lambda: _sqlite_rows(database), losses)


def _table(path: Path) -> Path:
    return path if path.name == _TABLE else path / _TABLE


def _sqlite_rows(database: sqlite3.Connection) -> Iterator[Mapping[str, Any]]:
    for row in database.execute("SELECT * FROM memories ORDER BY rowid"):
        yield dict(row)


def _records(rows: _Rows, losses: Losses) -> Iterator[Record]:
    """Read twice: a relation is stated by the newer memory, and known from the older one."""
    newer_of = {row["id"]: row["superseded_by"] for row in rows()}
    kept = {memory for memory, newer in newer_of.items() if newer != _DELETED}
    older_than: dict[Any, list[str]] = defaultdict(list)
    for memory, newer in newer_of.items():
        if memory in kept and newer in kept:
            older_than[newer].append(str(memory))
    for row in rows():
        origin, content = str(row["id"]), row["content"]
        if row["superseded_by"] == _DELETED:
            losses.add(origin, "was deleted there")
        elif not isinstance(content, str):
            losses.add(origin, "has no text")
        else:
            older = older_than.get(row["id"], [])
            yield _record(row, origin, content, older[:MAX_RELATIONS], is_known=row["superseded_by"] in kept)


def _record(row: Mapping[str, Any], origin: str, content: str, older: list[str], *, is_known: bool) -> Record:
    fields = {name: _time(row[name]) for name in _TIMES if row.get(name) is not None}
    fields |= {
        name: value
        for name, value in row.items()
        if name not in fields and name not in _TAKEN and not isinstance(value, bytes) and value != _USUAL.get(name)
    }
    metadata: dict[str, Any] = {}
    for name, value in json_object(row["metadata"]).items():
        # A column's name in the metadata is another thing, whatever it says.
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


def _time(value: Any) -> Any:
    """ISO 8601; SQLite has thousandths of a second, Lance a `datetime`. What is neither stays as it is."""
    return moment(value.isoformat() if isinstance(value, datetime) else value) or value


READER = VectorMemoryReader()
