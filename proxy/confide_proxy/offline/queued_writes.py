"""Queue calls while the daemon is unreachable, answer their agents, and send the calls once it is
reachable.

A call that the daemon would refuse is refused at once, as far as the proxy can know that without
the notes themselves. One process at a time sends the calls, in order, each exactly once by the id
of its operation. A call that the daemon refuses for good is kept with the reason (`confide sync
--queue`), and does not block the others; one that the daemon cannot do now is retried later. Each
call is sealed right before it is sent. While this device has no keys to seal it, it waits, with all
calls that change the same document.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_memory.documents import EXAMPLE, GLOBAL_PROJECT, MEMORY_FOLDER, RequestChannel, is_memory, path_problem
from confide_memory.note_names import TASK_ID, names_of
from confide_memory.tools.call import ToolAnswer
from confide_memory.wire.session import CALL, CallRequest
from confide_proxy import addons
from confide_proxy.errors import LATER, BlockedError, JournalError, StateError, ToolError, UnsealableError
from confide_proxy.locks import SEAT_AGAIN_S, Seat
from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.offline.operations import is_empty
from confide_proxy.offline.outage import Outage
from confide_proxy.sealing.sealed_calls import OF_FILES, SealedCalls, ToolCall

CALL_DEADLINE_S: Final = 10.0
KNOWN_S: Final = 85 * 86400.0
"""Longest age in seconds of a call that is sent. The daemon remembers operations for 90 days: an
older call may have been applied and forgotten, so a user has to decide.
"""
MOST_APART: Final = 256
"""Most calls that are set aside until this device can seal them; with more, all others wait too."""
_OF_NOTES: Final = frozenset({"memory_store", "memory_update", "memory_delete", "memory_link"})
"""Tools for notes and files; calls of other tools are queued by their add-ons."""
PAUSES_S: Final = (0.5, 2.0)
"""Pauses in seconds between attempts of a call that fails inside the daemon, before it counts as
refused.
"""


def place_call(wish: QueuedCall, shown: Mapping[str, Any]) -> QueuedCall:
    """Return the call `wish` with the path and project of the document that it changes, ready to be
    queued.

    A note's arguments stay unchanged, because the daemon expects the same arguments under one
    operation id. The name of a new note follows from `shown`, the sealed arguments.

    Raises ToolError if the daemon would refuse the call, or if its tool cannot be queued.
    """
    if "content" in wish.arguments and "\0" in wish.arguments["content"]:
        raise ToolError("the text holds NUL characters, so it is not markdown")
    if wish.tool == "memory_store":
        return _new_text(wish) if wish.arguments.keys() <= OF_FILES else _new_note(wish, shown)
    arguments = wish.arguments
    if wish.tool not in _OF_NOTES and addons.of_tool(wish.tool, "queued") is not None:
        return replace(wish, path="", target=arguments.get("project") or wish.project)
    match wish.tool:
        case "memory_update":
            _check_update(arguments)
        case "memory_delete":
            if bool(arguments.get("id")) == bool(arguments.get("path")):
                hint = "the id of a note, or the path of a file such as memory/plan.md"
                raise ToolError("one of 'id' and 'path' is needed", hint=hint)
        case "memory_link":
            if arguments["id"] == arguments["relatedId"]:
                raise ToolError("a note cannot be related to itself", hint="name two notes")
        case other:
            hint = "is this device's confide older than the daemon's?"
            raise ToolError(f"{other} cannot wait for the daemon", hint=hint)
    named = arguments.get("path") or arguments.get("id", "")
    target = (arguments.get("project") if arguments.get("path") else None) or wish.project
    _check_target(wish, target)
    return replace(wish, path=named, target=target)


def answer(kept: QueuedCall, shown: Mapping[str, Any], waiting: int, trouble: Outage) -> ToolAnswer:
    """Return the agent's result for a queued call. `shown` are its sealed arguments, `waiting` is
    the number of queued calls, and `trouble` says why the daemon is not used.
    """
    others = f"; {waiting} wait now" if waiting > 1 else ""
    warning = f"saved on this device: {trouble.sentence}; it is sent when the daemon accepts it again{others}"
    structured: dict[str, Any] = {"queued": True, "onDisk": False, "warnings": [warning, *trouble.hints]}
    arguments = kept.arguments
    if kept.tool not in _OF_NOTES:
        queued = addons.of_tool(kept.tool, "queued")
        assert queued is not None  # `place_call` refuses other tools
        about, message = queued(arguments, kept.id)
        structured = {**about, "queued": True, "warnings": structured["warnings"]}
    elif kept.tool == "memory_store":
        is_note = not arguments.keys() <= OF_FILES
        identity = names_of(shown, kept.said, kept.id)[0] if is_note else None
        stored = {
            "path": kept.path,
            "project": kept.target,
            **({"id": identity} if is_note else {}),
            "linesWritten": len(arguments["content"].strip("\n").split("\n")),
            "revision": 0,
            "indexed": False,
            "queued": True,
            "queuedChunks": 0,
            "onDisk": False,
            "duplicates": [],
            "suggestions": {},
            "warnings": structured["warnings"],
        }
        structured = structured | stored if is_note else stored
        message = f"Queued {f'as note {identity} ' if is_note else ''}for {kept.path} [{kept.target}]."
    elif kept.tool == "memory_delete":
        named: dict[str, Any] = {name: arguments[name] for name in ("id", "path") if name in arguments}
        structured |= {"deleted": False, "project": kept.target} | named
        message = f"The deletion of {kept.path} is queued."
    else:
        structured["changed"] = False
        if kept.tool == "memory_update":
            structured["id"] = arguments["id"]
        message = f"The change of {kept.path} is queued."
    return ToolAnswer("\n".join([message, *(f"warning: {text}" for text in structured["warnings"])]), structured)


def _new_note(wish: QueuedCall, shown: Mapping[str, object]) -> QueuedCall:
    arguments = wish.arguments
    scope, task, project = arguments.get("scope"), arguments.get("taskId"), arguments.get("project")
    if arguments.keys() & {"path", "heading", "expectedRevision"} or arguments.get("mode", "append") != "append":
        raise ToolError(
            "a note has a file of its own", hint="leave out path, heading and mode, or the fields of a note"
        )
    if scope == "task" and task is None:
        raise ToolError("scope 'task' needs 'taskId'", hint="the name of the task, such as release-42")
    if task is not None and (scope not in (None, "task") or not TASK_ID.fullmatch(task)):
        raise ToolError(
            "'taskId' goes with scope 'task', and is a folder's name", hint="letters, digits, '.', '_' and '-'"
        )
    if scope == "global" and project not in (None, GLOBAL_PROJECT):
        raise ToolError("scope 'global' and a project exclude each other", hint="leave one of them out")
    if "relation" in arguments and "relatedTo" not in arguments:
        raise ToolError("'relation' needs 'relatedTo'", hint="the ids of the notes it is a relation to")
    target = GLOBAL_PROJECT if scope == "global" else project or wish.project
    _check_target(wish, target)
    return replace(wish, path=names_of(shown, wish.said, wish.id)[1], target=target)


def _new_text(wish: QueuedCall) -> QueuedCall:
    """Fix the path of a stored text now, by the time of the call."""
    target = wish.arguments.get("project") or wish.project
    _check_target(wish, target)
    path = wish.arguments.get("path") or f"{MEMORY_FOLDER}/{datetime.fromisoformat(wish.said):%Y-%m-%d}.md"
    if not is_memory(path):  # as the daemon would say
        why = path_problem(path)
        raise ToolError(
            "'path' must be MEMORY.md or a .md file below memory/" + (f": {why}" if why else ""),
            hint=f"for example {EXAMPLE}",
        )
    return replace(wish, path=path, target=target, arguments={**wish.arguments, "path": path, "project": target})


def _check_target(wish: QueuedCall, target: str) -> None:
    if target not in (wish.project, GLOBAL_PROJECT):
        known = ", ".join(sorted({wish.project, GLOBAL_PROJECT}))
        raise ToolError(f"this connection cannot write to project '{target[:64]}'", hint=f"it can write to: {known}")


def _check_update(arguments: Mapping[str, object]) -> None:
    given = arguments.keys() - {"id", "expectedRevision"}
    if fixed := given & {"scope", "project", "taskId"}:
        raise ToolError(
            f"'{min(fixed)}' of a note is where its file lies, and stays",
            hint="store it where it belongs with memory_store, and memory_delete this one",
        )
    if not given:
        raise ToolError("there is nothing to change", hint="give content, a field such as tags, or restoreRevision")
    if "restoreRevision" in given and len(given) > 1:
        raise ToolError("'restoreRevision' brings a whole text back", hint="change fields in a second call")
    if "relation" in given and "relatedTo" not in given:
        raise ToolError("'relation' needs 'relatedTo'", hint="the ids of the notes it is a relation to")


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of sending queued calls.

    `sent` and `refused` count the calls that the daemon applied and refused. `why` is the reason
    why calls are left in the queue, or None if none are. With `is_for_keys` they wait until this
    device has the keys to seal them.
    """

    sent: int
    refused: int
    why: str | None = None
    is_for_keys: bool = False


