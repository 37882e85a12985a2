"""What the notes among this machine's files say of themselves, as far as a search without the daemon is narrowed and ordered by it.

Read from the front matter of the files that match, when it is asked for. The daemon reads the same with more care.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confide_memory.note_names import MAX_TITLE, TASKS, is_note, task_of
from confide_proxy.errors import FolderError, ToolError

NEUTRAL: Final = 0.5
BUDGET_S: Final = 2.0
"""How long one search may read fields; notes beyond that pass no filter."""
_FIELD = re.compile(r"(\w+):")
_SEARCHED: Final = frozenset({"title", "tags", "keywords", "entity", "category", "type"})


@dataclass(frozen=True, slots=True)
class Fields:
    """Of one note; `shown` is what a result tells of it."""

    tags: frozenset[str] = frozenset()
    type: str | None = None
    category: str | None = None
    entity: str | None = None
    importance: float = NEUTRAL
    supersedes: frozenset[str] = frozenset()
    shown: Mapping[str, Any] | None = None


class LocalNotes:
    """For one search."""

    def __init__(self, read: Callable[[str, str], str | None]) -> None:
        """`read` gives the text of a file, by project and path; it may raise FolderError."""
        self._read = read
        self._known: dict[tuple[str, str], Fields | None] = {}
        self._deadline = time.monotonic() + BUDGET_S
        self.unread = 0

    def fields(self, project: str, path: str) -> Fields | None:
        """Of the note; None for what is no note, or cannot be read in time."""
        if not is_note(path):
            return None
        name = (project, path)
        if name not in self._known:
            self._known[name] = self._fields(project, path)
            self.unread += self._known[name] is None
        return self._known[name]

    def _fields(self, project: str, path: str) -> Fields | None:
        if time.monotonic() > self._deadline:
            return None
        try:
            text = self._read(project, path)
        except FolderError:
            return None
        return None if text is None else _fields_of(text)


def newest_first(found: Sequence[Fields | None]) -> list[int]:
    """The places of what was found, in order, but each note behind those among them that say they supersede it."""
    ordered: dict[int, None] = {}

    def put(place: int, behind: frozenset[int]) -> None:
        note = found[place]
        known = note.shown.get("id") if note and note.shown else None
        for other, newer in enumerate(found):
            # Notes that supersede each other in a circle stay as they are.
            if newer and known in newer.supersedes and other not in ordered and other not in behind and other != place:
                put(other, behind | {place})
        ordered.setdefault(place)

    for place in range(len(found)):
        put(place, frozenset())
    return list(ordered)


def narrowed(arguments: Mapping[str, Any]) -> Callable[[Fields], bool] | None:
    """Whether a note passes what is asked of its fields; None where nothing is."""
    tags = {_folded(tag) for tag in arguments.get("tags") or ()}
    types = {_folded(word) for word in arguments.get("type") or ()}
    words = {name: _folded(arguments[name]) for name in ("category", "entity") if arguments.get(name) is not None}
    if not tags and not types and not words:
        return None

    def passes(note: Fields) -> bool:
        return (
            tags <= note.tags
            and (not types or note.type in types)
            and all(getattr(note, name) == word for name, word in words.items())
        )

    return passes


def in_tasks(arguments: Mapping[str, Any], project: str) -> Callable[[str, str], bool]:
    """Whether a file is looked at, by project and path: notes of tasks are left out, but those of the task that is named.

    Raises:
        ToolError: scope and task do not go together.
    """
    scope, task, asked = arguments["scope"], arguments.get("taskId"), arguments.get("project")
    if scope == "task" and task is None:
        raise ToolError("scope 'task' needs 'taskId'", hint="the name of the task, such as release-42")
    if task is not None and scope not in ("all", "task"):
        raise ToolError(f"'taskId' goes with scope 'task', not with '{scope}'", hint="leave one of them out")
    if task is None and (arguments.get("path") or "").removeprefix("./").startswith(TASKS.rstrip("/")):
        return lambda _project, _path: True
    of = None if asked == "*" else asked or project
    return lambda name, path: (found := task_of(path)) is None or (found == task and of in (None, name))


def parted(text: str) -> tuple[str, str]:
    """What a note is found by beside its text, and its text with as many empty lines before it as its front matter has."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return "", text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return "", text
    # By eye rather than with a YAML parser: every note is read so, at the first search.
    words, is_searched = [], False
    for line in lines[1:end]:
        if field := _FIELD.match(line):
            is_searched = field[1] in _SEARCHED
        if is_searched:
            words.append(line[field.end() :] if field else line)
    return " ".join(words), "\n" * (end + 1) + "\n".join(lines[end + 1 :])


def _fields_of(text: str) -> Fields:
    # Brings YAML, which a session that never gets here does without.
    from confide_memory.front_matter import split_fields
    from confide_memory.note import importance_of

    fields, _, _ = split_fields(text)
    tags = _words(fields.get("tags"))
    importance = importance_of(fields.get("importance"))
    shown: dict[str, Any] = {"tags": tags}
    shown |= {name: value for name in ("id", "title") if (value := _word(fields.get(name)))}
    said = {name: _folded(word) for name in ("type", "category", "entity") if (word := _word(fields.get(name)))}
    return Fields(
        tags=frozenset(map(_folded, tags)),
        type=said.get("type"),
        category=said.get("category"),
        entity=said.get("entity"),
        importance=NEUTRAL if importance is None else importance,
        supersedes=_superseded(fields.get("relations")),
        shown=shown,
    )


def _superseded(relations: Any) -> frozenset[str]:
    """The ids of the notes that a note says it supersedes, in either of the two forms that people write."""
    if isinstance(relations, Mapping):
        others = relations.get("supersedes")
        found = others if isinstance(others, list) else [others]
    elif isinstance(relations, list):
        entries = (one for one in relations if isinstance(one, Mapping) and one.get("relation") == "supersedes")
        found = [one.get("id") for one in entries]
    else:
        found = []
    return frozenset(one for one in found if isinstance(one, str))


def _words(value: Any) -> list[str]:
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    return list(dict.fromkeys(word.lstrip("#") for item in items if (word := _word(item))))


def _word(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return " ".join(str(value).split())[:MAX_TITLE] or None


def _folded(word: str) -> str:
    return " ".join(word.casefold().split())
