"""Reads the table `facts` of min-memory before its Qdrant version: entity, attribute, value,
timestamp.

The text, scope and type of each note follow min-memory's own design for the migration ("Data
Migration").
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator

from confide_transfer.local.fields import record_of
from confide_transfer.local.formats.sqlite import SqliteReader
from confide_transfer.local.reader import Losses, MemoryRecord

_COLUMNS = frozenset({"entity", "attribute", "value", "timestamp"})
_PROJECTS = frozenset({"clarity"})
"""The entity that the design treats as a project; all others are about the user."""


def _records(database: sqlite3.Connection, losses: Losses) -> Iterator[MemoryRecord]:
    seen: Counter[str] = Counter()
    for row in map(dict, database.execute("SELECT * FROM facts ORDER BY rowid")):
        entity, attribute, value, timestamp = (row.pop(name) for name in ("entity", "attribute", "value", "timestamp"))
        origin = f"{entity}.{attribute}@{timestamp or ''}"
        seen[origin] += 1
        if seen[origin] > 1:
            # Several values of one attribute, written in the same second.
            origin = f"{origin}#{seen[origin]}"
        if value is None or isinstance(value, bytes) or not isinstance(entity, str):
            losses.add(origin, "has no value")
            continue
        is_project = entity in _PROJECTS
        named = f"{entity}.{attribute}" if attribute else entity
        metadata = {name: rest for name, rest in row.items() if name != "id" and not isinstance(rest, bytes | None)}
        yield record_of(
            READER.name,
            origin,
            f"{named}: {value}",
            {"created": timestamp, "entity": entity, "tags": [attribute] if attribute else [], "metadata": metadata},
            title=named[:200],
            scope="project" if is_project else "global",
            type="project_context" if is_project else "core_identity",
            project=entity if is_project else None,
        )


READER = SqliteReader(
    name="min-memory-facts",
    title="the facts table of min-memory",
    tables={"facts": _COLUMNS},
    stores=(".local/share/mcp-memory/memory.db",),
    records=_records,
)
