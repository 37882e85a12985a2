"""`memory_delete`: deletes a note or another memory file. It can be restored for a while."""

from __future__ import annotations

from typing import Any

from confide_daemon.errors import ConflictError, NotFoundError, ToolError
from confide_daemon.tools.note_fields import ID
from confide_daemon.tools.tool_context import COUNT, FLAG, OUTCOME, TEXT, Definition, ToolContext, ToolResult, record
from confide_daemon.tools.update import REVISION
from confide_memory.documents import GLOBAL_PROJECT, check_stored_path, is_in_memory, iso

PATH: dict[str, object] = {"type": "string", "maxLength": 512}
PROJECT: dict[str, object] = {"type": "string", "maxLength": 256}
EDITED = "the file was just edited, so it stays: read it again, and delete it then"

DEFINITION = Definition(
    name="memory_delete",
    title="Delete from memory",
    description="Delete a note by id, or a memory file by path. Use it for what is wrong or unwanted; it can be restored for a while.",
    properties={
        "id": ID,
        "path": PATH,
        "project": {**PROJECT, "description": "Of path; default this one"},
        "expectedRevision": {**REVISION, "description": "Refuse if it has another"},
    },
    shown_with={"expectedRevision": ""},  # which programs ask, and people
    output=record(
        {
            "deleted": FLAG,
            "restorableUntil": TEXT,
            "path": TEXT,
            "project": TEXT,
            "id": TEXT,
            "revision": {**COUNT, "description": "Of the deletion; the one before can be restored"},
            **OUTCOME,
        },
        optional=("restorableUntil", "path", "id", "revision"),
    ),
    destructive=True,
    asks_a_person=True,
    offline="queue",
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Delete a document, and then its file on the caller's disk unless a person has just edited it.

    Raises:
        GrantError: the caller may not write the document.
        NotFoundError: the document does not exist.
        ToolError: it is not a memory file, or this connection cannot write to its project.
        ConflictError: it is not at `expectedRevision`.
        InvalidPathError: the path is malformed.
        StorageError: the database cannot be written.
        OperationError: the id of the call was used for another change.
    """
    projects = context.reachable()
    operation = context.operation_of(DEFINITION.name, arguments)
    if arguments.get("id"):
        if "path" in arguments:
            raise ToolError("'id' and 'path' exclude each other", hint="leave one of them out")
        project, path = await context.space.notes.place(arguments["id"], projects)
    else:
        project, path = _require_path(context, arguments)
    context.grants.require_write(project, path)
    context.require_attached(project)
    expected: int | None = arguments.get("expectedRevision")
    base = await _revision(context, project, path) if expected is None else expected
    await context.flush(project, path)
    named = {"id": arguments["id"]} if arguments.get("id") else {}
    place = {"path": path, "project": project, **named}
    try:
        done = await context.space.documents.delete(
            project, path, author=context.grants.alias, base=base, operation=operation
        )
    except ConflictError:
        if expected is not None:
            raise
        return _not_deleted_result(place, {"queued": False, "onDisk": True, "warnings": [EDITED]})
    place["revision"] = done.revision
    if not done.is_deleted:
        why = "it was deleted by this call before, and has come back since"
        return _not_deleted_result(place, {"queued": False, "onDisk": False, "warnings": [why]})
    written = await context.machine.take_away(project, path, done.revision, done.previous_hash)
    outcome = written.outcome()
    if written.result.hash:  # a person's edit has brought it back
        return _not_deleted_result(place, outcome)
    until = iso(context.space.history.restorable_until(done.deleted_at))
    is_updatable = "memory_update" in context.tools and named and base
    back = f"memory_update with this id and restoreRevision {base}, or " if is_updatable else ""
    head = f"Deleted {path} [{project}]. Until {until[:10]} it can come back: {back}confide restore {path}."
    structured = {"deleted": True, "restorableUntil": until, **place, **outcome}
    return ToolResult.with_warnings(structured, [head])


async def _revision(context: ToolContext, project: str, path: str) -> int | None:
    """Return the revision that the caller can know of, which excludes edits its device sends from
    here on.
    """
    try:
        return (await context.space.documents.read(project, path)).revision
    except NotFoundError:
        return None


def _not_deleted_result(place: dict[str, object], outcome: dict[str, object]) -> ToolResult:
    head = f"{place['path']} [{place['project']}] is not deleted."
    return ToolResult.with_warnings({"deleted": False, **place, **outcome}, [head])


def _require_path(context: ToolContext, arguments: dict[str, Any]) -> tuple[str, str]:
    path = arguments.get("path")
    if not path:
        raise ToolError(
            "'id' or 'path' is missing", hint="the id of a note, or the path of a file such as memory/plan.md"
        )
    check_stored_path(path)
    if not is_in_memory(path):
        raise ToolError(
            "'path' must be MEMORY.md or below memory/", hint="other files are deleted on the machine they are on"
        )
    return arguments.get("project") or context.project or GLOBAL_PROJECT, path
