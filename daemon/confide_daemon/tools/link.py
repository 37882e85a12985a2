"""`memory_link`: states a relation between two notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_daemon.errors import ToolError
from confide_daemon.notes import note_edit as texts
from confide_daemon.notes import note_service
from confide_daemon.store.rows import NoteRow
from confide_daemon.store.space_store import Store
from confide_daemon.tools import get
from confide_daemon.tools.note_fields import ID
from confide_daemon.tools.tool_context import (
    COUNT,
    FLAG,
    OUTCOME,
    TEXT,
    Definition,
    ToolContext,
    ToolResult,
    WrittenBack,
    record,
)
from confide_memory.note import RELATIONS, Relation

# Symmetric relations. The others have a direction, and are found from both ends anyway.
MUTUAL = ("contradicts", "see_also", "supports")

_END = record(
    {
        "id": TEXT,
        "shortId": TEXT,
        "title": TEXT,
        "path": TEXT,
        "project": TEXT,
        "revision": COUNT,
        "relations": {"type": "array", "items": get.RELATION},
    }
)

DEFINITION = Definition(
    name="memory_link",
    title="Relate notes",
    description="State what one note is to another. It is found from both; bidirectional writes it into both files.",
    properties={
        "id": {**ID, "description": "The note that states it"},
        "relatedId": ID,
        "relation": {"type": "string", "enum": list(RELATIONS)},
        "bidirectional": {"type": "boolean", "default": False, "description": f"Only {', '.join(MUTUAL)}"},
    },
    required=("id", "relatedId", "relation"),
    output=record({"note": _END, "related": _END, "changed": FLAG, **OUTCOME}, optional=("note", "related")),
    offline="queue",
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """State a relation between two notes, in the file of one of them or of both.

    Raises:
        GrantError: the caller may not write the file.
        NotFoundError: one of the notes does not exist.
        ToolError: the relation is invalid, or the note's front matter cannot be changed.
        StorageError: the database cannot be written.
        OperationError: the id of the call was used for another change before.
    """
    kind, is_mutual = arguments["relation"], arguments["bidirectional"]
    if arguments["id"] == arguments["relatedId"]:
        raise _itself()
    if is_mutual and kind not in MUTUAL:
        raise ToolError(
            f"'{kind}' has a direction, so both notes cannot state it",
            hint=f"leave bidirectional out: a relation is found from both of its notes. It is for {', '.join(MUTUAL)}",
        )
    projects = context.reachable()
    row = await context.writable(arguments["id"])
    related = arguments["relatedId"]
    other = await (context.writable(related) if is_mutual else context.space.notes.row(related, context.reachable()))
    if row.id == other.id:
        raise _itself()

    def check(store: Store) -> None:
        if kind == note_service.SUPERSEDES:
            note_service.refuse_circle(store, row.id, [other.id], projects)

    has_changed, written = await _state(context, arguments, row, Relation(kind, other.id), "", check)
    if is_mutual:
        also, mirrored = await _state(context, arguments, other, Relation(kind, row.id), "mirrored", check)
        has_changed = has_changed or also
        written = [*written, *mirrored]
    structured: dict[str, object] = {
        "changed": has_changed,
        "queued": False,
        "onDisk": all(one.on_disk for one in written),
        "warnings": list(dict.fromkeys(warning for one in written for warning in one.warnings)),
    }
    for name, end in (("note", row), ("related", other)):
        found = await context.space.notes.get(end.id, context.grants.projects_among(None))
        structured[name] = {
            **{field: getattr(found.row, field) for field in ("id", "title", "path", "project", "revision")},
            "relations": get.relations(found),
        }
    short = await context.shorten(structured)
    said = f"{short(row.id)} {kind} {short(other.id)}"
    head = (
        f"{said}{', and the other way round' if is_mutual else ''}{'' if has_changed else ', as was stated already'}."
    )
    return ToolResult.with_warnings(structured, [head])


def _itself() -> ToolError:
    return ToolError("a note cannot be related to itself", hint="name two notes")


async def _state(
    context: ToolContext,
    arguments: dict[str, Any],
    row: NoteRow,
    relation: Relation,
    part: str,
    check: Callable[[Store], None],
) -> tuple[bool, list[WrittenBack]]:
    context.grants.require_write(row.project, row.path)
    result = await context.space.notes.edit(
        row,
        texts.add_relation(relation, now=context.moment),
        author=context.grants.alias,
        operation=context.operation_of(DEFINITION.name, arguments, part),
        by=context.class_,
        check=check,
    )
    if result.repeated and not result.hash:
        return False, []
    written = await context.machine.write_back(row.project, row.path, result, result.previous_hash)
    return result.changed or result.repeated, [written]
