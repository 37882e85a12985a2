"""Requests that keep files and documents in sync (PROTOCOL.md 9.3 to 9.5): compare, send, fetch,
and the requests that a daemon sends to a device.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, NotRequired, TypedDict

from confide_crypto.errors import RequestError, printable
from confide_memory.classes import CLASSES, OWNER
from confide_memory.documents import BUCKETS, MAX_SENT, MAX_TEXT_BYTES, text_hash
from confide_memory.forms import (
    HASH_CHARS,
    MAX_FILES,
    MAX_REVISION,
    UNREAD,
    Carried,
    ContentHash,
    Kind,
    Mark,
    Project,
    Revision,
    Size,
    buckets,
    choice,
    content_hash,
    each,
    items,
    list_of,
    optional,
    records,
    revision,
    text,
)
from confide_memory.wire.operation import OF_DAEMONS, Nothing, Operation

MAX_TROUBLES: Final = 16
MAX_TOLD_CHARS: Final = 256
"""Characters of a name or a reason that a device reports; longer ones are cut."""
MAX_OTHERS: Final = 1024
"""Runs of lines of other authors in one `put`; with more, the whole file counts as untrusted."""
_MAX_NAMED: Final = 2 * MAX_FILES
"""Files in one list of a comparison."""


def _digests(body: Carried, name: str) -> list[str]:
    found: list[str] = items(MAX_FILES)(body, name)
    if len(found) != BUCKETS or not all(isinstance(item, str) for item in found):
        raise RequestError("invalid", f"'{name}' must be {BUCKETS} strings")
    return found


def _entry(item: Any) -> tuple[str, str, int]:
    match item:
        case [str(path), str(digest), int(base)] if len(digest) == HASH_CHARS and 0 <= base <= MAX_REVISION:
            return path, digest, base
    raise RequestError("invalid", "an entry is not [path, hash, base]")


def _missing_file(item: Any) -> tuple[str, int]:
    match item:
        case [str(path), int(base)] if 0 <= base <= MAX_REVISION:
            return path, base
    raise RequestError("invalid", "a missing file is not [path, base]")


def _text_hash(item: Any) -> str:
    if isinstance(item, str) and len(item) == HASH_CHARS:
        return item
    raise RequestError("invalid", "a text is not named by its hash")


def _revision_entry(item: Any) -> tuple[str, int]:
    match item:
        case [str(path), _]:
            return path, revision({"": item[1]}, "")
    raise RequestError("invalid", "an entry is not [path, revision]")


def _pull_entry(item: Any) -> tuple[str, int, str]:
    match item:
        case [str(path), _, str(digest)]:
            return path, revision({"": item[1]}, ""), digest
    raise RequestError("invalid", "an entry is not [path, revision, hash]")


def _hash_of_text(body: Carried, name: str) -> str:
    # Otherwise a file with an unsent edit, whose hash is given here, would be overwritten with
    # another text as if both were equal.
    found = text_hash(text(body, "text"))
    if body.get(name) != found:
        raise RequestError("invalid", f"'{name}' is not that of the text")
    return found


def _lines(item: Any) -> tuple[int, int]:
    match item:
        case [int(first), int(last)] if 1 <= first <= last <= MAX_TEXT_BYTES:
            return first, last
    raise RequestError("invalid", "lines are not [first, last]")


def _if_not_applied(kind: Kind) -> Kind:
    """Return the form of a field that is read only if the device did not apply the change."""
    return lambda body, name: None if body.get("applied") is True else kind(body, name)


def _beginning(body: Carried, name: str) -> str | None:
    value = optional(text)(body, name)
    return None if value is None else value[:MAX_TOLD_CHARS]


def _trouble(body: Carried, name: str) -> str:
    return printable(text(body, name)[:MAX_TOLD_CHARS])


Sent = Annotated[Sequence[str], optional(items(MAX_SENT, _text_hash), ())]
Paths = Annotated[list[str], list_of(_MAX_NAMED, text)]
Placed = Annotated[list[tuple[str, int]], items(_MAX_NAMED, _revision_entry)]
Count = Annotated[int, optional(Size.__metadata__[0], 0)]
Beginning = Annotated[str | None, _beginning]
_FromAgent = TypedDict("_FromAgent", {"class": NotRequired[Annotated[str, optional(choice(CLASSES), OWNER)]]})


class OfProject(TypedDict):
    project: Project


class OfDocument(OfProject):
    path: str


class DigestRequest(OfProject):
    digests: Annotated[list[str], _digests]


Differing = TypedDict("Differing", {"differ": Annotated[frozenset[int], buckets]})


class CompareRequest(OfProject):
    buckets: NotRequired[Annotated[frozenset[int] | None, optional(buckets)]]
    entries: Annotated[list[tuple[str, str, int]], items(MAX_FILES, _entry)]
    gone: Annotated[list[tuple[str, int]], items(MAX_FILES, _missing_file)]
    goneHashes: NotRequired[Annotated[Sequence[str | None] | None, optional(items(MAX_FILES, each(content_hash)))]]


class CompareAnswer(TypedDict):
    send: Paths
    adopt: Placed
    pull: Annotated[list[tuple[str, int, str]], items(_MAX_NAMED, _pull_entry)]
    drop: Placed
    forgotten: NotRequired[Annotated[Sequence[str], optional(list_of(_MAX_NAMED, text), ())]]
    # those that the daemon would ask for, had the caller the right to write them
    denied: NotRequired[Annotated[Sequence[str], optional(list_of(_MAX_NAMED, text), ())]]


class Upon(TypedDict):
    """The state that an edit of a file is based on: a revision, the hash of that revision's text,
    and the hashes of the texts that the device has sent since without an answer.
    """

    base: Revision
    baseHash: NotRequired[ContentHash | None]
    sent: NotRequired[Sent]


class PutRequest(OfDocument, Upon, _FromAgent):
    """A request to store a file. `others` lists the lines that another person wrote, as pairs of
    first and last line, from 1.
    """

    text: str
    hash: str
    others: NotRequired[Annotated[Sequence[tuple[int, int]], optional(items(MAX_OTHERS, _lines), ())]]


class PutAnswer(TypedDict):
    """The result of sending a file. `text` is set if the daemon stored a text that differs from the
    one sent.
    """

    revision: Revision
    text: NotRequired[str | None]
    hash: NotRequired[Annotated[str, UNREAD]]
    merged: NotRequired[Annotated[bool, UNREAD]]
    clash: NotRequired[Annotated[bool, UNREAD]]
    indexed: NotRequired[Annotated[bool, UNREAD]]
    queued: NotRequired[Annotated[int, UNREAD]]
    removed: NotRequired[Annotated[bool, UNREAD]]


class RemoveRequest(OfDocument, Upon):
    """A request to delete a document because its file was deleted."""


class PullRequest(OfDocument):
    revision: NotRequired[Revision | None]
    hash: NotRequired[ContentHash | None]


Pulled = TypedDict("Pulled", {"revision": Revision, "text": str, "hash": Annotated[str, _hash_of_text]})
_Begins = TypedDict("_Begins", {"from": NotRequired[Annotated[int, UNREAD]]})


class TranscriptRequest(OfProject, _Begins):
    """A request to store messages of an agent's session, or to ask how far the session is stored.
    The daemon's `documents.transcripts` reads the other fields.
    """

    agent: NotRequired[Annotated[str, UNREAD]]
    session: NotRequired[Annotated[str, UNREAD]]
    forget: NotRequired[Annotated[bool, UNREAD]]
    version: NotRequired[Annotated[int, UNREAD]]
    to: NotRequired[Annotated[int, UNREAD]]
    head: NotRequired[Annotated[str, UNREAD]]
    mark: NotRequired[Annotated[str, UNREAD]]
    messages: NotRequired[Annotated[object, UNREAD]]


class TranscriptState(TypedDict):
    version: Revision
    offset: Size
    head: Mark
    mark: Mark
    forgotten: bool
    taken: bool


DIGEST: Final = Operation("digest", DigestRequest, Differing)
COMPARE: Final = Operation("compare", CompareRequest, CompareAnswer, is_large=True)
PUT: Final = Operation("put", PutRequest, PutAnswer, text_follows=True)
REMOVE: Final = Operation("remove", RemoveRequest, PutAnswer)
PULL: Final = Operation("pull", PullRequest, Pulled)
TRANSCRIPT: Final = Operation("transcript", TranscriptRequest, TranscriptState, is_free=True)


class ApplyRequest(OfDocument):
    revision: Revision
    hash: str
    baseHash: str | None
    text: str | None


class Applied(TypedDict):
    """A device's answer to a change that the daemon sent: that the device has applied it, or else
    the current content of its file.
    """

    applied: bool
    text: NotRequired[Annotated[str, _if_not_applied(text)]]
    hash: NotRequired[Annotated[str, _if_not_applied(_hash_of_text)]]
    base: NotRequired[Revision | None]
    baseHash: NotRequired[ContentHash | None]
    sent: NotRequired[Annotated[Sequence[str], optional(list_of(MAX_SENT, content_hash), ())]]


class Backlog(TypedDict):
    pendingUploads: NotRequired[Size | None]
    queuedOffline: NotRequired[Size | None]
    deadLetters: NotRequired[Size | None]
    troubles: NotRequired[Annotated[Sequence[str], optional(list_of(MAX_TROUBLES, _trouble), ())]]


Repository = TypedDict("Repository", {"repository": Beginning, "branch": Beginning, "remote": Beginning})


class Workplace(TypedDict):
    platform: NotRequired[Beginning]
    directory: NotRequired[Beginning]
    time: NotRequired[Beginning]
    claim: NotRequired[Beginning]
    git: NotRequired[Repository | None]


ScanRequest = TypedDict("ScanRequest", {"force": NotRequired[bool]})
Skipped = TypedDict("Skipped", {"path": Beginning, "reason": Beginning})


class Scanned(TypedDict):
    filesScanned: Count
    sent: Count
    pulled: Count
    removed: Count
    skipped: Annotated[Sequence[Skipped], optional(records(MAX_FILES, path=_beginning, reason=_beginning), ())]


class DevicesNews(TypedDict):
    number: NotRequired[Annotated[int, UNREAD]]
    waiting: NotRequired[Annotated[bool, UNREAD]]


APPLY: Final = Operation("apply", ApplyRequest, Applied, text_follows=True, among=OF_DAEMONS)
FLUSH: Final = Operation("flush", OfDocument, Nothing, among=OF_DAEMONS)
BACKLOG: Final = Operation("backlog", Nothing, Backlog, among=OF_DAEMONS)
WORKPLACE: Final = Operation("workplace", OfProject, Workplace, among=OF_DAEMONS)
SCAN: Final = Operation("scan", ScanRequest, Scanned, among=OF_DAEMONS)
NEWS: Final = Operation("roster", DevicesNews, Nothing, among=OF_DAEMONS)
