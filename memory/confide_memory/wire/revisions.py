"""Requests about projects and their history (PROTOCOL.md 9.6, 9.9): lists, revisions, days, links,
trust classes.
"""

from typing import Annotated, Final, NotRequired, TypedDict

from confide_crypto.errors import RequestError
from confide_memory.classes import CLASSES, UNTRUSTED
from confide_memory.documents import MAX_PATH_BYTES
from confide_memory.forms import (
    MAX_ACTIONS,
    MAX_DAYS,
    MAX_LISTED,
    MAX_REVISION,
    MAX_REVISIONS,
    MAX_TRIGGERS,
    UNREAD,
    Carried,
    ContentHash,
    Moment,
    Project,
    Revision,
    Shown,
    Size,
    Told,
    choice,
    count,
    flag,
    items,
    number,
    optional,
    place,
    text,
)
from confide_memory.wire.files import OfDocument, OfProject
from confide_memory.wire.operation import Operation

USUAL_REVISIONS: Final = 20
USUAL_LISTED: Final = 100
MAX_DOUBTED: Final = 10_000
"""Untrusted parts of one document in an answer."""
MAX_FOLDERS: Final = 200
"""Folders in one list of documents."""
SORTS: Final = ("updated", "path", "size")
"""Orders of a list of documents: the last changed first, by name, the largest first."""
MAX_PIECES: Final = 64
"""Pieces in each list of a briefing."""
_MAX_AGES: Final = 16
_MOST: Final = 2**32


def _name(item: object) -> str:
    if isinstance(item, str) and item.strip() and len(item.encode(errors="surrogatepass")) <= MAX_PATH_BYTES:
        return item
    raise RequestError("invalid", f"a name is a file, a folder or a glob, of at most {MAX_PATH_BYTES} bytes")


def _class(body: Carried, name: str) -> str:
    """Read a class; `untrusted` if it is unknown or missing."""
    value = body.get(name)
    return value if isinstance(value, str) and value in CLASSES else UNTRUSTED


_Listed = Annotated[int, optional(number(MAX_LISTED), USUAL_LISTED)]
_Below = Annotated[str, optional(text, "")]
_Line = Annotated[int, number(2**53)]
Classed = TypedDict("Classed", {"class": Annotated[str, _class]})
"""An item with a trust class, which depends on its author."""


ProjectRow = TypedDict("ProjectRow", {"name": Project, "files": Size, "updated": Moment, "linked": bool})
Projects = TypedDict("Projects", {"projects": Annotated[list[ProjectRow], MAX_LISTED], "complete": bool})


class LinkRequest(OfProject):
    other: Project


Linked = TypedDict("Linked", {"linked": Annotated[list[Shown], MAX_LISTED]})


class HistoryRequest(OfDocument):
    limit: NotRequired[Annotated[int, optional(number(MAX_REVISIONS), USUAL_REVISIONS)]]


class RevisionItem(Classed):
    revision: Revision
    author: Shown
    time: Moment
    bytes: Size
    deleted: bool
    clash: bool


History = TypedDict("History", {"revisions": Annotated[list[RevisionItem], MAX_REVISIONS]})


class DocumentsRequest(OfProject):
    """A request for a page of a list of documents.

    Attributes:
        path: a document, or the folder that contains the documents; "" for all.
        offset: how many documents of the list precede the page.
        around: the path of a document. The page begins with the document before it; `offset` is
            ignored.
        folders: True to list the folders directly below `path` too.
        at: a time: list the documents as they were then, in the order of paths. `sort`, `around`
            and `folders` are ignored.
    """

    path: NotRequired[_Below]
    limit: NotRequired[_Listed]
    offset: NotRequired[Annotated[int, place]]
    sort: NotRequired[Annotated[str, optional(choice(SORTS), SORTS[0])]]
    around: NotRequired[_Below]
    folders: NotRequired[Annotated[bool, flag()]]
    at: NotRequired[Moment | None]


class DocumentItem(Classed):
    """A document in a list.

    Attributes:
        current: in a list of an earlier time, True if the document still has this text now.
    """

    path: Shown
    revision: Revision
    author: Shown
    time: Moment
    bytes: Size
    lines: Size | None
    title: Told
    id: Shown | None
    clash: bool
    words: NotRequired[Told]
    current: NotRequired[bool]


FolderRow = TypedDict("FolderRow", {"path": Shown, "documents": Size})


class DocumentsPage(TypedDict):
    """A page of a list of documents. A daemon older than 0.3.0 leaves out the optional fields, and
    always sends the whole list as one page.

    Attributes:
        total: the number of documents in the whole list.
        offset: the number of documents before this page.
        at: the time of the list, if one was asked for. None if the daemon is older than 0.4.0; the
            list then shows the current state.
        lost: how many documents below `path` were deleted after that time and have no text here any
            more. They may have existed then.
        now: for a list of an earlier time, the daemon's current time to the microsecond.
    """

    documents: Annotated[list[DocumentItem], MAX_LISTED]
    total: Size
    offset: NotRequired[Annotated[int | None, optional(place)]]
    folders: NotRequired[Annotated[list[FolderRow], MAX_FOLDERS] | None]
    at: NotRequired[Moment | None]
    lost: NotRequired[Annotated[int, optional(count(_MOST), 0)]]
    now: NotRequired[Moment | None]


class ChangesRequest(OfProject):
    path: NotRequired[_Below]
    since: NotRequired[Moment | None]
    until: NotRequired[Moment | None]
    after: NotRequired[Size | None]
    limit: NotRequired[_Listed]


class ChangeItem(TypedDict):
    path: Shown
    revision: Revision
    author: Shown
    time: Moment
    bytes: Size
    deleted: bool
    clash: bool
    words: Told
    change: Annotated[int | None, optional(count(_MOST))]
    id: Shown | None


