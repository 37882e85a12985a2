"""Reads `@claude-memory/server`: `global.db` has the tasks and the memories without a project,
`projects/<id>/project.db` those of a project.

The table `meta` has the schema's version: 1 as first published; 2 and 3 added columns to
`memories`. Chunks and vectors are derived.

A project's id is a name that an agent gave it or, from its hooks, a hash of its git remote or its
path, which cannot be reversed. Such a project keeps the hash as its name, unless only its database
is imported: then the user has chosen the project.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import json_object, record_of
from confide_transfer.local.formats.sqlite import has_tables, open_database, tables_of, telling
from confide_transfer.local.import_files import is_folder
from confide_transfer.local.reader import MAX_FILES, Fields, Losses, MemoryRecord, Reader

_TABLES: dict[str, frozenset[str]] = {
    "memories": frozenset({"id", "content", "source", "project_id", "created_at", "updated_at", "metadata"}),
    "tags": frozenset({"id", "name"}),
    "memory_tags": frozenset({"memory_id", "tag_id"}),
}
_TASKS = frozenset({"id", "description", "type", "status", "priority", "project_id", "created_at", "updated_at"})
_RESULTS = frozenset({"task_id", "output", "summary", "success", "error", "created_at"})
_HASH = re.compile(r"[0-9a-f]{16}")
_MOST_TAGS = 1000
"""Limit of tags of one memory; `record_of` applies the lower limit of a note."""
_USUAL: Fields = {
    "memory_type": "general",
    "is_rule": 0,
    "storage_tier": "active",
    "access_count": 0,
    "retry_count": 0,
    "max_retries": 1,
    "timeout_ms": 1_800_000,
}
"""Values of columns that carry no information."""


class ClaudeMemoryServerReader(Reader):
    """Reads the data folder of `@claude-memory/server`, or one of its databases."""

    name = "claude-memory-server"
    title = "@claude-memory/server"
    stores = (".claude-memory/data",)  # default path without `DATA_DIR`

    def recognises(self, path: Path) -> bool:
        database = path / "global.db" if is_folder(path) else path
        return has_tables(database, _TABLES | {"chunks": frozenset()})

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        """Yield all memories (see `Reader.read`). A damaged database of one project does not stop
        the reading of the others.
        """
        if not is_folder(path):
            for record in _read(path, losses):
                if record.project is not None and _HASH.fullmatch(record.project):
                    # Belongs to the project that it is imported into.
                    record = replace(record, project=None, metadata=record.metadata | {"project_id": record.project})
                yield record
            return
        yield from _read(path / "global.db", losses)
        for database in _project_databases(path / "projects"):
            try:
                yield from _read(database, losses)
            except UnreadableError as error:
                losses.add(database.relative_to(path).as_posix(), error.problem)


def _project_databases(folder: Path) -> list[Path]:
    if not is_folder(folder):
        return []
    try:
        with os.scandir(folder) as found:
            names = sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        raise UnreadableError(folder, f"cannot be listed: {error.strerror}") from error
    if len(names) > MAX_FILES:
        raise UnreadableError(folder, f"holds more than {MAX_FILES:,} projects", hint="name one project.db")
    return [database for name in names if (database := folder / name / "project.db").exists()]


def _read(path: Path, losses: Losses) -> Iterator[MemoryRecord]:
    has_tasks = "tasks" in tables_of(path)
    with open_database(path, _TABLES | ({"tasks": _TASKS, "task_results": _RESULTS} if has_tasks else {})) as database:
        for row in database.execute("SELECT * FROM memories ORDER BY rowid"):
            yield from _memory(database, dict(row), losses)
        if has_tasks:
            for row in database.execute("SELECT * FROM tasks ORDER BY rowid"):
                yield from _task(database, dict(row), losses)


def _memory(database: sqlite3.Connection, row: Fields, losses: Losses) -> Iterator[MemoryRecord]:
    origin, content, project = str(row.pop("id")), row.pop("content"), row.pop("project_id")
    if not isinstance(content, str):
        losses.add(origin, "has no text")
        return
    found = database.execute(
        "SELECT tags.name FROM memory_tags JOIN tags ON tags.id = memory_tags.tag_id"
        " WHERE memory_tags.memory_id = ? ORDER BY tags.id LIMIT ?",
        (origin, _MOST_TAGS),
    )
    tags = [str(tag["name"]) for tag in found]
    own = json_object(row.pop("metadata"))
    renamed = {"project": project, "tags": tags, "importance": row.pop("importance_score", None)}
    # Its own fields come first: the user's metadata keeps its names there.
    fields = telling(renamed | row, _USUAL) | {"metadata": own}
    scope = "global" if project is None else "project"
    yield record_of(ClaudeMemoryServerReader.name, origin, content, fields, scope=scope)


def _task(database: sqlite3.Connection, row: Fields, losses: Losses) -> Iterator[MemoryRecord]:
    """Yield the note of a task of the overnight queue: its description, and its results under
    headings.
    """
    task, content = row.pop("id"), row.pop("description")
    origin = f"task-{task}"
    if not isinstance(content, str):
        losses.add(origin, "has no text")
        return
    results = [
        dict(result)
        for result in database.execute("SELECT * FROM task_results WHERE task_id = ? ORDER BY rowid LIMIT 100", (task,))
    ]
    parts = [content.strip()]
    for result in results:
        said = [result.pop(name) for name in ("summary", "output", "error")]
        texts = [text.strip() for text in said if isinstance(text, str) and text.strip()]
        parts.append("\n\n".join([f"## Result of {result['created_at']}", *texts]))
        del result["task_id"]
    project = row.pop("project_id")
    context = json_object(row.pop("context", None))
    # The queue's priorities are numbers of their own scale.
    metadata = {"priority": row.pop("priority"), "task_type": row.pop("type"), "context": context, "results": results}
    yield record_of(
        ClaudeMemoryServerReader.name,
        origin,
        "\n\n".join(parts),
        telling(row, _USUAL) | {"metadata": {name: value for name, value in metadata.items() if value}},
        project=project if isinstance(project, str) else None,
        scope="global" if project is None else "project",
        type="task_instruction",
        tags=("task",),
    )


READER = ClaudeMemoryServerReader()
