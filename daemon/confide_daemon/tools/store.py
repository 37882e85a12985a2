"""`memory_store`: appends to a markdown file, replaces the file or a section of it, or writes a
note from its fields.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from confide_crypto.sealing.placeholder import STANDIN
from confide_daemon.documents.document_results import PutResult
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.errors import ToolError
from confide_daemon.notes import field_suggestions
from confide_daemon.notes.duplicates import DuplicateCheck
from confide_daemon.notes.note_edit import Draft
from confide_daemon.notes.similarity import Near
from confide_daemon.store.rows import NoteRow
from confide_daemon.tools import note_fields, update
from confide_daemon.tools.tool_context import (
    COUNT,
    FLAG,
    NUMBER,
    PATH,
    PROJECT,
    TEXT,
    TEXTS,
    Definition,
    ToolContext,
    ToolResult,
    WrittenBack,
    record,
)
from confide_memory import front_matter, note_names
from confide_memory.documents import GLOBAL_PROJECT, MEMORY_FOLDER, check_path, is_in_memory, text_hash
from confide_memory.markdown_blocks import is_sensitive
from confide_memory.note import Relation
from confide_memory.tools.call import NOTICE

Short = Callable[[str], str]
MAX_CONTENT_CHARS = 1_000_000

DUPLICATE = record(
    {
        "id": TEXT,
        "shortId": TEXT,
        "title": TEXT,
        "path": TEXT,
        "project": TEXT,
        "similarity": NUMBER,
        "by": {"type": "string", "enum": ["content", "embedding", "text"]},
    }
)

DEFINITION = Definition(
    name="memory_store",
    title="Store in memory",
    description=(
        "Write something worth keeping (decision, preference, fact, how a problem was solved) to a markdown file that survives this "
        "session. One self-contained statement an entry. Any field from title on makes it a note of its own. "
        "Passwords and keys in it are sealed."
    ),
    properties={
        "content": {"type": "string", "minLength": 1, "maxLength": MAX_CONTENT_CHARS, "description": "Markdown"},
        "path": {**PATH, "description": "Default: today's log memory/YYYY-MM-DD.md; MEMORY.md for lasting facts"},
        "mode": {
            "type": "string",
            "enum": ["append", "replace"],
            "default": "append",
            "description": "replace overwrites the file, or only the section under heading",
        },
        "heading": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "Section to append to or replace",
        },
        "project": {**PROJECT, "description": "'global' for all projects; default this one"},
        "expectedRevision": {
            **update.REVISION,
            "minimum": 0,
            "description": "Of the file, 0 for none yet; refuse else",
        },
        **note_fields.PROPERTIES,
    },
    shown_with=dict.fromkeys(note_fields.WITH_NOTES, "notes")
    | {"expectedRevision": ""},  # which programs ask, and people
    required=("content",),
    output=record(
        {
            "path": TEXT,
            "project": TEXT,
            "id": {**TEXT, "description": "Of the note"},
            "shortId": {**TEXT, "description": "Not while it waits"},
            "linesWritten": COUNT,
            "revision": COUNT,
            "indexed": {**FLAG, "description": "It is found by its words from now on"},
            "queued": {**FLAG, "description": "Kept on this machine until the daemon can be reached"},
            "queuedChunks": {
                **COUNT,
                "description": "Pieces of the whole memory that are not found by their meaning yet",
            },
            "onDisk": {**FLAG, "description": "The file on this machine holds it already"},
            "duplicates": {"type": "array", "items": DUPLICATE},
            "suggestions": {
                "type": "object",
                "properties": {"importance": TEXT, "tags": TEXTS, "merge": TEXT},
                "additionalProperties": False,
            },
            "warnings": TEXTS,
        },
        optional=("id", "shortId"),
    ),
    destructive=True,  # `replace` overwrites, although every earlier revision is kept.
    offline="queue",
    is_always_loaded=True,
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Store a text in a file or a note. The result has the number of chunks that wait for a vector,
    counted only in projects that the caller may access.

    Raises:
        GrantError: the caller may not write there.
        ToolError: the arguments contradict each other or are invalid.
        ConflictError: the document is not at `expectedRevision`.
        NotFoundError: the document or section to change does not exist.
        InvalidPathError, InvalidTextError, TooLargeError: the path or text cannot be stored.
        StorageError: the database cannot be written.
    """
    await context.allow_again(arguments["content"])
    store = _store_note if arguments.keys() & note_fields.PROPERTIES.keys() else _store_file
    result = await store(context, arguments)
    if (projects := context.grants.projects) is not None:
        result.structured["queuedChunks"] = await context.space.index.count_queued(projects)
    return result


