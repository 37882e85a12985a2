"""Changes of notes that wait for the daemon: what each is queued as, and what its agent is answered.

What the daemon would refuse is refused here already, as far as that shows without the notes themselves; the rest is kept in the queue with
the daemon's reason (`confide queue`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from confide_crypto.errors import ConfideError
from confide_memory.note_names import TASK_ID, names_of
from confide_memory.tools.result import Answer
from confide_proxy.errors import ToolError
from confide_proxy.offline.journal import Entry, Journal
from confide_proxy.offline.outage import Trouble
from confide_proxy.sync.project import GLOBAL

NOTE_FIELDS: Final = frozenset(
    {
        "title",
        "type",
        "category",
        "entity",
        "tags",
        "importance",
        "keywords",
        "source",
        "status",
        "metadata",
        "sensitive",
    }
    | {"scope", "taskId", "relatedTo", "relation"}
)
"""The parameters of `memory_store` any of which makes a note."""
_CONTROL: Final = re.compile(r"\x00")


@dataclass(frozen=True, slots=True)
class Wish:
    """A call that is to be queued: by an agent in `project`, at `said`, under the id `operation`."""

    tool: str
    project: str
    arguments: dict[str, Any]
    said: str
    operation: str

    def entry(self, path: str, target: str | None = None) -> Entry:
        """As it waits. The arguments stay as they were given: under one id the daemon expects the same ones again."""
        return Entry(
            self.operation,
            time.time(),
            self.said,
            self.project,
            self.tool,
            path,
            target or self.project,
            self.arguments,
        )


class ShownQueue:
    """What waits, with its arguments as the daemon will get them: no answer to an agent holds more than the daemon's would."""

    def __init__(self, journal: Journal, shown: Callable[[Entry], Mapping[str, Any]]) -> None:
        self._journal = journal
        self._shown = shown
        self._known: dict[str, Entry] = {}

    def waiting(self, targets: frozenset[str]) -> list[Entry]:
        """As `Journal.waiting`."""
        entries = self._journal.waiting(targets)
        known = {each.id: self._known.get(each.id) or self._as_shown(each) for each in entries}
        self._known = known
        return list(known.values())

    def _as_shown(self, entry: Entry) -> Entry:
        try:
            return replace(entry, arguments=dict(self._shown(entry)))
        except ConfideError as error:
            # The policy has changed since it was said, and blocks it now.
            return replace(entry, arguments={**entry.arguments, "content": f"({error})"})


def is_note(wish: Wish) -> bool:
    """Whether it stores a note, which gets a file of its own."""
    return wish.tool == "memory_store" and not NOTE_FIELDS.isdisjoint(wish.arguments)


def entry(wish: Wish, shown: Mapping[str, Any]) -> Entry:
    """What it is queued as.

    Args:
        shown: the arguments as the daemon will get them, after which a new note is called.

    Raises:
        ToolError: it is not one that the daemon would take, or not one that can wait.
    """
    if "content" in wish.arguments and _CONTROL.search(wish.arguments["content"]):
        raise ToolError("the text holds NUL characters, so it is not markdown")
    if is_note(wish):
        return _new_note(wish, shown)
    check = _CHECKS.get(wish.tool)
    if check is None:
        raise ToolError(
            f"{wish.tool} cannot wait for the daemon", hint="is this machine's confide older than the daemon's?"
        )
    check(wish.arguments)
    named = wish.arguments.get("path") or wish.arguments.get("id", "")
    target = wish.arguments.get("project") if wish.arguments.get("path") else None
    _check_target(wish, target or wish.project)
    return wish.entry(named, target)


def answer(kept: Entry, shown: Mapping[str, Any], waiting: int, trouble: Trouble) -> Answer:
    """The result for a call that was queued; `shown` are its arguments as the daemon will get them, `waiting` is how many wait."""
    others = f"; {waiting} wait now" if waiting > 1 else ""
    warning = f"queued on this machine, since {trouble.sentence}; it is sent as soon as the link is back{others}"
    structured: dict[str, Any] = {"queued": True, "onDisk": False, "warnings": [warning, *trouble.hints]}
    arguments = kept.arguments
    if kept.tool == "memory_store":
        identity, _ = names_of(shown, kept.said, kept.id)
        structured |= {
            "path": kept.path,
            "project": kept.target,
            "id": identity,
            "linesWritten": len(arguments["content"].strip("\n").split("\n")),
            "revision": 0,
            "indexed": False,
            "queuedChunks": 0,
            "duplicates": [],
            "suggestions": {},
        }
        told = f"Queued as note {identity} for {kept.path} [{kept.target}]."
    elif kept.tool == "memory_delete":
        named: dict[str, Any] = {name: arguments[name] for name in ("id", "path") if name in arguments}
        structured |= {"deleted": False, "project": kept.target} | named
        told = f"The deletion of {kept.path} is queued."
    else:
        structured["changed"] = False
        if kept.tool == "memory_update":
            structured["id"] = arguments["id"]
        told = f"The change of {kept.path} is queued."
    return Answer("\n".join([told, *(f"warning: {text}" for text in structured["warnings"])]), structured)


def _new_note(wish: Wish, shown: Mapping[str, Any]) -> Entry:
    arguments = wish.arguments
    scope, task, project = arguments.get("scope"), arguments.get("taskId"), arguments.get("project")
    if "path" in arguments or "heading" in arguments or arguments.get("mode", "append") != "append":
        raise ToolError(
            "a note has a file of its own", hint="leave out path, heading and mode, or the fields of a note"
        )
    if scope == "task" and task is None:
        raise ToolError("scope 'task' needs 'taskId'", hint="the name of the task, such as release-42")
    if task is not None and (scope not in (None, "task") or not TASK_ID.fullmatch(task)):
        raise ToolError(
            "'taskId' goes with scope 'task', and is a folder's name", hint="letters, digits, '.', '_' and '-'"
        )
    if scope == "global" and project not in (None, GLOBAL):
        raise ToolError("scope 'global' and a project exclude each other", hint="leave one of them out")
    if "relation" in arguments and "relatedTo" not in arguments:
        raise ToolError("'relation' needs 'relatedTo'", hint="the ids of the notes it is a relation to")
    target = GLOBAL if scope == "global" else project or wish.project
    _check_target(wish, target)
    return wish.entry(names_of(shown, wish.said, wish.operation)[1], target)


def _check_target(wish: Wish, target: str) -> None:
    if target not in (wish.project, GLOBAL):
        known = ", ".join(sorted({wish.project, GLOBAL}))
        raise ToolError(f"this connection cannot write to project '{target[:64]}'", hint=f"it can write to: {known}")


def _check_update(arguments: Mapping[str, Any]) -> None:
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


def _check_delete(arguments: Mapping[str, Any]) -> None:
    if bool(arguments.get("id")) == bool(arguments.get("path")):
        raise ToolError(
            "one of 'id' and 'path' is needed", hint="the id of a note, or the path of a file such as memory/plan.md"
        )


def _check_link(arguments: Mapping[str, Any]) -> None:
    if arguments["id"] == arguments["relatedId"]:
        raise ToolError("a note cannot be related to itself", hint="name two notes")


_CHECKS: Final[dict[str, Callable[[Mapping[str, Any]], None]]] = {
    "memory_update": _check_update,
    "memory_delete": _check_delete,
    "memory_link": _check_link,
}
