"""What a space is carried in from one daemon to another (PROTOCOL.md 9.8): each thing, with the form of each of its fields, the same where
it leaves and arrives; and the requests of a move.

Times are whole microseconds since 1970, so that they arrive as they were.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from confide_crypto.errors import RequestError
from confide_memory.classes import CLASSES
from confide_memory.documents import MAX_TEXT_BYTES, text_hash
from confide_memory.forms import (
    Fields,
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
from confide_memory.wire.operation import HAS_LEFT as HAS_LEFT
from confide_memory.wire.operation import add

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


_Project = Annotated[str, project]
_Revision = Annotated[int, revision]
_Text = Annotated[str, text]
_Mark = Annotated[str, bounded(_MAX_MARK)]
_Whole = Annotated[int, _whole]
_Id = Annotated[int, optional(_whole, 0)]
_Class = Annotated[str | None, optional(choice(CLASSES))]
_Packed = Annotated[bytes | None, optional(data(_MAX_PACKED))]


class MovedRevision(NamedTuple):
    """A revision as it is carried."""

    id: _Id  # its change, where it comes from
    project: _Project
    path: _Text
    revision: _Revision
    hash: Annotated[str, _hash]  # "" of one that deleted the document
    author: _Mark
    time: _Whole
    bytes: _Id  # of `packed`, also where that is not asked for
    packed: _Packed  # zlib of UTF-8; None: not asked for, or deleted
    made: _Class  # of its origin (docs/classes.md), as are the next; None: where it comes from nobody has kept that
    by: _Class
    doubted: Annotated[Sequence[tuple[int, int]], optional(items(MAX_PARTS, _lines), ())]


class MovedDocument(NamedTuple):
    """What is known of a document beside its revisions."""

    id: _Id  # where it comes from
    project: _Project
    path: _Text
    revision: _Revision
    author: _Mark
    time: _Whole
    # Deleted so long ago that no revision is kept: its number must not come to mean another text.
    bare: Annotated[bool, flag()]
    uses: _Whole
    used: _Whole
    # By a person: hashes of its parts.
    trusted: Annotated[Sequence[str], optional(items(MAX_PARTS, each(content_hash)), ())]


class MovedSession(NamedTuple):
    """How far a transcript has come, and the paths of its documents in order."""

    id: _Id
    project: _Project
    agent: _Mark
    session: _Mark
    version: _Revision
    offset: _Whole
    head: _Mark
    mark: _Mark
    forgotten: Annotated[bool, flag()]
    time: _Whole
    parts: Annotated[Sequence[str], _parts]


class MovedLink(NamedTuple):
    """A link between two projects."""

    one: Annotated[str, _link]
    other: Annotated[str, _link]
    time: _Whole


def kinds(record: type[NamedTuple]) -> dict[str, Kind]:
    """The form of each field, as the records have them in their annotations."""
    return {
        name: hint.__metadata__[0] for name, hint in get_type_hints(record, globals(), {}, include_extras=True).items()
    }


def is_whole(one: MovedRevision) -> bool:
    """Whether its text is there and what its hash says."""
    try:
        return one.packed is not None and text_hash(text_of(one.packed)) == one.hash
    except ValueError:
        return False


def text_of(packed: bytes) -> str:
    """The text in what is packed. Raises ValueError: it is no zlib of UTF-8, or of a text that is longer than one may be."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, MAX_TEXT_BYTES + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or unpacking.unused_data or len(data) > MAX_TEXT_BYTES:
        raise ValueError("not one packed text, or too large a one")
    return data.decode()


_FACTS: Final = {
    "documents": records(MAX_MOVED, **kinds(MovedDocument)),
    "sessions": records(MAX_MOVED, **kinds(MovedSession)),
}

_REQUESTS: Final[Mapping[str, Fields]] = {
    "move-state": {},
    "move-out": {"after": later(place), "texts": flag()},
    "move-facts": {"kind": choice(MOVED_FACTS), "after": later(place)},
    "move-hold": {},
    "move-leave": {"changes": _whole},
    "move-begin": {},
    "move-in": {
        "revisions": records(MAX_MOVED, **kinds(MovedRevision)),
        "dropped": records(MAX_MOVED, project=project, path=text, revision=revision),
        "links": records(MAX_MOVED, **kinds(MovedLink)),
        **_FACTS,
    },
    "move-end": {"revisions": _whole, "records": _whole, "tasks": flag()},
}

_ANSWERS: Final[Mapping[str, Fields]] = {
    "move-state": {"state": choice(MOVE_STATES), "revisions": _whole, "records": _whole, "tasks": optional(_whole)},
    "move-out": {
        "revisions": records(MAX_PAGE, **kinds(MovedRevision)),
        "next": optional(revision),
        "total": _whole,
    },
    "move-facts": {
        "links": records(MAX_LINKS, **kinds(MovedLink)),
        **_FACTS,
        "next": optional(revision),
    },
    "move-hold": {"changes": _whole},
    "move-leave": {},
    "move-begin": {},
    "move-in": {"taken": count(MAX_MOVED)},
    "move-end": {"damaged": _whole},
}

add(_REQUESTS, _ANSWERS)
