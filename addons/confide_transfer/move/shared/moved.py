"""The records and requests of a move from one daemon to another (PROTOCOL.md 9.8).

Source and target use the same form for each field. Times are whole microseconds since 1970, so that
they arrive without loss.
"""

import zlib
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final, NamedTuple, NotRequired, TypedDict

from confide_crypto.errors import RequestError
from confide_memory.classes import CLASSES
from confide_memory.documents import MAX_TEXT_BYTES, text_hash
from confide_memory.forms import (
    Carried,
    Coded,
    Kind,
    choice,
    content_hash,
    count,
    data,
    each,
    fields_of_type,
    items,
    list_of,
    optional,
    place,
    project,
    record,
    revision,
    text,
    text_up_to,
    to_json,
)
from confide_memory.wire.operation import HAS_LEFT as HAS_LEFT
from confide_memory.wire.operation import Nothing, Operation

MAX_MOVED: Final = 512
"""Limit of items of one kind in one request, which is written in one transaction."""
MAX_PAGE: Final = 10_000
"""Limit of revisions in one answer."""
MAX_LINKS: Final = 100_000
"""Limit of links between projects in one answer."""
MAX_PARTS: Final = 10_000
"""Limit of documents of one transcript."""
_MAX_MARK: Final = 256
_MAX_PACKED: Final = MAX_TEXT_BYTES + 64 * 1024
"""Limit of a compressed text: compression adds some bytes to incompressible data."""


def _hash(body: Carried, name: str) -> str:
    return "" if body.get(name) == "" else content_hash(body, name)


def _link(body: Carried, name: str) -> str:
    return project({"project": body.get(name)})


def _parts(body: Carried, name: str) -> list[str]:
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
_Mark = Annotated[str, text_up_to(_MAX_MARK)]
_Whole = Annotated[int, count(2**53 - 1)]
_Id = Annotated[int, optional(count(2**53 - 1), 0)]
_Class = Annotated[str | None, optional(choice(CLASSES))]
_Packed = Annotated[bytes | None, optional(data(_MAX_PACKED))]


class MovedRevision(NamedTuple):
    """A revision of a document as requests of a move carry it."""

    id: _Id  # its change at the source
    project: _Project
    path: str
    revision: _Revision
    hash: Annotated[str, _hash]  # "" if it deleted the document
    author: _Mark
    time: _Whole
    bytes: _Id  # of `packed`, also if that is not requested
    packed: _Packed  # zlib of UTF-8; None if not requested, or deleted
    # Provenance, with the next two (docs/agents.md); None if the source does not store it.
    made: _Class
    by: _Class
    doubted: Annotated[Sequence[tuple[int, int]], optional(items(MAX_PARTS, _lines), ())]


class MovedDocument(NamedTuple):
    """The data of a document other than its revisions: use count and trusted parts."""

    id: _Id  # at the source
    project: _Project
    path: str
    revision: _Revision
    author: _Mark
    time: _Whole
    # True if the document was deleted so long ago that no revision is kept. The move keeps its
    # revision number, so that no other text can get it.
    bare: bool
    uses: _Whole
    used: _Whole
    # Hashes of the parts of its text that a user trusted.
    trusted: Annotated[Sequence[str], optional(items(MAX_PARTS, each(content_hash)), ())]


class MovedSession(NamedTuple):
    """The position that a transcript was read to, and the paths of its documents in order."""

    id: _Id
    project: _Project
    agent: _Mark
    session: _Mark
    version: _Revision
    offset: _Whole
    head: _Mark
    mark: _Mark
    forgotten: bool
    time: _Whole
    parts: Annotated[Sequence[str], _parts]


class MovedLink(NamedTuple):
    """A link between two projects."""

    one: Annotated[str, _link]
    other: Annotated[str, _link]
    time: _Whole


def is_whole(one: MovedRevision) -> bool:
    """Return True if the revision has a text that matches its hash."""
    try:
        return one.packed is not None and text_hash(text_of(one.packed)) == one.hash
    except ValueError:
        return False


