"""The tools of the group `entities`: entities (people, things, topics) that notes are about, a
summary of a project, and where the agent works.

`entity_list`, `entity_search`, `project_summary`, `context_info`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from confide_daemon.notes.note_edit import Draft
from confide_daemon.notes.note_service import now
from confide_daemon.store.rows import EntityRow
from confide_daemon.store.tables.note_listing import TOP
from confide_daemon.tools.tool_context import (
    COUNT,
    COUNTS,
    FLAG,
    MAYBE_TEXT,
    NUMBER,
    TEXT,
    TEXTS,
    Definition,
    ToolContext,
    ToolResult,
    record,
)
from confide_memory.documents import GLOBAL_PROJECT, iso
from confide_memory.note import MAX_WORD, SCOPES
from confide_memory.tools.call import NOTICE

MOST = 500

SCOPE: dict[str, object] = {"type": "string", "enum": ["all", *SCOPES], "default": "all"}
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
        {"entities": {"type": "array", "items": record(ENTITY), "description": f"The first {MOST}"}, "total": COUNT}
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
    """List the entities of the notes that the caller may read. Raises GrantError if the caller may
    not read the project, ToolError if an argument is invalid.
    """
    projects, tasks = _search_range(context, arguments)
    found = await context.space.notes.entities(projects, tasks=tasks, type=arguments.get("type"))
    structured = {"entities": [wire(one) for one in found[:MOST]], "total": len(found)}
    if not found:
        return ToolResult(structured, "No note says what it is about.")
    left = f"; {len(found) - MOST} more are not listed" if len(found) > MOST else ""
    lines = [f"{len(found)} entities{left}. {NOTICE}"]
    lines += [
        f"{one.name} [{one.project}] {one.written} notes, last {iso(one.last_updated)[:10]}" for one in found[:MOST]
    ]
    return ToolResult(structured, "\n".join(lines))


async def find_entities(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Find entities by name. Raises GrantError if the caller may not read the project."""
    projects, tasks = _search_range(context, arguments)
    find = context.space.notes.entities_like
    near = await find(arguments["query"], projects, tasks=tasks, limit=arguments["limit"])
    structured = {"matches": [{**wire(one), "score": score} for one, score in near]}
    if not near:
        return ToolResult(structured, "No entity has a name like this.")
    lines = [f"{one.name} [{one.project}] {score:.2f}, {one.written} notes" for one, score in near]
    return ToolResult(structured, "\n".join([f"{len(near)} found. {NOTICE}", *lines]))


def _search_range(context: ToolContext, arguments: dict[str, Any]) -> tuple[frozenset[str] | None, bool]:
    """Return the projects to search, and True if the call asks for entities of tasks, which are
    left out otherwise.
    """
    grants = context.grants
    grants.require_source("memory")
    scope = arguments["scope"]
    wanted = context.search_projects(arguments.get("project"), "project" if scope == "task" else scope)
    return grants.projects_among(wanted), scope == "task"


def wire(one: EntityRow) -> dict[str, object]:
    scope = "task" if one.is_of_tasks else "global" if one.project == GLOBAL_PROJECT else "project"
    return {
        "entity": one.name,
        "project": one.project,
        "scope": scope,
        "count": one.written,
        "firstSeen": iso(one.first_seen),
        "lastUpdated": iso(one.last_updated),
    }


SUMMARY = Definition(
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
            "byType": COUNTS,
            "byCategory": COUNTS,
            "lastUpdate": MAYBE_TEXT,
            "entities": {"type": "array", "items": record(ENTITY)},
            "linked": TEXTS,
        }
    ),
)


