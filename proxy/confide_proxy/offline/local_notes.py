"""Find the notes among this device's files by their ids, which are in their front matter or else
follow from their file names.

Front matter is matched line by line instead of by a YAML parser, which takes a hundred times as
long; the daemon parses it fully.
"""

from __future__ import annotations

import itertools
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from confide_memory import note_names
from confide_memory.documents import is_note
from confide_memory.tools.past import is_over
from confide_proxy.errors import FolderError, ToolError
from confide_proxy.sync.folder import Folder

READ_BUDGET_S: Final = 5.0
"""Seconds to read files for one id."""
MOST_CANDIDATES: Final = 5
_MOST_LINES: Final = 60
"""Most lines of front matter in which an id is searched."""
_ID: Final = re.compile(rf"""id: *["']?({note_names.ID.pattern})["']?\s*""")


_STATUS: Final = re.compile(r"""status: *["']?(.+?)["']?\s*""")
_SUCCEEDED: Final = re.compile(r"(?:superseded|replaced)(?:[_-]by|By): *\S.*")
SUPERSEDES: Final = "supersedes"


class NoteState(NamedTuple):
    """The validity of a note, read from its front matter: `is_over` if it is superseded or done,
    and the ids of the notes that it supersedes.
    """

    is_over: bool = False
    supersedes: frozenset[str] = frozenset()
    """Ids, whole or short, of notes."""


CURRENT: Final = NoteState()


class NoteFile(NamedTuple):
    """The project, path and id of a note on this device."""

    project: str
    path: str
    id: str


def identity_of(project: str, path: str, text: str) -> str:
    """Return the id of a note: from its front matter if it has one there, otherwise derived from
    its path.
    """
    found = next((found[1] for line in _head(text) if (found := _ID.fullmatch(line))), None)
    return found or note_names.id_of_path(project, path)


def state_of(text: str) -> NoteState:
    """Return whether a note's own fields say that it is superseded or done, and the ids of the
    notes that it supersedes.
    """
    lines = list(_head(text))
    over = any(
        _SUCCEEDED.fullmatch(line) or ((found := _STATUS.fullmatch(line)) and is_over(found[1])) for line in lines
    )
    if not any(SUPERSEDES in line for line in lines):
        return NoteState(over)
    # Imported late: it loads YAML, which most notes do not need.
    from confide_memory.front_matter import split_fields

    return NoteState(over, superseded_in(split_fields(text)[0].get("relations")))


def superseded_in(relations: object) -> frozenset[str]:
    """Return the ids of the notes that a note supersedes, from the value of its field `relations`,
    which may be a list or a mapping.
    """
    if isinstance(relations, Mapping):
        others = relations.get(SUPERSEDES)
        found = others if isinstance(others, list) else [others]
    elif isinstance(relations, list):
        entries = (one for one in relations if isinstance(one, Mapping) and one.get("relation") == SUPERSEDES)
        found = [one.get("id") for one in entries]
    else:
        found = []
    return frozenset(one for one in found if isinstance(one, str))


def _head(text: str) -> Iterator[str]:
    """Yield the first lines of the front matter."""
    lines = text.split("\n", _MOST_LINES)[:_MOST_LINES]
    if lines[0].rstrip() == "---":
        yield from itertools.takewhile(lambda line: line.rstrip() not in ("---", "..."), lines[1:])


def short_of(identity: str, digits: Sequence[str]) -> str:
    """Return the shortest unique form of a note's id. `digits` are the sorted digits of the ids of
    all notes on this device, including this one.
    """
    own = note_names.digits_of(identity)
    first, last = bisect_left(digits, own), bisect_right(digits, own)
    if last - first > 1:
        return identity
    before, after = digits[first - 1 : first], digits[last : last + 1]
    return note_names.short_of(identity, before[0] if before else None, after[0] if after else None)


def note_by_id(folders: Iterable[Folder], said: str) -> NoteFile | None:
    """Return the note with this full or short id, or None if it is not on this device. Raises
    ToolError if several ids begin with it.
    """
    files = [(folder, file.path) for folder in folders for file in folder.walk() if is_note(file.path)]
    # First the files whose names contain its digits, which are nearly all; a whole id belongs to
    # one note only.
    files.sort(key=lambda each: not note_names.is_named(each[1], said))
    found = _notes_by_id(files, said)
    if len(found) > 1:
        more = ", ..." if len(found) > MOST_CANDIDATES else ""
        raise ToolError(
            f"{said} is the id of several notes", hint=f"one of {', '.join([*found][:MOST_CANDIDATES])}{more}"
        )
    return next(iter(found.values()), None)


def _notes_by_id(files: Iterable[tuple[Folder, str]], said: str) -> dict[str, NoteFile]:
    """Return the notes in these files that the id may mean, by their ids; the first file wins if
    two have the same id.
    """
    end = time.monotonic() + READ_BUDGET_S
    found: dict[str, NoteFile] = {}
    for folder, path in files:
        if time.monotonic() > end:
            break
        try:
            content = folder.read(path)
        except FolderError:
            continue
        identity = identity_of(folder.project, path, content.text) if content else ""
        if note_names.may_mean(said, identity):
            found.setdefault(identity, NoteFile(folder.project, path, identity))
            if identity == said:
                break
    return found
