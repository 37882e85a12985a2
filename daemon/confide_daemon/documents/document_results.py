"""The results of reading and changing documents.

Revisions are numbered from 1. Hashes are BLAKE2b-256 in hex (`documents.text_hash`). Times are in
ISO 8601, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from confide_memory.classes import UNTRUSTED


@dataclass(frozen=True, slots=True)
class PutResult:
    """The result of a write. `text` is the document's current text. If it was `merged` with other
    changes, it differs from the text that was sent.
    """

    revision: int
    hash: str
    text: str
    changed: bool  # False: the text was already so, no new revision
    merged: bool
    clash: bool  # both sides changed the same lines; the replaced ones are in the history
    queued_pieces: int = 0  # chunks of the space without vectors
    previous_hash: str | None = None  # of the document before; None: it did not exist
    lines_written: int = 0
    # True for a retry under the same id: nothing was written; the hash is "" if the document was
    # deleted since
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class RemoveResult:
    """The result of a removal. If the document has changed since revision `base`, it is not
    removed, and `text` is its current content.
    """

    revision: int
    removed: bool
    text: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteResult:
    revision: int
    deleted_at: float  # seconds since 1970
    previous_hash: str | None  # of the text that was deleted
    is_deleted: bool  # False for a retry, if the document was restored since
    repeated: bool = False  # a retry under the same id: nothing was changed


@dataclass(frozen=True, slots=True)
class DocumentText:
    project: str
    path: str
    text: str
    revision: int
    hash: str
    author: str
    updated_at: str
    document: int = 0  # its number in the space
    class_: str = UNTRUSTED


@dataclass(frozen=True, slots=True)
class SyncComparison:
    """The actions that a device must take so that its files agree with the space (see the request
    `compare` in PROTOCOL.md).
    """

    send: list[str] = field(default_factory=list)
    adopt: list[tuple[str, int]] = field(default_factory=list)
    pull: list[tuple[str, int, str]] = field(default_factory=list)
    drop: list[tuple[str, int]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Paths that a user asked to forget: the device keeps its files, and the space does not accept
    them.
    """
    unheld: set[str] = field(default_factory=set)
    """Subset of `send`: the device names no revision that exists here. Either the document does not
    exist, or the named revision was lost or does not exist yet.
    """