async def project_summary(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Count the documents, notes and other contents of a project.

    Raises GrantError if the caller has no access to the project, ToolError if the call should
    create the project and this connection cannot write to it.
    """
    grants = context.grants
    grants.require_source("memory")
    name = arguments.get("project") or context.project or GLOBAL_PROJECT
    reached = grants.projects_among([name])
    listed = await context.space.projects.list_projects(frozenset((name,)), grants.sources)
    created = False
    if arguments["create"] and not listed:
        await _create(context, name)
        listed = await context.space.projects.list_projects(frozenset((name,)), grants.sources)
        created = True
    counts = await context.space.notes.counts(reached)
    entities = await context.space.notes.entities(reached)
    structured = {
        "project": name,
        "exists": bool(listed),
        "created": created,
        "files": sum(one.files for one in listed),
        "notes": counts.total,
        "byType": label_counts(counts.by_type),
        "byCategory": label_counts(counts.by_category),
        "lastUpdate": iso(listed[0].updated_at) if listed else None,
        "entities": [wire(one) for one in entities[:TOP]],
        "linked": sorted(one for one in context.space.projects.linked_projects(name) if grants.has_project(one)),
    }
    return ToolResult(structured, _summary_text(structured))


def label_counts(counts: dict[str, int]) -> dict[str, int]:
    """Return the counts by name, with the label `none` for an empty name."""
    return {name or "none": count for name, count in counts.items()}


async def _create(context: ToolContext, project: str) -> None:
    context.require_attached(project, "begin the project")
    draft = Draft(f"Memory of {project} begins here.", now(), title=project, type="project_context", entity=project)
    grants = context.grants
    grants.require_write(project, draft.id_and_path(b"")[1])
    stored = await context.space.notes.store(draft, project=project, author=grants.alias, by=context.class_)
    if stored.result is not None:
        await context.machine.write_back(project, stored.row.path, stored.result, stored.result.previous_hash)


def _summary_text(structured: dict[str, Any]) -> str:
    if not structured["exists"]:
        return f"Nothing is known of {structured['project']}."
    lines = [
        f"{structured['project']}: {structured['files']} files, {structured['notes']} notes, last change {structured['lastUpdate']}"
    ]
    if structured["created"]:
        lines[0] += ", begun just now"
    lines += [f"linked: {', '.join(structured['linked'])}"] if structured["linked"] else []
    lines += [NOTICE] if structured["notes"] else []
    for name in ("byType", "byCategory") if structured["notes"] else ():
        lines.append(f"{name[2:].lower()}: {', '.join(f'{kind} {count}' for kind, count in structured[name].items())}")
    lines += [f"{one['entity']}: {one['count']} notes" for one in structured["entities"]]
    return "\n".join(lines)


CONTEXT = Definition(
    name="context_info",
    title="Where am I",
    description="The project, machine, git repository and branch this session works in. Use it to choose a project or scope.",
    properties={},
    output=record(
        {
            "project": TEXT,
            "linked": TEXTS,
            "space": TEXT,
            "machine": TEXT,
            "platform": MAYBE_TEXT,
            "directory": MAYBE_TEXT,
            "git": {
                **record({"repository": MAYBE_TEXT, "branch": MAYBE_TEXT, "remote": MAYBE_TEXT}),
                "type": ["object", "null"],
            },
            "time": TEXT,
            "claim": {**TEXT, "description": "A name that the folder gives itself and has not got"},
        },
        optional=("claim",),
    ),
    read_only=True,
)


async def context_info(context: ToolContext, _arguments: dict[str, Any]) -> ToolResult:
    """Return where the agent works, as its device reports it: platform, folder, git repository and
    local time.
    """
    project = context.project or GLOBAL_PROJECT
    said = await context.machine.workplace(project) or {}
    git = said.get("git")
    structured = {
        "project": project,
        "linked": sorted(context.linked_projects),
        "space": context.facts.space,
        "machine": context.facts.machine,
        "platform": said.get("platform"),
        "directory": said.get("directory"),
        "git": git,
        "time": said.get("time") or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    claim = said.get("claim")
    lines = [f"project {project}, on {context.facts.machine or 'a device without a name'} ({structured['platform']})"]
    lines += [f"linked: {', '.join(structured['linked'])}"] if structured["linked"] else []
    lines += [f"folder {structured['directory']}"] if structured["directory"] else []
    if git is not None:
        found = {name: value or "none" for name, value in git.items()}
        lines.append(f"git: {found['repository']}, branch {found['branch']}, remote {found['remote']}")
    if claim:
        structured["claim"] = claim
        lines.append(
            f"the folder calls itself {claim}, and shares no memory with that project: its user has not allowed it"
        )
    return ToolResult(structured, "\n".join([*lines, f"time {structured['time']}"]))