class QueueReplay:
    """Sends the queued calls of this device. `seats` is the folder of the lock files that let only
    one process do so; `sealed` seals the texts.
    """

    def __init__(self, journal: Journal, seats: Path, sealed: SealedCalls) -> None:
        self._journal = journal
        self._sealed_calls = sealed
        self._seat = Seat(seats, "journal")

    async def run(self, link: RequestChannel) -> ReplayOutcome:
        """Send calls until the queue is empty, or until the rest must wait longer. If another
        process is sending, wait for it first.

        Raises ConnectionLost if the link goes down, and StateError, JournalError or KeyFileError if
        the queue cannot be used.
        """
        try:
            while not self._seat.try_take():
                if is_empty(self._journal.folder):
                    return ReplayOutcome(0, 0)
                await asyncio.sleep(SEAT_AGAIN_S)
            return await self._send_all(link)
        finally:
            self._seat.leave()

    async def _send_all(self, link: RequestChannel) -> ReplayOutcome:
        sent = refused = 0
        why = None
        apart: set[str] = set()
        documents: set[tuple[str, str]] = set()
        while entry := await asyncio.to_thread(self._journal.first, apart):
            if (entry.target, entry.path) in documents:
                apart.add(entry.id)
                continue
            try:
                await self._send(entry, await self._arguments(entry, link), link)
            except TimeoutError:
                return ReplayOutcome(sent, refused, "the daemon did not answer in time")
            except RequestError as error:
                raise_if_cancelled()
                if error.code in LATER:
                    return ReplayOutcome(sent, refused, str(error))
                why = error.in_one_line
                await asyncio.to_thread(self._journal.refuse, entry, error.code, why)
                refused += 1
                continue
            except (ConnectionLost, StateError, JournalError):
                raise
            except UnsealableError as error:
                why = error.in_one_line
                apart.add(entry.id)
                documents.add((entry.target, entry.path))
                if len(apart) < MOST_APART:
                    continue
                return ReplayOutcome(sent, refused, why)
            except ConfideError as error:
                # The error is not about this call: for example, the list of devices cannot be
                # trusted.
                return ReplayOutcome(sent, refused, error.in_one_line)
            await asyncio.to_thread(self._journal.remove_applied, entry.id)
            sent += 1
        return ReplayOutcome(sent, refused, why, is_for_keys=why is not None)

    async def _arguments(self, entry: QueuedCall, link: RequestChannel) -> Mapping[str, object]:
        """Return the sealed arguments of a call. Raises RequestError for a text that the policy
        blocks; UnsealableError, ToolError, KeyFileError, RosterError, ConnectionLost, TimeoutError.
        """
        try:
            asked = ToolCall(entry.tool, entry.arguments, entry.project, entry.said, entry.id)
            return await self._sealed_calls.arguments(link, asked, is_lookup=False)
        except (BlockedError, ToolError) as error:
            raise RequestError("denied", str(error), error.hint) from error

    async def _send(self, entry: QueuedCall, arguments: Mapping[str, object], link: RequestChannel) -> None:
        if time.time() - entry.at > KNOWN_S:
            problem = "it waited so long that Confide cannot know whether it was done"
            raise RequestError(
                "conflict", problem, "check, and if it was not, send it again: confide sync --queue --retry"
            )
        body: CallRequest = {
            "project": entry.project,
            "operation": entry.id,
            "said": entry.said,
            "tool": entry.tool,
            "arguments": arguments,
        }
        if entry.class_:
            body["class"] = entry.class_
        if entry.seen is not None:
            body["seen"] = entry.seen
        for pause_s in PAUSES_S:
            try:
                await CALL.ask(link, body, timeout_s=CALL_DEADLINE_S)
            except RequestError as error:
                if error.code != "internal":
                    raise
            else:
                return
            await asyncio.sleep(pause_s)
        await CALL.ask(link, body, timeout_s=CALL_DEADLINE_S)
