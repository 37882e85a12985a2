"""Reads claude-mem since version 4: the SQLite database of its observations of coding sessions.

An observation becomes a note, and so does the summary of a session. The user's prompts are a
transcript rather than a memory: those of a session become one note, to which its observations and
summaries have a `part_of` relation.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from confide_transfer.local.fields import json_value, moment, to_json
from confide_transfer.local.formats.sqlite import SqliteReader, columns_in, telling
from confide_transfer.local.reader import MAX_CONTENT_BYTES, Fields, MemoryRecord, screen

# The column names before version 6 (sdk_session_id, claude_session_id) are not read: its own worker
# renames them when it starts.
_TABLES = {
    "sdk_sessions": frozenset({"id", "content_session_id", "memory_session_id", "project"}),
    "observations": frozenset({"id", "memory_session_id", "project", "type", "title", "narrative", "facts"}),
    "session_summaries": frozenset({"id", "memory_session_id", "project", "request", "learned"}),
}
_PROMPTS = frozenset({"content_session_id", "prompt_number", "prompt_text"})
_SAID = ("investigated", "learned", "completed", "next_steps", "notes")
_CATEGORIES = {"decision": "decisions"}
_LISTS = ("facts", "concepts", "files_read", "files_modified", "files_edited", "metadata")
_USUAL = {
    "relevance_count": 0,
    "discovery_tokens": 0,
    "prompt_counter": 0,
    "sync_rev": "1",
    "platform_source": "claude",
}
"""Columns that carry no information while they have these values."""
_TITLE_CHARS = 120


def _records(database: sqlite3.Connection) -> Iterator[MemoryRecord]:
    """Yield the sessions with their prompts, then observations, then summaries, each in the order
    of their numbers.
    """
    sessions: dict[str, str] = {}
    prompts = columns_in(database).get("user_prompts", frozenset())
    for row in database.execute("SELECT * FROM sdk_sessions ORDER BY id"):
        record = _session(row, list(_prompts(database, row, prompts)) if prompts >= _PROMPTS else [])
        if record is not None:
            sessions[str(row["memory_session_id"])] = record.origin
            yield record
    for row in database.execute("SELECT * FROM observations ORDER BY id"):
        yield _observation(row, sessions)
    for row in database.execute("SELECT * FROM session_summaries ORDER BY id"):
        yield _summary(row, sessions)


def _prompts(database: sqlite3.Connection, session: sqlite3.Row, columns: frozenset[str]) -> Iterator[str]:
    """Yield the prompts of a session, as many as fit into one note."""
    where, key = ("content_session_id = ?", "content_session_id")
    if "session_db_id" in columns:
        # Two programs may have given their sessions the same name.
        where, key = ("session_db_id = ?", "id")
    rows = database.execute(
        f"SELECT prompt_text FROM user_prompts WHERE {where} ORDER BY prompt_number, id",  # noqa: S608 - two constants
        (session[key],),
    )
    room = MAX_CONTENT_BYTES
    for row in rows:
        text = str(row["prompt_text"] or "").strip()
        room -= len(text.encode("utf-8", "surrogateescape")) + 16
        if room < 0:
            return
        if text:
            yield text


def _session(row: sqlite3.Row, prompts: list[str]) -> MemoryRecord | None:
    fields = _fields(row)
    first = str(fields.pop("user_prompt", "") or "").strip()
    if not prompts:
        if not first:
            return None
        prompts = [first]
    title = fields.pop("custom_title", None) or _line(prompts[0])
    content = "\n".join(f"{number}. {_indent(text)}" for number, text in enumerate(prompts, 1))
    ended = _time(fields, "completed_at")
    return _record("session", content, fields, "started_at", title=to_json(title), type="episodic", updated=ended)


def _observation(row: sqlite3.Row, sessions: dict[str, str]) -> MemoryRecord:
    fields = _fields(row)
    facts, concepts = _texts(fields.pop("facts", None)), _texts(fields.pop("concepts", None))
    said = [str(fields.pop(name, None) or "").strip() for name in ("subtitle", "narrative", "text")]
    parts = [*said, "\n".join(f"- {_indent(fact)}" for fact in facts)]
    title = fields.pop("title", None)
    kind = fields.pop("type", None)
    return _record(
        "observation",
        "\n\n".join(part for part in parts if part) or str(title or ""),
        fields,
        title=to_json(title),
        type=kind,
        category=_CATEGORIES.get(str(kind)),
        tags=tuple(concepts),
        relations=_part_of(row, sessions),
    )


def _summary(row: sqlite3.Row, sessions: dict[str, str]) -> MemoryRecord:
    fields = _fields(row)
    request = str(fields.pop("request", None) or "").strip()
    parts = [request]
    for name in _SAID:
        if text := str(fields.pop(name, None) or "").strip():
            parts.append(f"## {name.replace('_', ' ').capitalize()}\n\n{text}")
    content = "\n\n".join(part for part in parts if part)
    related = _part_of(row, sessions)
    return _record("summary", content, fields, title=_line(request) or None, type="episodic", relations=related)


def _record(kind: str, content: str, fields: Fields, begun: str = "created_at", **known: Any) -> MemoryRecord:
    """Return a record with the remaining fields as its metadata."""
    origin = f"{kind}:{fields.pop('id')}"
    project, created = _project(fields), _time(fields, begun)
    return MemoryRecord(READER.name, origin, content, project=project, created=created, metadata=fields, **known)


def _part_of(row: sqlite3.Row, sessions: dict[str, str]) -> tuple[tuple[str, str], ...]:
    session = sessions.get(str(row["memory_session_id"]))
    return (("part_of", session),) if session else ()


def _project(fields: Fields) -> str | None:
    """Return the project; for a merged worktree, the project that it was merged into."""
    own = fields.pop("project", None)
    if merged := fields.pop("merged_into_project", None):
        fields["project"] = own
        return str(to_json(merged))
    return str(to_json(own)) if own else None


def _fields(row: sqlite3.Row) -> Fields:
    """Return the columns with information; lists are parsed."""
    columns = dict(row)
    lists = {name: json_value(columns[name]) for name in _LISTS if isinstance(columns.get(name), str)}
    return telling(columns | lists, _USUAL)


def _texts(value: Any) -> list[str]:
    """Return a list of texts; a single value, as old versions wrote it, becomes a list of one."""
    items = value if isinstance(value, list) else [value]
    return [str(to_json(item)).strip() for item in items if isinstance(item, str | int | float) and str(item).strip()]


def _time(fields: Fields, name: str) -> str | None:
    """Return the time in milliseconds since 1970, or else the text beside it, as ISO 8601."""
    epoch, text = fields.pop(f"{name}_epoch", None), fields.pop(name, None)
    return moment(epoch) or moment(text)


def _line(text: str) -> str:
    first = next((line.strip(" #*`") for line in text.splitlines() if line.strip(" #*`")), "")
    return str(to_json(first if len(first) <= _TITLE_CHARS else first[: _TITLE_CHARS - 1].rstrip() + "…"))


def _indent(text: str) -> str:
    """Indent a text of several lines as one list item."""
    return text.replace("\n", "\n   ")


READER = SqliteReader(
    name="claude-mem",
    title="claude-mem",
    tables=_TABLES,
    stores=(".claude-mem/claude-mem.db",),  # default path without CLAUDE_MEM_DATA_DIR
    records=lambda database, losses: screen(_records(database), losses),
)