Changes = TypedDict("Changes", {"changes": Annotated[list[ChangeItem], MAX_LISTED]})


class DeletedRow(TypedDict):
    path: Shown
    revision: Revision
    bytes: Size
    author: Shown
    time: Moment
    restorableUntil: Moment


Deleted = TypedDict("Deleted", {"documents": Annotated[list[DeletedRow], MAX_LISTED]})


class RestoreRequest(OfDocument):
    revision: NotRequired[Annotated[int | None, optional(number(2**53))]]


class RestoreAnswer(TypedDict):
    revision: Revision
    changed: bool
    hash: NotRequired[Annotated[str, UNREAD]]
    indexed: NotRequired[Annotated[bool, UNREAD]]
    queued: NotRequired[Annotated[int, UNREAD]]


class ForgetRequest(OfProject):
    paths: Annotated[list[str], items(MAX_LISTED, _name)]
    undo: NotRequired[bool]
    dryRun: NotRequired[bool]


class ForgetAnswer(TypedDict):
    documents: Annotated[list[Shown], MAX_LISTED]
    total: Size
    complete: bool


class DaysRequest(TypedDict):
    since: Moment
    zone: NotRequired[Annotated[int, optional(count(840, least=-840), 0)]]


DayRow = TypedDict("DayRow", {"day": Shown, "project": Shown, "kind": Shown, "count": Size})
AgeRow = TypedDict("AgeRow", {"days": Size | None, "recalls": Size})


class DaysItem(TypedDict):
    days: Annotated[list[DayRow], MAX_DAYS]
    ages: Annotated[list[AgeRow], _MAX_AGES]


class RelationsRequest(OfProject):
    """A request for the relations between documents.

    Attributes:
        path: the document whose links in both directions are wanted; "" for the whole project.
        links: True to include `[[wiki links]]`, which lead to files as well as to notes.
    """

    limit: NotRequired[_Listed]
    path: NotRequired[_Below]
    links: NotRequired[Annotated[bool, flag()]]


class RelationItem(TypedDict):
    """A relation or a link from one document to another.

    Attributes:
        id, otherId: the ids of both notes; "" for a file that is not a note.
        path, otherPath: the paths of both.
        target: the target of a wiki link, normalized for comparison by `confide_memory.mentions`;
            "" for a relation that a note states.
    """

    id: Shown
    title: Shown
    relation: Shown
    otherId: Shown
    otherTitle: Shown
    otherProject: Shown
    path: NotRequired[Told]
    otherPath: NotRequired[Told]
    target: NotRequired[Told]


Relations = TypedDict("Relations", {"relations": Annotated[list[RelationItem], MAX_LISTED]})


class BriefingPiece(Classed):
    path: Shown
    project: Shown
    startLine: _Line
    endLine: _Line
    snippet: str
    heading: str
    author: Shown
    updatedAt: Moment


class BriefingAnswer(TypedDict):
    head: Annotated[list[BriefingPiece], MAX_PIECES]
    newest: Annotated[list[BriefingPiece], MAX_PIECES]


class ActionsRequest(OfProject):
    """A request for the entries of a project's memory that may concern an agent's actions.

    Attributes:
        known: the `version` of an earlier answer. If nothing has changed since, the answer has no
            entries.
    """

    known: NotRequired[_Below]


class TriggerItem(TypedDict):
    """A trigger of an entry: a `path`, a `command` or an `error` that makes the entry relevant
    (`confide_memory.actions`).
    """

    kind: Shown
    key: Shown


class ActionEntry(Classed):
    """An entry of a memory that concerns actions: a piece of text with its triggers."""

    project: Shown
    path: Shown
    startLine: _Line
    id: Shown | None
    snippet: str
    author: Shown
    updatedAt: Moment
    triggers: Annotated[list[TriggerItem], MAX_TRIGGERS]


class ActionsAnswer(TypedDict):
    version: Shown
    entries: Annotated[list[ActionEntry], MAX_ACTIONS]


class TrustRequest(OfDocument):
    hash: NotRequired[ContentHash | None]


Doubt = TypedDict("Doubt", {"first": Size, "last": Size, "why": Shown})


class Trust(Classed):
    hash: ContentHash
    doubted: Annotated[list[Doubt], MAX_DOUBTED]
    trusted: bool


class LowerRequest(OfDocument):
    revision: Annotated[int, number(MAX_REVISION)]


Lowered = TypedDict("Lowered", {"lowered": bool, "class": Annotated[str | None, _class]})

PROJECTS: Final = Operation("projects", OfProject, Projects)
LINKS: Final = Operation("links", OfProject, Linked)
LINK: Final = Operation("link", LinkRequest, Linked)
UNLINK: Final = Operation("unlink", LinkRequest, Linked)
HISTORY: Final = Operation("history", HistoryRequest, History)
DOCUMENTS: Final = Operation("documents", DocumentsRequest, DocumentsPage)
CHANGES: Final = Operation("changes", ChangesRequest, Changes)
DELETED: Final = Operation("deleted", OfProject, Deleted)
RESTORE: Final = Operation("restore", RestoreRequest, RestoreAnswer)
FORGET: Final = Operation("forget", ForgetRequest, ForgetAnswer)
DAYS: Final = Operation("days", DaysRequest, DaysItem)
RELATIONS: Final = Operation("relations", RelationsRequest, Relations)
BRIEFING: Final = Operation("briefing", OfProject, BriefingAnswer)
ACTIONS: Final = Operation("actions", ActionsRequest, ActionsAnswer)
TRUST: Final = Operation("trust", TrustRequest, Trust)
LOWER: Final = Operation("lower", LowerRequest, Lowered)
