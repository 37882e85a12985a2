"""The client of claude-memory-mcp: one SQLite database; its `PRAGMA user_version` is 2 at the time of writing, and 0 and 1 are read too.

A memory that its server knows has the server's number, which lasts: a full sync may give it another local one.
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
            # Without a server the secret itself stands here, and would go to every machine that syncs the project.
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
    # Unless `MEMORY_HOME` or `MEMORY_DB` said otherwise; the second is that of its earlier name.
    stores=(".claude/claude-memory/memory/memory.db", ".claude/metaclaw/memory/memory.db"),
    records=_records,
)
