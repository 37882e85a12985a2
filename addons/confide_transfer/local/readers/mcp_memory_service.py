"""Reads mcp-memory-service: the SQLite database of its sqlite-vec backend, versions 8 to 12.

A memory is a row of the table `memories`, identified by the hash of its content. A deleted memory
is a row with `deleted_at`, and is skipped. Links are in `memory_graph`, later versions of a memory
in `superseded_by`; older databases may lack both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator

from confide_transfer.local.fields import json_value, moment, to_json
from confide_transfer.local.formats.sqlite import SqliteReader, columns_in, telling
from confide_transfer.local.reader import Fields, Losses, MemoryRecord, kind_of, screen

_TABLES = {"memories": frozenset({"content_hash", "content", "tags", "memory_type", "metadata", "created_at"})}
_LINKS = frozenset({"source_hash", "target_hash", "relationship_type"})
_ALIKE = ("follows", "related", "causes", "fixes", "derived_from", "shares_entity")
"""Its relations that have no equivalent among the notes' relations (models/ontology.py)."""
_TIMES = ("created_at", "updated_at", "created_at_iso", "updated_at_iso", "deleted_at")
_MAPPED = frozenset({"id", "content_hash", "content", "tags", "memory_type", "metadata", *_TIMES})
_USUAL = {"store": "default", "version": 1, "confidence": 1.0, "embedding_pending": 0}
"""Columns that carry no information while they have these values."""
_CATEGORIES = {"decision": "decisions", "preference": "preferences", "project": "projects", "person": "people"}


def _records(database: sqlite3.Connection, losses: Losses) -> Iterator[MemoryRecord]:
    tables = columns_in(database)
    columns, links = tables["memories"], tables.get("memory_graph", frozenset())
    alive = "deleted_at IS NULL" if "deleted_at" in columns else "1"
    followers: dict[str, list[str]] = {}
    if "superseded_by" in columns:
        older = f"SELECT superseded_by, content_hash FROM memories WHERE superseded_by <> '' AND {alive} ORDER BY rowid"  # noqa: S608
        for row in database.execute(older):
            followers.setdefault(str(row["superseded_by"]), []).append(str(row["content_hash"]))
    for row in database.execute(f"SELECT * FROM memories WHERE {alive} ORDER BY rowid"):  # noqa: S608 - two constants
        digest, content = row["content_hash"], row["content"]
        if not isinstance(digest, str) or not digest.isprintable() or not isinstance(content, str):
            losses.add(f"row {row['id'] if 'id' in columns else '?'}", "has no hash or no text")
            continue
        relations = [("supersedes", older) for older in followers.get(digest, ())]
        kept: list[Fields] = []
        if links >= _LINKS:
            for link in _links(database, digest):
                kind, is_same = kind_of(str(link["relationship_type"] or "related"))
                relations.append((kind, str(link["target_hash"])))
                if not is_same or link["relationship_type"] in _ALIKE:
                    kept.append(_set(link, ("source_hash",)))
        yield _record(row, content, relations, kept)


def _links(database: sqlite3.Connection, digest: str) -> Iterator[sqlite3.Row]:
    """Return the links from this memory. Symmetric relations are stored twice and returned once."""
    return database.execute(
        "SELECT * FROM memory_graph AS link WHERE source_hash = ? AND (source_hash < target_hash OR NOT EXISTS (SELECT 1"
        " FROM memory_graph WHERE source_hash = link.target_hash AND target_hash = link.source_hash"
        " AND relationship_type IS link.relationship_type)) ORDER BY target_hash LIMIT 256",
        (digest,),
    )


def _record(row: sqlite3.Row, content: str, relations: list[tuple[str, str]], kept: list[Fields]) -> MemoryRecord:
    own = json_value(row["metadata"]) or {}
    metadata = own if isinstance(own, dict) else {"metadata": own}
    # "untagged" is its default for memories without tags.
    tags = [tag.strip() for tag in str(row["tags"] or "").split(",") if tag.strip() and tag.strip() != "untagged"]
    kind = row["memory_type"] if isinstance(row["memory_type"], str) and row["memory_type"] else None
    return MemoryRecord(
        READER.name,
        row["content_hash"],
        content,
        type=kind,
        category=_CATEGORIES.get(kind or ""),
        tags=tuple(to_json(list(dict.fromkeys(tags)))),
        created=moment(row["created_at"]),
        updated=moment(row["updated_at"]) if "updated_at" in row.keys() else None,  # noqa: SIM118 - a row is no mapping
        relations=tuple(dict.fromkeys(relations)),
        metadata=metadata | _set(row, _MAPPED) | ({"memory_graph": kept} if kept else {}),
    )


def _set(row: sqlite3.Row, without: Collection[str]) -> Fields:
    """Return the columns with information, except `without`; JSON texts are parsed."""
    columns = {
        name: json_value(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
        for name, value in dict(row).items()
    }
    return telling(columns, _USUAL, without)


READER = SqliteReader(
    name="mcp-memory-service",
    title="mcp-memory-service",
    tables=_TABLES,
    # Folders from config/base.py, for Linux and macOS.
    stores=(".local/share/mcp-memory/sqlite_vec.db", "Library/Application Support/mcp-memory/sqlite_vec.db"),
    records=lambda database, losses: screen(_records(database, losses), losses),
)
