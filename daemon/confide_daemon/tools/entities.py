"""`entity_list` and `entity_search`: what the notes are about, and names like this one, so that one thing does not get several."""

from __future__ import annotations

from typing import Any

from confide_daemon.store.rows import EntityRow
from confide_daemon.tools import scope as reach
from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext, ToolResult
from confide_daemon.tools.definition import COUNT, NUMBER, TEXT, Definition, record
from confide_memory.note import MAX_WORD, SCOPES
from confide_memory.timestamps import iso

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

LIST = Definition(
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


SEARCH = Definition(
    name="entity_search",
    title="Find an entity",
    description="Entities with names like this one. Use it before storing a note, so that one thing keeps one name.",
    properties={
        "query": {"type": "string", "minLength": 1, "maxLength": MAX_WORD},
        "scope": SCOPE,
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5},
    },
    required=("query",),
    output=record({"matches": {"type": "array", "items": record({**ENTITY, "score": NUMBER})}}),
    read_only=True,
    idempotent=True,
)


async def list_entities(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """List the entities of the notes that the caller reaches. Raises GrantError and ToolError as `memory_search`."""
    projects, tasks = _reached(context, arguments)
    found = await context.space.notes.entities(projects, tasks=tasks, type=arguments.get("type"))
    structured = {"entities": [wire(one) for one in found[:MOST]], "total": len(found)}
    lines = [
        f"{one.name} [{one.project}] {one.written} notes, last {iso(one.last_updated)[:10]}" for one in found[:MOST]
    ]
    return ToolResult(structured, "\n".join(lines) or "No note says what it is about.")


async def find_entities(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Find entities by their names. Raises GrantError as `memory_search`."""
    projects, tasks = _reached(context, arguments)
    find = context.space.notes.entities_like
    near = await find(arguments["query"], projects, tasks=tasks, limit=arguments["limit"])
    structured = {"matches": [{**wire(one), "score": score} for one, score in near]}
    lines = [f"{one.name} [{one.project}] {score:.2f}, {one.written} notes" for one, score in near]
    return ToolResult(structured, "\n".join(lines) or "No entity has a name like this.")


def _reached(context: ToolContext, arguments: dict[str, Any]) -> tuple[frozenset[str] | None, bool]:
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
