"""`memory_dedupe`: finds groups of near-duplicate notes, and merges each group into one note if the
call asks for it.
"""

from __future__ import annotations

from typing import Any

from confide_crypto.errors import ConfideError
from confide_daemon.errors import ToolError
from confide_daemon.notes.deduplication import Deduplication, MergeProposal
from confide_daemon.store.rows import NoteRow
from confide_daemon.tools.tool_context import (
    COUNT,
    FLAG,
    NUMBER,
    PROJECT,
    TEXT,
    TEXTS,
    Definition,
    ToolContext,
    ToolResult,
    record,
)
from confide_memory.documents import iso
from confide_memory.front_matter import FrontMatterError
from confide_memory.note import level_of
from confide_memory.tools.call import NOTICE
from confide_memory.tools.search_text import reference_of

# Limits on groups, and on notes per group, in one answer; `total` and merging cover all.
MOST_LISTED = 50
MOST_SHOWN = 10
MOST_WARNINGS = 20
CONTENT_CHARS = 400

_NOTE = {"id": TEXT, "shortId": TEXT, "title": TEXT, "path": TEXT, "project": TEXT, "updated": TEXT}

GROUP = record(
    {
        "keep": record(_NOTE),
        "older": {
            "type": "array",
            "items": record({**_NOTE, "similarity": NUMBER, "by": {"type": "string", "enum": ["embedding", "text"]}}),
        },
        "count": {**COUNT, "description": "Of the older notes, which may be more than are listed"},
        "preview": record(
            {
                "content": {**TEXT, "description": "The start of the newer text, which stays"},
                "tags": TEXTS,
                "keywords": TEXTS,
                "importance": NUMBER,
                "level": TEXT,
            }
        ),
        "merged": FLAG,
    }
)

DEFINITION = Definition(
    name="memory_dedupe",
    title="Merge duplicates",
    description=(
        "Find groups of notes that say nearly the same. With merge the newer text stays, with all tags and the highest importance, and the "
        "older notes are marked as superseded. Look at the groups first."
    ),
    properties={
        "threshold": {"type": "number", "minimum": 0.5, "maximum": 1, "default": 0.95},
        "merge": {"type": "boolean", "default": False},
        "project": {**PROJECT, "description": "* = all"},
    },
    output=record(
        {
            "groups": {"type": "array", "items": GROUP},
            "total": {**COUNT, "description": "Of the groups"},
            "merged": {**COUNT, "description": "Of the groups"},
            "notesCompared": COUNT,
            "warnings": TEXTS,
        }
    ),
    idempotent=True,
    asks_a_person=True,
    is_long=True,
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Find groups of near-duplicate notes, and merge them if the call asks for that.

    Raises GrantError if the caller may not read memory, or may not write for a merge.
    """
    context.grants.require_source("memory")
    is_merging = arguments["merge"]
    if is_merging:
        context.grants.require_scope()
    wanted = context.search_projects(arguments.get("project"), "all")
    projects = context.grants.projects_among(wanted)

    async def tell(done: int, total: int) -> None:
        await context.machine.progress(done, total, "comparing notes")

    found = await Deduplication(context.space.threads, context.space.notes).find(
        projects, float(arguments["threshold"]), tell
    )
    warnings: list[str] = []
    if found.skipped_notes:
        warnings.append(
            f"the {found.compared_notes:,} newest notes were compared, {found.skipped_notes:,} older ones were not; name one project"
        )
    merged: set[str] = set()
    for number, merger in enumerate(found.mergers if is_merging else ()):
        await context.machine.progress(number, len(found.mergers), "merging groups")
        try:
            warning = await _merge(context, merger)
            merged.add(merger.newest.id)
        except (ConfideError, FrontMatterError) as error:  # one group must not keep the others from being merged
            warning = f"not merged: {error}"
        if warning:
            warnings.append(f"{merger.newest.title}: {warning}")
    # Leave out notes that the caller lost access to meanwhile.
    grants = context.grants
    shown = [merger for merger in found.mergers if grants.has_project(merger.newest.project)]
    structured = {
        "groups": [_group(merger, is_merged=merger.newest.id in merged) for merger in shown[:MOST_LISTED]],
        "total": len(shown),
        "merged": len(merged),
        "notesCompared": found.compared_notes,
        "warnings": _few(warnings),
    }
    await context.shorten(structured)
    return ToolResult.with_warnings(structured, _lines(structured))


async def _merge(context: ToolContext, merger: MergeProposal) -> str | None:
    """Merge one group; return a warning about the file on the caller's device, if any.

    Raises GrantError or ToolError if the caller may not write there; ConflictError, NotFoundError,
    UnreadableError, TooLargeError, StorageError: the notes cannot be merged.
    """
    row = merger.newest
    if not context.is_attached(row.project):
        raise ToolError("this connection cannot write to its project")
    await context.flush(row.project, row.path)
    result = await Deduplication(context.space.threads, context.space.notes).merge(merger, author=context.grants.alias)
    return (await context.machine.write_back(row.project, row.path, result, result.previous_hash)).warning


def _few(warnings: list[str]) -> list[str]:
    more = len(warnings) - MOST_WARNINGS
    return warnings if more <= 0 else [*warnings[:MOST_WARNINGS], f"and {more} more"]


def _note_reference(row: NoteRow) -> dict[str, object]:
    return {"id": row.id, "title": row.title, "path": row.path, "project": row.project, "updated": iso(row.updated_at)}


def _group(merger: MergeProposal, *, is_merged: bool) -> dict[str, object]:
    body = merger.body
    return {
        "keep": _note_reference(merger.newest),
        "older": [
            {**_note_reference(alike.row), "similarity": round(alike.likeness.value, 4), "by": alike.likeness.by}
            for alike in merger.older[:MOST_SHOWN]
        ],
        "count": len(merger.older),
        "preview": {
            "content": body if len(body) <= CONTENT_CHARS else body[: CONTENT_CHARS - 1] + "…",
            "tags": list(merger.tags),
            "keywords": list(merger.keywords),
            "importance": merger.importance,
            "level": level_of(merger.importance),
        },
        "merged": is_merged,
    }


def _lines(told: dict[str, Any]) -> list[str]:
    groups, total = told["groups"], told["total"]
    if not total:
        lines = [f"No near-duplicates among {told['notesCompared']} notes."]
    else:
        lines = [
            f"{total} groups of near-duplicates among {told['notesCompared']} notes; {told['merged']} merged. {NOTICE}"
        ]
    for group in groups:
        keep, preview = group["keep"], group["preview"]
        verb = "supersedes" if group["merged"] else "would supersede"
        lines.append(f"- {keep['title']} ({reference_of(keep)}) [{keep['project']}] {verb} {group['count']}:")
        lines += [
            f"  {older['similarity']:.2f} by {older['by']}: {older['title']} ({reference_of(older)})"
            for older in group["older"]
        ]
        lines.append(f"  importance: {preview['level']}; tags: {', '.join(preview['tags']) or '-'}")
        lines.append(f"  stays: {' '.join(preview['content'].split())}")
    if len(groups) < total:
        lines.append(f"{total - len(groups)} more groups are not listed.")
    return lines
