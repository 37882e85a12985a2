"""`project_summary`: what is known of a project."""

from __future__ import annotations

from typing import Any

from confide_daemon.errors import ToolError
from confide_daemon.notes.draft import Draft
from confide_daemon.notes.service import now
from confide_daemon.store.tables.note_listing import TOP
from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext, ToolResult
from confide_daemon.tools.definition import COUNT, FLAG, MAYBE_TEXT, TEXT, TEXTS, Definition, record
from confide_daemon.tools.entities import ENTITY, wire
from confide_memory.timestamps import iso

_COUNTS = {"type": "object", "additionalProperties": COUNT}

DEFINITION = Definition(
    name="project_summary",
    title="Summarize a project",
    description="How much is known of a project: files, notes by type, top entities, last change. Use it to get an overview.",
    properties={
        "project": {"type": "string", "maxLength": 256, "description": "Default this one"},
        "create": {"type": "boolean", "default": False, "description": "Begin it with a note if nothing is known"},
    },
    output=record(
        {
            "project": TEXT,
            "exists": FLAG,
            "created": FLAG,
            "files": COUNT,
            "notes": COUNT,
            "byType": _COUNTS,
            "byCategory": _COUNTS,
            "lastUpdate": MAYBE_TEXT,
            "entities": {"type": "array", "items": record(ENTITY)},
            "linked": TEXTS,
        }
    ),
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Count what there is of a project.

    Raises:
        GrantError: the caller does not reach the project.
        ToolError: it is to be created, and is not one of this connection.
    """
    grants = context.grants
    grants.require_source("memory")
    name = arguments.get("project") or context.project or GLOBAL_PROJECT
    reached = grants.projects_among([name])
    listed = await context.space.projects.listed(frozenset((name,)), grants.sources)
    created = False
    if arguments["create"] and not listed:
        await _create(context, name)
        listed = await context.space.projects.listed(frozenset((name,)), grants.sources)
        created = True
    counts = await context.space.notes.counts(reached)
    entities = await context.space.notes.entities(reached)
    structured = {
        "project": name,
        "exists": bool(listed),
        "created": created,
        "files": sum(one.files for one in listed),
        "notes": counts.total,
        "byType": named(counts.by_type),
        "byCategory": named(counts.by_category),
        "lastUpdate": iso(listed[0].updated_at) if listed else None,
        "entities": [wire(one) for one in entities[:TOP]],
        "linked": sorted(one for one in context.space.projects.linked(name) if grants.has_project(one)),
    }
    return ToolResult(structured, _text(structured))


def named(counts: dict[str, int]) -> dict[str, int]:
    """Counts with a word for what says nothing."""
    return {name or "none": count for name, count in counts.items()}


async def _create(context: ToolContext, project: str) -> None:
    if project != GLOBAL_PROJECT and project not in context.attached:
        known = ", ".join(sorted({*context.attached, GLOBAL_PROJECT}))
        raise ToolError(f"this connection cannot begin the project '{project[:64]}'", hint=f"it can write to: {known}")
    draft = Draft(f"Memory of {project} begins here.", now(), title=project, type="project_context", entity=project)
    grants = context.grants
    grants.require_write(project, draft.named(b"")[1])
    stored = await context.space.notes.store(draft, project=project, author=grants.alias)
    if stored.result is not None:
        await context.machine.write_back(project, stored.row.path, stored.result, stored.result.previous_hash)


def _text(structured: dict[str, Any]) -> str:
    if not structured["exists"]:
        return f"Nothing is known of {structured['project']}."
    lines = [
        f"{structured['project']}: {structured['files']} files, {structured['notes']} notes, last change {structured['lastUpdate']}"
    ]
    lines += (
        [", ".join(f"{kind} {count}" for kind, count in structured["byType"].items())] if structured["notes"] else []
    )
    lines += [f"{one['entity']}: {one['count']} notes" for one in structured["entities"]]
    return "\n".join(lines)
