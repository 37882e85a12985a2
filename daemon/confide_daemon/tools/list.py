"""`memory_list`: lists the notes that match a filter, without a query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from confide_daemon.store.rows import NoteFilter, NoteRow
from confide_daemon.store.tables.note_listing import SORTS
from confide_daemon.tools.get import SUMMARY, summary
from confide_daemon.tools.note_fields import PROPERTIES, WORD
from confide_daemon.tools.search import MAX_TYPES, SCOPES, TASKS, moment
from confide_daemon.tools.tool_context import COUNT, TEXT, Definition, ToolContext, ToolResult, record
from confide_memory import front_matter
from confide_memory.classes import UNTRUSTED
from confide_memory.tools.arguments import split_words
from confide_memory.tools.call import NOTICE
from confide_memory.tools.past import is_over
from confide_memory.tools.search_text import reference_of

SNIPPET_CHARS = 160
MAX_OFFSET = 1_000_000
_DAY = re.compile(r"\d{4}-?(\d{2}-?\d{2}|W\d{2}(-?\d)?)")  # of ISO 8601, without a time

DEFINITION = Definition(
    name="memory_list",
    title="List notes",
    description="List notes by their fields. Use it to see what there is; to answer a question, use memory_search.",
    properties={
        "project": {"type": "string", "maxLength": 256},
        "scope": {"type": "string", "enum": SCOPES, "default": "all"},
        "taskId": PROPERTIES["taskId"],
        "tags": PROPERTIES["tags"],
        "type": {"type": "array", "items": WORD, "maxItems": MAX_TYPES},
        "category": WORD,
        "entity": WORD,
        "status": WORD,
        "path": {"type": "string", "maxLength": 512},
        "since": {"type": "string", "maxLength": 40},
        "until": {"type": "string", "maxLength": 40},
        "sort": {"type": "string", "enum": list(SORTS), "default": "updated"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "offset": {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET, "default": 0},
    },
    output=record(
        {
            "memories": {
                "type": "array",
                "items": record(
                    {
                        **SUMMARY,
                        "snippet": {**TEXT, "description": "How it begins"},
                        "problems": {**COUNT, "description": "Things in its front matter that were not understood"},
                    },
                    optional=("class",),
                ),
            },
            "total": {**COUNT, "description": "On all pages"},
        }
    ),
    read_only=True,
    idempotent=True,
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """List the notes that match a filter.

    Raises GrantError if the caller may not read the requested sources; NotFoundError if the project
    is unknown; ToolError if a date is invalid, or project, scope and task contradict each other.
    """
    project, scope = arguments.get("project") or None, arguments["scope"]
    grants = context.grants
    grants.require_source("memory")
    task = context.task(project, scope, arguments.get("taskId"))
    path = arguments.get("path") or None
    wanted = NoteFilter(
        projects=grants.projects_among(context.search_projects(project, scope)),
        without_tasks=task is not None or not (path or "").removeprefix("./").startswith(TASKS),
        task_id=task.id if task else None,
        task_projects=task.projects if task else None,
        types=split_words(arguments.get("type", ())),
        category=arguments.get("category"),
        entity=arguments.get("entity"),
        status=arguments.get("status"),
        tags=split_words(arguments.get("tags", ())),
        path=path,
        since=_since(arguments.get("since"), context.zone),
        until=_until(arguments.get("until"), context.zone),
        classes=context.classes,
    )
    found = await context.space.notes.page(
        wanted, sort=arguments["sort"], limit=arguments["limit"], offset=arguments["offset"]
    )
    if not found.total:
        await context.require_known(project)
    past = await _past(context, [row for row, _ in found.notes]) if context.is_unasked else frozenset()
    shown = [(row, text) for row, text in found.notes if row.document not in past]
    entries = [{**summary(context, row), "snippet": snippet(text), "problems": row.problems} for row, text in shown]
    structured = {"memories": entries, "total": found.total}
    await context.shorten(structured)
    rows = [row for row, _ in shown]
    return ToolResult(structured, _text(rows, entries, found.total, arguments["offset"]))


async def _past(context: ToolContext, rows: Sequence[NoteRow]) -> frozenset[int]:
    """Return the notes, by document, that are done by their status, or that another note supersedes,
    if the caller may read that note and its class is requested.
    """
    done = frozenset(row.document for row in rows if is_over(row.status))
    reached, documents = context.grants.projects_among(None), [row.document for row in rows]
    return done | await context.space.notes.find_superseded(documents, reached, classes=context.classes)


def snippet(text: str) -> str:
    """Return the beginning of a note's text on one line."""
    words = " ".join(front_matter.split(text[: 8 * SNIPPET_CHARS])[1].split())
    return words if len(words) <= SNIPPET_CHARS else words[:SNIPPET_CHARS].rsplit(" ", 1)[0] + " …"


def _since(text: str | None, zone: tzinfo | None) -> float | None:
    found = moment("since", text, zone)
    return None if found is None else found.timestamp()


def _until(text: str | None, zone: tzinfo | None) -> float | None:
    """Return the first second after the given time; a date means its whole day."""
    found = moment("until", text, zone)
    if found is None:
        return None
    is_day = text is not None and _DAY.fullmatch(text.strip().upper())
    # In seconds, since the last possible date has no successor.
    return found.timestamp() + (86_400.0 if is_day else 1.0)


def _text(rows: list[NoteRow], entries: list[dict[str, Any]], total: int, offset: int) -> str:
    if not rows:
        past = f" behind the first {offset}" if total else ""
        return f"No note matches{past} ({total} in all). Try fewer filters, or project '*'."
    last = offset + len(rows)
    more = f"; offset {last} has the next" if last < total else ""
    lines = [f"{offset + 1}-{last} of {total} notes{more}. {NOTICE}"]
    for row, entry in zip(rows, entries, strict=True):
        said = [entry["updated"][:10], entry["level"], *filter(None, (row.type, row.category, row.entity, row.status))]
        said += [f"tags {', '.join(row.tags)}"] if row.tags else []
        said += [f"by {row.author}", *([f"from {row.source}"] if row.source else [])]
        said += ["untrusted"] if row.class_ == UNTRUSTED else []
        said += [f"{row.problems} problems in its front matter"] if row.problems else []
        lines += [
            "",
            f"{row.title} ({reference_of(entry)}) · {row.path} [{row.project}]",
            " · ".join(said),
            entry["snippet"],
        ]
    return "\n".join(lines)
