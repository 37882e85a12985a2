"""`entity_search`: names like this one, so that one thing does not get several."""

from __future__ import annotations

from typing import Any

from confide_daemon.notes.note import MAX_WORD
from confide_daemon.tools.context import ToolContext, ToolResult
from confide_daemon.tools.definition import NUMBER, Definition, record
from confide_daemon.tools.entity_list import ENTITY, SCOPE, reached, wire

DEFINITION = Definition(
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


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Find entities by their names. Raises GrantError as `memory_search`."""
    projects, tasks = reached(context, arguments)
    find = context.space.notes.entities_like
    near = await find(arguments["query"], projects, tasks=tasks, limit=arguments["limit"])
    structured = {"matches": [{**wire(one), "score": score} for one, score in near]}
    lines = [f"{one.name} [{one.project}] {score:.2f}, {one.written} notes" for one, score in near]
    return ToolResult(structured, "\n".join(lines) or "No entity has a name like this.")
