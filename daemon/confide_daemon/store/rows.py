"""The typed rows that the tables of a space take and return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from confide_memory.classes import UNTRUSTED


@dataclass(frozen=True, slots=True)
class DocumentRow:
    id: int
    project: str
    path: str
    revision: int
    hash: str
    deleted: bool
    author: str
    updated_at: float  # seconds since 1970
    source: str
    day: str  # ISO
    chunking: str | None
    clash: bool = False  # its text contains a conflict
    made: str = UNTRUSTED  # the lowest class among its authors
    class_: str = UNTRUSTED  # the class that it counts as


@dataclass(frozen=True, slots=True)
class TextOrigin:
    """The provenance of a text, as far as the daemon knows it (docs/agents.md).

    Attributes:
        made: the lowest trust class among the authors of the text.
        doubted: the untrusted lines, as (first, last) counted from 1.
        by: the trust class of the author of this revision.
    """

    made: str = UNTRUSTED
    doubted: tuple[tuple[int, int], ...] = ()
    by: str = UNTRUSTED


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A revision of a document. It has no `text` (None) if it deleted the document."""

    number: int
    hash: str
    text: str | None
    author: str
    created_at: float


class StoredText(NamedTuple):
    """A revision with its compressed text."""

    change: int  # its id, which grows with every change of the space
    project: str
    path: str
    revision: int
    is_newest: bool  # the newest revision of its document, which is not deleted
    hash: str
    packed: bytes  # zlib of UTF-8


@dataclass(frozen=True, slots=True)
class RevisionEntry:
    number: int
    hash: str
    author: str
    created_at: float
    deleted: bool
    clash: bool
    bytes: int
    class_: str = UNTRUSTED


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A document in a list of documents that are not deleted. `title` and `id` are None unless it
    is a note.
    """

    document: int
    path: str
    revision: int
    author: str
    updated_at: float  # seconds since 1970
    clash: bool
    bytes: int
    id: str | None
    title: str | None
    class_: str = UNTRUSTED


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A revision in the list of a project's changes."""

    document: int
    path: str
    revision: int
    author: str
    created_at: float  # seconds since 1970
    deleted: bool
    clash: bool
    bytes: int
    change: int  # in the sequence of the space's changes; clients see it as `ChangeNumbers` shows it
    id: str | None  # id of the note that it is now


@dataclass(frozen=True, slots=True)
class ProjectRow:
    name: str
    files: int
    updated_at: float


@dataclass(frozen=True, slots=True)
class OperationRow:
    """A change recorded under the id that its device chose, so that a retry is recognized.
    `previous` is the hash of the document before the change; None: there was no document.
    """

    id: str
    asked: str  # a hash of the request
    revision: int
    hash: str
    previous: str | None
    lines: int


class SealedRow(NamedTuple):
    """The metadata of a sealed record, readable without its key. `id` has 16 bytes, `stored_at` is
    in seconds since 1970.
    """

    id: bytes
    kind: str
    epoch: int
    stored_at: float


@dataclass(frozen=True, slots=True)
class SealedPlace:
    """The location of a sealed record in an external store: 32 bytes, chosen by that store."""

    value: bytes


class SealedEntry(NamedTuple):
    """A sealed record: its bytes if it is stored here, otherwise its location in the external
    store.
    """

    number: int
    id: bytes
    epoch: int
    record: bytes | SealedPlace


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """How far one session's transcript is stored; see `store/sql/0004_transcripts.sql`."""

    id: int  # 0: not stored yet
    project: str
    agent: str
    session: str
    version: int
    offset: int
    head: str
    mark: str
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class NoteRow:
    """A note that is not deleted, and its document. Times are seconds since 1970, `importance` is 0
    to 1.
    """

    document: int
    id: str
    project: str
    path: str
    revision: int
    task_id: str | None
    title: str
    type: str | None
    category: str | None
    entity: str | None
    status: str | None
    source: str | None
    tags: tuple[str, ...]
    importance: float
    created_at: float
    updated_at: float
    author: str
    uses: int  # how often it was read or shown as a result
    problems: int  # number of problems in its front matter
    class_: str = UNTRUSTED


class EntityRow(NamedTuple):
    """An entity (a person, thing or topic) that notes of one project are about. Times are seconds
    since 1970.
    """

    name: str
    project: str
    is_of_tasks: bool
    written: int  # number of notes about it
    first_seen: float
    last_updated: float


@dataclass(frozen=True, slots=True)
class NoteCounts:
    """Numbers of notes: in total, by type and by category ("" for none). Times are seconds since
    1970, or None if there is no note.
    """

    total: int
    with_problems: int
    by_type: dict[str, int]
    by_category: dict[str, int]
    created_at: float | None
    updated_at: float | None


class NotePiece(NamedTuple):
    """A chunk from the beginning of a note."""

    id: int
    document: int
    position: int
    hash: bytes
    tokens: int
    text: str


