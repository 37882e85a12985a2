"""`memory_update`: changes fields or the text of a note, or restores an earlier text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from confide_daemon.documents.document_results import PutResult
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.errors import ToolError
from confide_daemon.notes import note_edit as texts
from confide_daemon.notes import note_service
from confide_daemon.store.space_store import Store
from confide_daemon.tools import get, note_fields
from confide_daemon.tools.note_fields import FIELDS, ID, PROPERTIES, WITH_NOTES
from confide_daemon.tools.tool_context import FLAG, OUTCOME, Definition, ToolContext, ToolResult, record
from confide_memory.markdown_blocks import is_sensitive
from confide_memory.note import SEEN
from confide_memory.tools.search_text import reference_of

REVISION: dict[str, object] = {"type": "integer", "minimum": 1, "maximum": 2**53}
_EARLIER_PLAIN: Final = (
    "earlier revisions of this note are with the daemon in clear: confide secrets scan --stored seals them"
)
_LINES = ("title", "type", "category", "entity", "source", "status")
_WHOLE = get.DEFINITION.output["properties"]
# Fields are described in `memory_store` only, so that they cost their tokens once.
_FIELDS = {name: {part: schema[part] for part in schema if part != "description"} for name, schema in FIELDS.items()}

# With the core tools only, these are not listed either.
_MORE = ("sensitive", "expectedRevision")

# Accepted but never listed, so that the refusal can name the way out, unlike "unknown parameter".
_PLACE = ("scope", "project", "taskId")

DEFINITION = Definition(
    name="memory_update",
    title="Change a note",
    description="Correct a note by its id: only the given fields change, '' or [] clears one. Use it rather than store it again.",
    properties={
        "id": ID,
        "content": {"type": "string", "maxLength": 1_000_000},
        **_FIELDS,
        "relatedTo": {"description": "Replaces those of its relation"}
        | {part: PROPERTIES["relatedTo"][part] for part in ("type", "items", "maxItems")},
        "relation": PROPERTIES["relation"],
        "expectedRevision": {**REVISION, "description": "Refuse if it has another"},
        "restoreRevision": {**REVISION, "description": "Bring this text back, also of a deleted note"},
        **{name: {"type": "string", "maxLength": 256} for name in _PLACE},
    },
    shown_with=dict.fromkeys((*WITH_NOTES, *_MORE), "notes") | dict.fromkeys(_PLACE, ""),
    required=("id",),
    # Not the text, which a blank value must not empty, nor `sensitive`, which false clears.
    clears=(*(name for name in FIELDS if name != "sensitive"), "relatedTo"),
    output=record({**_WHOLE, "changed": FLAG, **OUTCOME}, optional=tuple(name for name in _WHOLE if name != "id")),
    destructive=True,  # it overwrites, although every earlier revision is kept
    offline="queue",
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Change a note, then write its file to the disk of the caller's device.

    Raises:
        GrantError: the caller may not write the note.
        NotFoundError: the note or the revision does not exist.
        ConflictError: the note is not at `expectedRevision`.
        ToolError: the arguments contradict each other, or the note's front matter cannot be
            changed.
        InvalidTextError, TooLargeError: the new text cannot be stored.
        StorageError: the database cannot be written.
        OperationError: the id of the call was used for another change.
    """
    identity, base = arguments["id"], arguments.get("expectedRevision")
    given = [name for name in arguments if name not in ("id", "expectedRevision")]
    if fixed := next((name for name in _PLACE if name in arguments), None):
        raise ToolError(
            f"'{fixed}' of a note is where its file lies, and stays",
            hint="store it where it belongs with memory_store, and memory_delete this one",
        )
    if not given and context.seen is None:
        raise ToolError("there is nothing to change", hint="give content, a field such as tags, or restoreRevision")
    operation = context.operation_of(DEFINITION.name, arguments)
    if "restoreRevision" in arguments:
        if len(given) > 1:
            raise ToolError("'restoreRevision' brings a whole text back", hint="change fields in a second call")
        return await _restore(context, identity, arguments["restoreRevision"], base, operation)
    fields, stated = _fields(arguments), _stated_relation(arguments)
    if context.seen is not None:
        fields[SEEN] = dict(context.seen)
    row = await context.writable(identity)
    if stated is not None:
        others = [(await context.space.notes.row(other, context.reachable())).id for other in stated[1]]
        if row.id in others:
            raise _itself()
        stated = stated[0], list(dict.fromkeys(others))
    content = arguments.get("content")
    await context.allow_again(content or "")
    change = note_fields.sealed_only(texts.change_fields(fields, content, stated, now=context.moment), content)
    was_plain = bool(fields.get("sensitive")) and not is_sensitive(
        await context.space.documents.newest_text(row.project, row.path) or ""
    )
    result = await context.space.notes.edit(
        row,
        change,
        author=context.grants.alias,
        base=base,
        operation=operation,
        by=context.class_,
        check=_check(row.id, stated, context.reachable()),
    )
    more = [_EARLIER_PLAIN] if was_plain and result.changed else []
    return await _answer(context, row.id, row.project, row.path, result, more)


