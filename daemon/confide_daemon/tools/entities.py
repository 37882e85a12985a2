"""`entity_list`: what the notes are about."""

from __future__ import annotations

from typing import Any

from confide_daemon.notes.note import MAX_WORD, SCOPES
from confide_daemon.search import iso
from confide_daemon.store import EntityRow
from confide_daemon.tools import reach
from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext, ToolResult
from confide_daemon.tools.definition import COUNT, TEXT, Definition, record

MOST = 500

SCOPE: dict[str, Any] = {"type": "string", "enum": ["all", *SCOPES], "default": "all"}
ENTITY = {
    "entity": TEXT,
    "project": TEXT,
    "scope": {"type": "string", "enum": list(SCOPES)},
    "count": COUNT,
    "firstSeen": TEXT,
    "lastUpdated": TEXT,
}

DEFINITION = Definition(
    name="entity_list",
    title="List entities",
    description="Who and what the notes are about, with counts. Use it for an overview of what is known.",
    properties={
        "scope": SCOPE,
        "project": {"type": "string", "maxLength": 256},
        "type": {"type": "string", "maxLength": MAX_WORD},
    },
    output=record(
        {
            "entities": {"type": "array", "items": record(ENTITY), "description": f"The first {MOST}"},
            "total": COUNT,
        }
    ),
    read_only=True,
    idempotent=True,
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """List the entities of the notes that the caller reaches. Raises GrantError and ToolError as `memory_search`."""
    projects, tasks = reached(context, arguments)
    found = await context.space.notes.entities(projects, tasks=tasks, type=arguments.get("type"))
    structured = {"entities": [wire(one) for one in found[:MOST]], "total": len(found)}
    lines = [
        f"{one.name} [{one.project}] {one.written} notes, last {iso(one.last_updated)[:10]}" for one in found[:MOST]
    ]
    return ToolResult(structured, "\n".join(lines) or "No note says what it is about.")


def reached(context: ToolContext, arguments: dict[str, Any]) -> tuple[frozenset[str] | None, bool]:
    """(projects, whether tasks are asked for): those of tasks are looked at only where they are asked for."""
    grants = context.grants
    grants.require_source("memory")
    scope = arguments["scope"]
    wanted = reach.projects(context, arguments.get("project"), "project" if scope == "task" else scope)
    return grants.projects_among(wanted), scope == "task"


def wire(one: EntityRow) -> dict[str, Any]:
    """An entity as `ENTITY` says."""
    scope = "task" if one.is_of_tasks else "global" if one.project == GLOBAL_PROJECT else "project"
    return {
        "entity": one.name,
        "project": one.project,
        "scope": scope,
        "count": one.written,
        "firstSeen": iso(one.first_seen),
        "lastUpdated": iso(one.last_updated),
    }
