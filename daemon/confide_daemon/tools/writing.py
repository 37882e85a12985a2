"""What the tools that change notes share: who may, once for each operation, and what is said of the caller's disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confide_daemon.errors import ToolError
from confide_daemon.notes.service import now
from confide_daemon.spaces.space import Operation
from confide_daemon.store.rows import NoteRow
from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext, WrittenBack
from confide_daemon.tools.definition import FLAG, TEXTS
from confide_memory.conflict import has_clash
from confide_memory.wire.digest import text_hash

# What every one of them answers beside its own.
OUTCOME: dict[str, Any] = {
    "queued": {**FLAG, "description": "Kept on this machine until the daemon can be reached"},
    "onDisk": {**FLAG, "description": "The file on this machine is as the daemon has it"},
    "warnings": TEXTS,
}


def operation(context: ToolContext, tool: str, arguments: Mapping[str, Any], part: str = "") -> Operation | None:
    """The operation of a call; `part` names one of several changes that a call makes."""
    if context.operation is None:
        return None
    identity = text_hash(context.operation + part)[:32] if part else context.operation
    return Operation(identity, text_hash(json.dumps([tool, part, arguments], sort_keys=True)))


async def writable(context: ToolContext, identity: str) -> NoteRow:
    """The note that is to be changed, after the machine has sent what a person has just written there.

    Raises:
        GrantError: the caller may not write it.
        NotFoundError: there is none where the caller reaches.
        ToolError: it is in a project that is not one of the connection.
    """
    row = await context.space.notes.row(identity, reachable(context))
    require_writable(context, row.project, row.path)
    await context.machine.flush(row.project, row.path)
    require_writable(context, row.project, row.path)  # a machine that answers late must not outlast its grant
    return row


def reachable(context: ToolContext) -> frozenset[str] | None:
    """The projects whose notes a caller that writes may see; None: all. Raises GrantError where it may not write at all."""
    context.grants.require_scope()
    context.grants.require_source("memory")
    return context.grants.projects_among(None)


def require_writable(context: ToolContext, project: str, path: str) -> None:
    """Refuse a document that this call may not change. Raises as `writable`."""
    context.grants.require_write(project, path)
    if project != GLOBAL_PROJECT and project not in context.attached:
        known = ", ".join(sorted({*context.attached, GLOBAL_PROJECT}))
        raise ToolError(f"this connection cannot write to project '{project[:64]}'", hint=f"it can write to: {known}")


def moment(context: ToolContext) -> float:
    """When the call was made, in seconds since 1970."""
    return float(int(context.said.timestamp())) if context.said else now()


def warnings(written: WrittenBack) -> list[str]:
    """What an agent should know of the way of a change to the disk."""
    found = [written.warning] if written.warning else []
    if written.result.merged:
        found.append("the file was being edited on this machine; both sides were kept")
    if has_clash(written.result.text):
        found.append(
            "the file holds two versions of some lines, between marks that begin with <<<<<<< confide: "
            "keep what is right, and delete the marks"
        )
    return found


def outcome(written: WrittenBack) -> dict[str, Any]:
    """`OUTCOME` of a change."""
    return {"queued": False, "onDisk": written.on_disk, "warnings": warnings(written)}


def told(outcome: Mapping[str, Any]) -> list[str]:
    """Its warnings as lines."""
    return [f"warning: {warning}" for warning in outcome["warnings"]]