async def _store_file(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Write to the document, then write the new revision to the caller's disk.

    Raises GrantError if the caller may not write there; ToolError if the project is not attached,
    or the path is not a memory file; ConflictError if it is not at `expectedRevision`;
    InvalidPathError, InvalidTextError, TooLargeError, StorageError from the space.
    """
    context.grants.require_scope()
    project = _project(context, arguments.get("project"))
    path = _path(arguments.get("path"), context.called_at)
    content, heading, base = arguments["content"], arguments.get("heading"), arguments.get("expectedRevision")
    expected = [] if base is None else [base]
    asked = json.dumps([DEFINITION.name, project, path, arguments["mode"], heading, content, *expected])
    operation = RepeatableChange(context.operation, text_hash(asked)) if context.operation else None
    await context.flush(project, path, sent=context.sent_file)
    if is_sensitive(content) or is_sensitive(await context.space.documents.newest_text(project, path) or ""):
        note_fields.refuse_plain(front_matter.split(content)[1])
    change = context.space.documents.append if arguments["mode"] == "append" else context.space.documents.replace
    author = context.grants.alias
    result = await change(
        project, path, content, heading=heading, author=author, base=base, operation=operation, by=context.class_
    )
    if result.repeated and not result.hash:
        gone = WrittenBack(False, result, "it was stored before, and the file has been deleted since")
        return _answer(project, path, result, gone, content)
    written = await context.machine.write_back(project, path, result, result.previous_hash)
    return _answer(project, path, result, written, content)


async def _store_note(context: ToolContext, arguments: dict[str, object]) -> ToolResult:
    context.grants.require_scope()
    asked_project, task_id = note_fields.place(context, arguments)
    project = _project(context, asked_project)
    draft = note_fields.draft(context, arguments, task_id)
    if draft.sensitive:
        note_fields.refuse_plain(draft.body)
    grants = context.grants
    grants.require_write(project, note_names.folder_of(task_id))
    asked = json.dumps([DEFINITION.name, project, arguments], sort_keys=True, default=str)
    operation = RepeatableChange(context.operation, text_hash(asked)) if context.operation else None
    # The note stays stored even if the other notes have changed since.
    if draft.relations and not await context.space.notes.was_made(operation):
        reach = grants.projects_among(None)
        rows = [(one.kind, await context.space.notes.row(one.other, reach)) for one in draft.relations]
        draft = replace(draft, relations=tuple(dict.fromkeys(Relation(kind, other.id) for kind, other in rows)))
    said = f"{draft.title or ''}\n{draft.body}"
    words = [] if draft.tags else field_suggestions.words_of(said)
    async with context.space.duplicates.looking(draft.body) as look:
        stored = await context.space.notes.store(
            draft, project=project, author=grants.alias, operation=operation, look=look, by=context.class_
        )
        row = stored.row
        grants = context.grants  # current rights: leave out notes the caller lost access to
        seen = frozenset(name for name in (project, GLOBAL_PROJECT) if grants.has_project(name))
        if stored.is_known:
            if stored.result is not None:
                await context.machine.write_back(project, row.path, stored.result, stored.result.previous_hash)
            newer = await context.space.notes.superseding(row, seen)
            short = await context.short_ids([row.id, *newer])
            return _existing_note_result(row, newer, short, is_changed=stored.result is not None)
        assert stored.result is not None
        stated = frozenset(relation.other for relation in draft.relations)
        written, looked = await asyncio.gather(
            context.machine.write_back(project, row.path, stored.result, stored.result.previous_hash),
            look.find(row, seen, apart=stated, words=words, is_limited=not grants.reaches_all),
        )
    short = await context.short_ids([row.id, *(near.row.id for near in looked.near)])
    return _answer(
        project,
        row.path,
        stored.result,
        written,
        asked,
        note=row,
        looked=looked,
        suggested=_suggestions(row, draft, said, looked, context.tools, short),
        short=short,
    )


def _suggestions(
    row: NoteRow, draft: Draft, said: str, looked: DuplicateCheck, tools: frozenset[str], short: Short
) -> dict[str, object]:
    """Return suggestions for fields that the caller left out, and for merging the note with its
    nearest duplicate.
    """
    importance = None if draft.importance is not None else field_suggestions.importance_for(said)
    tags = [] if draft.tags else field_suggestions.tags_for(said, looked.tags)
    merge = _merge(row, looked.near[0], tools, short) if looked.near else None
    return {name: value for name, value in (("importance", importance), ("tags", tags), ("merge", merge)) if value}


def _merge(stored: NoteRow, near: Near, tools: frozenset[str], short: Short) -> str:
    other, likeness = near.row, near.likeness.value
    by_hand = f"memory_update {short(other.id)} with what is right and memory_delete {short(stored.id)}"
    by_itself = ""
    # Notes in different projects have different readers, so no merge is suggested.
    if "memory_dedupe" in tools and (other.project, other.task_id) == (stored.project, stored.task_id):
        by_itself = (
            f"; or memory_dedupe with threshold {_below(likeness)} and merge true, which keeps the newer text and marks the older note "
            "as superseded"
        )
    return f"{short(other.id)} says nearly the same ({likeness:.2f}). If both are one fact: {by_hand}{by_itself}."


def _below(value: float) -> float:
    """Return the highest two-digit threshold not above `value`, within the bounds of
    `memory_dedupe`.
    """
    return min(1.0, max(0.5, math.floor(value * 100) / 100))


def _duplicate(row: NoteRow, similarity: float, by: str, short: Short) -> dict[str, object]:
    named = {name: getattr(row, name) for name in ("id", "title", "path", "project")}
    return {**named, "shortId": short(row.id), "similarity": round(similarity, 4), "by": by}


def _existing_note_result(row: NoteRow, superseding: list[str], short: Short, *, is_changed: bool) -> ToolResult:
    """Return the answer if an identical note exists and nothing is stored. It names notes that
    supersede it, which would outrank it unnoticed.
    """
    warnings = [
        f"{short(other)} supersedes this note; if this holds again, memory_update that one" for other in superseding[:1]
    ]
    structured = {
        "path": row.path,
        "project": row.project,
        "id": row.id,
        "shortId": short(row.id),
        "linesWritten": 0,
        "revision": row.revision,
        "indexed": True,
        "queued": False,
        "queuedChunks": 0,
        "onDisk": True,
        "duplicates": [_duplicate(row, 1.0, "content", short)],
        "suggestions": {},
        "warnings": warnings,
    }
    text = f"Nothing stored: the note {short(row.id)} in {row.path} [{row.project}] says exactly this."
    if is_changed:
        text += " It has the new tags, keywords and relations now."
    return ToolResult.with_warnings(structured, [text])


def _project(context: ToolContext, asked: str | None) -> str:
    project = asked or context.project or GLOBAL_PROJECT
    context.require_attached(project)
    return project


def _path(asked: str | None, said: datetime | None) -> str:
    """Return the path to write to. Only files that devices keep on disk qualify: no person would
    see another one.
    """
    # The day in the device's time zone when the call was made, which may be long before it arrived.
    path = asked or f"{MEMORY_FOLDER}/{said or datetime.now().astimezone():%Y-%m-%d}.md"
    check_path(path)
    if not is_in_memory(path):
        raise ToolError(
            "'path' must be MEMORY.md or below memory/", hint=f"for example {MEMORY_FOLDER}/{path.rsplit('/', 1)[-1]}"
        )
    return path


def _answer(
    project: str,
    path: str,
    stored: PutResult,
    written: WrittenBack,
    asked: str,
    *,
    note: NoteRow | None = None,
    looked: DuplicateCheck | None = None,
    suggested: dict[str, Any] | None = None,
    short: Short = str,
) -> ToolResult:
    near = looked.near if looked else ()
    own = 1 if written.warning else 0  # other warnings about the disk come last
    warnings = [*written.warnings[:own], *sealed_warnings(asked), *(looked.warnings if looked else ())]
    warnings += written.warnings[own:]
    structured = {
        "path": path,
        "project": project,
        "linesWritten": stored.lines_written,
        "revision": written.result.revision,
        "indexed": True,
        "queued": False,
        "queuedChunks": written.result.queued_pieces,
        "onDisk": written.on_disk,
        "duplicates": [_duplicate(one.row, one.likeness.value, one.likeness.by, short) for one in near],
        "suggestions": suggested or {},
        "warnings": warnings,
    }
    if note is not None:
        structured |= {"id": note.id, "shortId": short(note.id)}
    is_known = "this call was carried out before" if stored.repeated else "it held exactly this already"
    unchanged = "" if stored.changed else f" ({is_known})"
    named = f" as note {short(note.id)}" if note else ""
    lines = [f"Stored in {path} [{project}]{named}, revision {written.result.revision}{unchanged}."]
    lines += [NOTICE] if near else []
    for one in near:
        found = f"near-duplicate by {one.likeness.by}, {one.likeness.value:.2f}"
        lines.append(f"{found}: {one.row.title} ({short(one.row.id)}) in {one.row.path} [{one.row.project}]")
    lines += [
        f"suggested {name}: {', '.join(value) if isinstance(value, list) else value}"
        for name, value in (suggested or {}).items()
    ]
    return ToolResult.with_warnings(structured, lines)


def sealed_warnings(text: str) -> list[str]:
    """Return warnings that a credential in the caller's text was replaced by a placeholder."""
    found = set(STANDIN.findall(text))
    sealed = sum(one.startswith("(sealed:") for one in found)
    redacted = len(found) - sealed
    warnings = []
    if sealed:
        places = "its placeholder" if sealed == 1 else "their placeholders"
        warnings.append(
            f"{_values(sealed)} sealed; the file has {places}, and confide run gives the value to a command"
        )
    if redacted:
        warnings.append(f"{_values(redacted)} redacted, and left the machine in no form")
    return warnings


def _values(count: int) -> str:
    return "one value is" if count == 1 else f"{count} values are"