def text_of(packed: bytes) -> str:
    """Decompress a text.

    Raise ValueError if the data is not zlib of UTF-8, or the text is longer than the limit of a
    document.
    """
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, MAX_TEXT_BYTES + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or unpacking.unused_data or len(data) > MAX_TEXT_BYTES:
        raise ValueError("not one packed text, or too large a one")
    return data.decode()


def _list_kind(record_type: type[Any], *, but: Collection[str] = ()) -> Kind:
    """Return the form of a list of these records, which checks each field; `but` names fields that
    are not written.
    """
    fields = fields_of_type(record_type)
    read = record(**fields)

    def read_records(body: Carried, name: str) -> Any:
        return record_type(**read(body, name))

    def write(one: NamedTuple) -> object:
        return to_json({name: value for name, value in one._asdict().items() if name not in but}, fields)

    return Coded(read_records, write)


_OF_SOURCE: Final = ("id", "bytes")
"""Fields that have a meaning only at the source of the move."""


class Dropped(TypedDict):
    """A revision that the source has deleted."""

    project: _Project
    path: str
    revision: _Revision


class MoveState(TypedDict):
    state: Annotated[str, choice(("settled", "arriving", "left"))]
    revisions: _Whole
    records: _Whole
    tasks: Annotated[int | None, optional(count(2**53 - 1))]


class MoveOutRequest(TypedDict):
    after: Annotated[int, place]
    texts: NotRequired[bool]


class MovedOut(TypedDict):
    revisions: Annotated[list[MovedRevision], list_of(MAX_PAGE, _list_kind(MovedRevision))]
    next: Annotated[int | None, optional(revision)]
    total: _Whole


class MoveFactsRequest(TypedDict):
    kind: Annotated[str, choice(("documents", "sessions", "links"))]
    after: NotRequired[Annotated[int, place]]


class MovedFacts(TypedDict):
    documents: Annotated[Sequence[MovedDocument], list_of(MAX_MOVED, _list_kind(MovedDocument))]
    sessions: Annotated[Sequence[MovedSession], list_of(MAX_MOVED, _list_kind(MovedSession))]
    links: Annotated[Sequence[MovedLink], list_of(MAX_LINKS, _list_kind(MovedLink))]
    next: Annotated[int | None, optional(revision)]


class MoveHeld(TypedDict):
    changes: _Whole


class MoveIn(TypedDict):
    revisions: Annotated[list[MovedRevision], list_of(MAX_MOVED, _list_kind(MovedRevision, but=_OF_SOURCE))]
    dropped: Annotated[list[Dropped], MAX_MOVED]
    documents: Annotated[list[MovedDocument], list_of(MAX_MOVED, _list_kind(MovedDocument, but=_OF_SOURCE))]
    sessions: Annotated[list[MovedSession], list_of(MAX_MOVED, _list_kind(MovedSession, but=_OF_SOURCE))]
    links: Annotated[list[MovedLink], list_of(MAX_MOVED, _list_kind(MovedLink))]


class MoveTaken(TypedDict):
    taken: Annotated[int, count(MAX_MOVED)]


class MoveEndRequest(TypedDict):
    revisions: _Whole
    records: _Whole
    tasks: NotRequired[bool]


class MoveEnded(TypedDict):
    damaged: _Whole


MOVE_STATE: Final = Operation("move-state", Nothing, MoveState)
MOVE_OUT: Final = Operation("move-out", MoveOutRequest, MovedOut)
MOVE_FACTS: Final = Operation("move-facts", MoveFactsRequest, MovedFacts)
MOVE_HOLD: Final = Operation("move-hold", Nothing, MoveHeld)
MOVE_LEAVE: Final = Operation("move-leave", MoveHeld, Nothing)
MOVE_BEGIN: Final = Operation("move-begin", Nothing, Nothing)
MOVE_IN: Final = Operation("move-in", MoveIn, MoveTaken, is_large=True)
MOVE_END: Final = Operation("move-end", MoveEndRequest, MoveEnded)
