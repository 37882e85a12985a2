"""`memory_delete`: a note or another file of memory, which can come back for a while."""

from __future__ import annotations

from typing import Any

from confide_daemon.documents import check_path
from confide_daemon.errors import ToolError
from confide_daemon.search import iso
from confide_daemon.tools import changes
from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext, ToolResult
from confide_daemon.tools.definition import COUNT, FLAG, TEXT, Definition, record
from confide_daemon.tools.note_form import ID
from confide_daemon.tools.store import MEMORY_FILES, MEMORY_FOLDER

PATH: dict[str, Any] = {"type": "string", "maxLength": 512}
PROJECT: dict[str, Any] = {"type": "string", "maxLength": 256}

DEFINITION = Definition(
    name="memory_delete",
    title="Delete from memory",
    description="Delete a note by id, or a memory file by path. It can be restored for a while.",
    properties={"id": ID, "path": PATH, "project": {**PROJECT, "description": "Of path; default this one"}},
    output=record(
        {
            "deleted": FLAG,
            "restorableUntil": TEXT,
            "path": TEXT,
            "project": TEXT,
            "id": TEXT,
            "revision": {**COUNT, "description": "Of the deletion; the one before can be restored"},
            **changes.OUTCOME,
        },
        optional=("restorableUntil", "path", "id", "revision"),
    ),
    destructive=True,
    offline="queue",
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Delete a document, then its file from the caller's disk, unless a person has just edited that.

    Raises:
        GrantError: the caller may not write it.
        NotFoundError: there is no such document.
        ToolError: it is no file of memory, or in a project that is not one of the connection.
        InvalidPathError, StorageError, OperationError.
    """
    projects = changes.reachable(context)
    operation = changes.operation(context, DEFINITION.name, arguments)
    if arguments.get("id"):
        if "path" in arguments:
            raise ToolError("'id' and 'path' exclude each other", hint="leave one of them out")
        project, path = await context.space.notes.place(arguments["id"], projects)
    else:
        project, path = _named(context, arguments)
    changes.require_writable(context, project, path)
    await context.machine.flush(project, path)  # so that what was just written can be restored
    changes.require_writable(context, project, path)
    done = await context.space.delete(project, path, author=context.grants.alias, operation=operation)
    named = {"id": arguments["id"]} if arguments.get("id") else {}
    structured: dict[str, Any] = {"deleted": done.is_deleted, "path": path, "project": project, **named}
    structured["revision"] = done.revision
    if done.is_deleted:
        structured["restorableUntil"] = iso(context.space.history.restorable_until(done.deleted_at))
        written = await context.machine.take_away(project, path, done.revision, done.previous_hash)
        structured |= changes.outcome(written)
        # A person's edit has brought it back.
        structured["deleted"] = not written.result.hash
    else:
        why = "it was deleted by this call before, and has come back since"
        structured |= {"queued": False, "onDisk": False, "warnings": [why]}
    if not structured["deleted"]:
        structured.pop("restorableUntil", None)
    head = f"{path} [{project}] is not deleted."
    if structured["deleted"]:
        back = f"memory_update with this id and restoreRevision {done.revision - 1}, or " if named else ""
        until = structured["restorableUntil"][:10]
        head = f"Deleted {path} [{project}]. Until {until} it can come back: {back}confide restore {path}."
    return ToolResult(structured, "\n".join([head, *changes.told(structured)]))


def _named(context: ToolContext, arguments: dict[str, Any]) -> tuple[str, str]:
    path = arguments.get("path")
    if not path:
        raise ToolError(
            "'id' or 'path' is missing", hint="the id of a note, or the path of a file such as memory/plan.md"
        )
    check_path(path)
    if path not in MEMORY_FILES and not path.startswith(MEMORY_FOLDER):
        raise ToolError(
            "'path' must be MEMORY.md or below memory/", hint="other files are deleted on the machine they are on"
        )
    return arguments.get("project") or context.project or GLOBAL_PROJECT, path