async def _restore(
    context: ToolContext, identity: str, revision: int, base: int | None, operation: RepeatableChange | None
) -> ToolResult:
    project, path = await context.space.notes.place(identity, context.reachable())
    await context.flush(project, path)
    result = await context.space.documents.restore(
        project,
        path,
        revision=revision,
        author=context.grants.alias,
        base=base,
        operation=operation,
        by=context.class_,
    )
    return await _answer(context, identity, project, path, result)


def _fields(arguments: dict[str, Any]) -> dict[str, object]:
    """Return the fields to write into the note; empty values clear a field."""
    fields: dict[str, object] = {}
    for name in FIELDS:
        if name not in arguments:
            continue
        value = arguments[name]
        if name in _LINES and value:
            value = note_fields.one_line(name, [value])[0]
        elif name in ("tags", "keywords"):
            value = list(note_fields.one_line(name, value))
        elif name == "importance" and value != "":
            value = note_fields.importance(value)
        elif name == "sensitive":
            value = value or None
        fields[name] = value
    return fields


def _stated_relation(arguments: dict[str, Any]) -> tuple[str, list[str]] | None:
    """Return a kind of relation and the notes it refers to, if the call states one."""
    if "relatedTo" not in arguments:
        if "relation" in arguments:
            raise ToolError("'relation' needs 'relatedTo'", hint="the ids of the notes it is a relation to")
        return None
    others = list(dict.fromkeys(arguments["relatedTo"]))
    if arguments["id"] in others:
        raise _itself()
    return arguments.get("relation", "see_also"), others


def _itself() -> ToolError:
    return ToolError("a note cannot be related to itself", hint="leave its own id out of relatedTo")


def _check(
    identity: str, stated: tuple[str, list[str]] | None, projects: frozenset[str] | None
) -> Callable[[Store], None] | None:
    if stated is None or stated[0] != note_service.SUPERSEDES:
        return None
    return lambda store: note_service.refuse_circle(store, identity, stated[1], projects)


async def _answer(
    context: ToolContext, identity: str, project: str, path: str, result: PutResult, more: Sequence[str] = ()
) -> ToolResult:
    """Return the tool's result; `more` has further warnings."""
    if result.repeated and not result.hash:
        why = "it was changed before, and the note has been deleted since"
        outcome = {"queued": False, "onDisk": False, "warnings": [why]}
        return ToolResult.with_warnings({"id": identity, "changed": True, **outcome}, [])
    written = await context.machine.write_back(project, path, result, result.previous_hash)
    found = await context.space.notes.at(project, path, context.grants.projects_among(None))
    structured = {**get.whole(context, found), "changed": result.changed or result.repeated, **written.outcome()}
    structured["warnings"] = [*structured["warnings"], *more]
    await context.shorten(structured)
    said = "changed" if result.changed else "was changed by this call before" if result.repeated else "says so already"
    head = f"The note {reference_of(structured)} in {path} [{project}] {said}: revision {found.row.revision}."
    return ToolResult.with_warnings(structured, [head])
