"""Reads the client of claude-memory-mcp: one SQLite database with `PRAGMA user_version` 0, 1 or 2
(the current one).

The origin of a memory that its server has is the server's number, which lasts: a full sync may
change the local number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from confide_memory.note import MAX_KEYWORDS
from confide_transfer.local.fields import record_of
from confide_transfer.local.formats.sqlite import SqliteReader, telling
from confide_transfer.local.reader import Losses, MemoryRecord

_COLUMNS = frozenset({"id", "content", "category", "tags", "importance", "created_at", "updated_at"})
_REDACTED = "[REDACTED:"
_TAKEN = frozenset({"id", "content", "expanded_keywords", "is_sensitive"})


def _records(database: sqlite3.Connection, losses: Losses) -> Iterator[MemoryRecord]:
    for row in map(dict, database.execute("SELECT * FROM memories ORDER BY id")):
        server_id, content = row.get("server_id"), row["content"]
        origin = f"server-{server_id}" if server_id is not None else f"local-{row['id']}"
        if not isinstance(content, str):
            losses.add(origin, "has no text")
            continue
        if row.get("is_sensitive") and _REDACTED not in content:
            # Without a server the secret itself is here, and an import would send it to every
            # device of the project.
            losses.add(origin, "is marked as sensitive and not redacted, so it stays where it is")
            continue
        fields = telling(row, {}, _TAKEN)
        if row.get("is_sensitive"):
            unread = "not read: claude-memory-mcp keeps it encrypted in another place"
            fields |= {"is_sensitive": True, "secret": unread}
        stated = row.get("expanded_keywords")
        words = tuple(dict.fromkeys(stated.split())) if isinstance(stated, str) else ()
        if len(words) > MAX_KEYWORDS:
            fields["expanded_keywords"] = stated
        yield record_of(READER.name, origin, content, fields, keywords=words[:MAX_KEYWORDS])


READER = SqliteReader(
    name="claude-memory-mcp",
    title="claude-memory-mcp",
    tables={"memories": _COLUMNS},
    marks={"memories": _COLUMNS | {"expanded_keywords", "is_sensitive"}},
    # Default paths without `MEMORY_HOME` and `MEMORY_DB`; the second belongs to its earlier name.
    stores=(".claude/claude-memory/memory/memory.db", ".claude/metaclaw/memory/memory.db"),
    records=_records,
)
