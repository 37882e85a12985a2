"""What a space is carried in from one daemon to another (PROTOCOL.md 9.8): the fields of each thing, the same where it leaves and arrives,
and the requests of a move.

Times are whole microseconds since 1970, so that they arrive as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_crypto.sealing.roster import MAX_ENTRIES
from confide_crypto.sealing.roster_entry import MAX_ENTRY_BYTES
from confide_memory.classes import CLASSES
from confide_memory.documents import MAX_TEXT_BYTES
from confide_memory.forms import (
    Kind,
    bounded,
    choice,
    content_hash,
    count,
    data,
    each,
    flag,
    items,
    later,
    optional,
    place,
    project,
    records,
    revision,
    text,
)
from confide_memory.wire import HAS_LEFT as HAS_LEFT
from confide_memory.wire import Fields, add

MAX_MOVED: Final = 512
"""Things of one kind in one request; written in one transaction."""
MAX_PAGE: Final = 10_000
"""Revisions in one answer."""
MAX_LINKS: Final = 100_000
"""Between projects, in one answer."""
MOVED_FACTS: Final = ("documents", "sessions", "links")
MOVE_STATES: Final = ("settled", "arriving", "left")
MAX_PARTS: Final = 10_000
"""Documents of one transcript."""
_MAX_MARK: Final = 256
_MAX_PACKED: Final = MAX_TEXT_BYTES + 64 * 1024
"""Of a packed text: what cannot be made smaller gets some bytes longer."""

_whole: Final = count(2**53 - 1)


def _hash(body: Mapping[str, Any], name: str) -> str:
    return "" if body.get(name) == "" else content_hash(body, name)


def _link(body: Mapping[str, Any], name: str) -> str:
    return project({"project": body.get(name)})


def _parts(body: Mapping[str, Any], name: str) -> list[str]:
    found: list[str] = items(MAX_PARTS, each(text))(body, name)
    if len(set(found)) != len(found):
        raise RequestError("invalid", f"'{name}' names a document twice")
    return found


def _lines(item: Any) -> tuple[int, int]:
    match item:
        case [int(first), int(last)] if 0 <= first <= last <= MAX_TEXT_BYTES:
            return first, last
    raise RequestError("invalid", "lines are not [first, last]")


_document: Final[Mapping[str, Kind]] = {"project": project, "path": text, "revision": revision}

moved_revision: Final[Mapping[str, Kind]] = {
    "id": optional(_whole, 0),
    **_document,
    "hash": _hash,
    "author": bounded(_MAX_MARK),
    "time": _whole,
    "bytes": optional(_whole, 0),
    "packed": optional(data(_MAX_PACKED)),
    "made": optional(choice(CLASSES)),
    "by": optional(choice(CLASSES)),
    "doubted": optional(items(MAX_PARTS, _lines), ()),
}
moved_document: Final[Mapping[str, Kind]] = {
    "id": optional(_whole, 0),
    **_document,
    "author": bounded(_MAX_MARK),
    "time": _whole,
    "bare": flag(),
    "uses": _whole,
    "used": _whole,
    "trusted": optional(items(MAX_PARTS, each(content_hash)), ()),
}
moved_session: Final[Mapping[str, Kind]] = {
    "id": optional(_whole, 0),
    "project": project,
    "agent": bounded(_MAX_MARK),
    "session": bounded(_MAX_MARK),
    "version": revision,
    "offset": _whole,
    "head": bounded(_MAX_MARK),
    "mark": bounded(_MAX_MARK),
    "forgotten": flag(),
    "time": _whole,
    "parts": _parts,
}
moved_link: Final[Mapping[str, Kind]] = {"one": _link, "other": _link, "time": _whole}

_number: Final = count(MAX_ENTRIES - 1, least=-1)

_REQUESTS: Final[Mapping[str, Fields]] = {
    "move-state": {},
    "move-out": {"after": later(place), "texts": flag()},
    "move-facts": {"kind": choice(MOVED_FACTS), "after": later(place)},
    "move-hold": {},
    "move-leave": {"changes": _whole},
    "move-roster": {"entries": items(MAX_ENTRIES, each(data(MAX_ENTRY_BYTES)))},
    "move-begin": {},
    "move-in": {
        "revisions": records(MAX_MOVED, **moved_revision),
        "dropped": records(MAX_MOVED, project=project, path=text, revision=revision),
        "documents": records(MAX_MOVED, **moved_document),
        "sessions": records(MAX_MOVED, **moved_session),
        "links": records(MAX_MOVED, **moved_link),
    },
    "move-end": {"revisions": _whole, "records": _whole, "tasks": flag()},
}

_ANSWERS: Final[Mapping[str, Fields]] = {
    "move-state": {"state": choice(MOVE_STATES), "revisions": _whole, "records": _whole, "tasks": optional(_whole)},
    "move-out": {
        "revisions": records(MAX_PAGE, **moved_revision),
        "next": optional(revision),
        "total": _whole,
    },
    "move-facts": {
        "documents": records(MAX_MOVED, **moved_document),
        "sessions": records(MAX_MOVED, **moved_session),
        "links": records(MAX_LINKS, **moved_link),
        "next": optional(revision),
    },
    "move-hold": {"changes": _whole},
    "move-leave": {},
    "move-roster": {"number": _number},
    "move-begin": {},
    "move-in": {"taken": count(MAX_MOVED)},
    "move-end": {"damaged": _whole},
}

add(_REQUESTS, _ANSWERS)
