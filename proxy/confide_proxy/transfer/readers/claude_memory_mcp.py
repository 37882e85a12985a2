"""The client of claude-memory-mcp: one SQLite database; its `PRAGMA user_version` is 2 at the time of writing, and 0 and 1 are read too.

A memory that its server knows has the server's number, which lasts: a full sync may give it another local one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confide_proxy.importing.fields import MAX_LIST, record_of
from confide_proxy.importing.reader import Losses
from confide_proxy.importing.record import Record
from confide_proxy.importing.sqlite_file import opened, tables_of

_COLUMNS = frozenset({"id", "content", "category", "tags", "importance", "created_at", "updated_at"})
_MARKS = _COLUMNS | {"expanded_keywords", "is_sensitive"}
_REDACTED = "[REDACTED:"
_ORDER = ("created_at", "updated_at", "category", "tags", "importance")
_TAKEN = frozenset({*_ORDER, "id", "content", "expanded_keywords", "is_sensitive"})


class ClaudeMemoryMcpReader:
    """`memory.db` of claude-memory-mcp."""

    name = "claude-memory-mcp"
    title = "claude-memory-mcp"

    def recognises(self, path: Path) -> bool:
        """By the columns of its table."""
        return tables_of(path).get("memories", frozenset()) >= _MARKS

    def places(self, home: Path) -> list[Path]:
        """Where it is unless `MEMORY_HOME` or `MEMORY_DB` said otherwise; the second is that of its earlier name."""
        return [home / ".claude" / name / "memory" / "memory.db" for name in ("claude-memory", "metaclaw")]

    def read(self, path: Path, losses: Losses) -> Iterator[Record]:
        """See `Reader.read`."""
        with opened(path, {"memories": _COLUMNS}) as database:
            for row in database.execute("SELECT * FROM memories ORDER BY id"):
                yield from _records(dict(row), losses)


def _records(row: Mapping[str, Any], losses: Losses) -> Iterator[Record]:
    server_id, content = row.get("server_id"), row["content"]
    origin = f"server-{server_id}" if server_id is not None else f"local-{row['id']}"
    if not isinstance(content, str):
        losses.add(origin, "has no text")
        return
    if row.get("is_sensitive") and _REDACTED not in content:
        # Without a server the secret itself stands here, and would go to every machine that syncs the project.
        losses.add(origin, "is marked as sensitive and not redacted, so it stays where it is")
        return
    fields = {name: row[name] for name in _ORDER} | {
        name: value for name, value in row.items() if name not in _TAKEN and not isinstance(value, bytes)
    }
    if row.get("is_sensitive"):
        fields |= {"is_sensitive": True, "secret": "not read: claude-memory-mcp keeps it encrypted in another place"}
    stated = row.get("expanded_keywords")
    words = tuple(dict.fromkeys(stated.split())) if isinstance(stated, str) else ()
    if len(words) > MAX_LIST:
        fields["expanded_keywords"] = stated
    yield record_of(ClaudeMemoryMcpReader.name, origin, content, fields, keywords=words[:MAX_LIST])


READER = ClaudeMemoryMcpReader()