class NotePlace(NamedTuple):
    """The project of a note, and its task (None: it belongs to no task). `updated_at` is in seconds
    since 1970.
    """

    document: int
    project: str
    task_id: str | None
    updated_at: float


@dataclass(frozen=True, slots=True)
class NoteFilter:
    """Conditions for a list of notes. An empty field or None sets no condition. Words are compared
    without regard to case; times are seconds since 1970.

    Attributes:
        without_tasks: True to leave out notes of tasks, except those of `task_id` in
            `task_projects` (None: in any project).
        tags: a note must have all of them.
        path: a file, a folder, or a glob.
        since, until: bounds of the last change; the first is included, the second is not.
    """

    projects: frozenset[str] | None = None
    without_tasks: bool = True
    task_id: str | None = None
    task_projects: frozenset[str] | None = None
    types: tuple[str, ...] = ()
    category: str | None = None
    entity: str | None = None
    status: str | None = None
    tags: tuple[str, ...] = ()
    path: str | None = None
    since: float | None = None
    until: float | None = None
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class NoteList:
    """A page of a list of notes."""

    notes: list[tuple[NoteRow, str]]  # each with the text of its first chunk, or ""
    total: int  # number of notes on all pages


@dataclass(frozen=True, slots=True)
class LinkedRow:
    """A document at the other end of a link from or to a given document."""

    direction: str  # `to`: the given document links to this one; `from`: this one links to it
    document: int
    id: str | None  # the note's id; None: it is not a note
    title: str
    path: str
    project: str


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A relation that one note states to another; both are given by their ids."""

    note: str
    kind: str
    other: str


@dataclass(frozen=True, slots=True)
class Piece:
    start_line: int  # counted from 1, both ends included
    end_line: int
    text: str
    heading: str  # "Outer > Inner", empty above the first heading
    tokens: int
    doubted: bool = True  # it contains untrusted lines
    # Lines that `heading` quotes, counted from 1: of headings, of items above, of columns' names.
    above: tuple[int, ...] = ()
    days: tuple[str, str] | None = None  # the first and the last ISO day that it states; None: its document's


@dataclass(frozen=True, slots=True)
class PieceChanges:
    added_pieces: int
    kept_pieces: int
    removed_pieces: int


@dataclass(frozen=True, slots=True)
class WaitingPiece:
    id: int
    hash: bytes
    text: str
    added_at: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions for the documents that a search may return. None sets no condition."""

    projects: frozenset[str] | None = None
    sources: frozenset[str] | None = None
    path: str | None = None  # a file, a folder, or a glob
    since: str | None = None  # ISO days, both included
    until: str | None = None
    zone_s: int = 0  # seconds by which these days begin before UTC's
    tags: frozenset[str] = (
        frozenset()
    )  # all of them, of notes and of other memory files, compared without regard to case
    # Fields of notes, compared in the same way; other documents don't match.
    types: frozenset[str] | None = None  # any of them
    category: str | None = None
    entity: str | None = None
    # Leave out notes of tasks, except those of this task in these projects (None: in any).
    without_tasks: bool = False
    task: str | None = None
    task_projects: frozenset[str] | None = None
    # Documents that may have chunks of these classes: with `untrusted` also documents with some
    # untrusted lines.
    classes: frozenset[str] | None = None


class PiecePlace(NamedTuple):
    """The position of a chunk in its document, and the facts about the document that ranking needs.
    A search creates hundreds of them.
    """

    id: int
    document: int
    position: int
    day: str
    project: str
    source: str
    pieces: int | None = None  # chunks of its document; None: not counted
    last_day: str | None = None  # of the days it is of, `day` is the first; None: the only one
    states_day: bool = False  # it or its document says so; else the day is that of a change


class HitRow(NamedTuple):
    """A chunk in a search result, with facts about its document. A search creates dozens of them."""

    id: int
    document: int
    position: int
    start_line: int
    end_line: int
    heading: str
    tokens: int
    text: str
    project: str
    path: str
    source: str
    author: str
    updated_at: float
    words: str = ""
    importance: float | None = None  # 0 to 1; None: the document states none
    uses: int = 0  # how often the document was read or shown as a result
    class_: str = UNTRUSTED


@dataclass(frozen=True, slots=True)
class Supersession:
    """A note that says it supersedes another note. `older` and `newer` are the ids of their
    documents.
    """

    older: int
    newer: int
    id: str  # id of the newer note; so are all following fields
    title: str
    path: str
    project: str


@dataclass(frozen=True, slots=True)
class SourceCount:
    """The numbers of files and chunks from one source."""

    files: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Breach:
    """A failed integrity check. `what` is one of the constants of `store.upkeep.integrity` and
    never contains stored text.
    """

    what: str
    rows: int
    found_at: float = 0.0  # seconds since 1970
    healed_at: float | None = None
