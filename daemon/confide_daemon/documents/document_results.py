"""What reading and changing documents comes to.

Revisions count from 1; hashes are BLAKE2b-256 in hex (`documents.text_hash`); times are ISO 8601 in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from confide_memory.classes import UNTRUSTED


@dataclass(frozen=True, slots=True)
class PutResult:
    """What a write came to. `text` is the document as it is now: other than what was sent when it was `merged`."""

    revision: int
    hash: str
    text: str
    changed: bool  # False: it was so already, no new revision
    merged: bool
    clash: bool  # both sides had changed the same lines; what lost is in the history
    queued: int = 0  # pieces of the space that wait for their vectors
    previous_hash: str | None = None  # of the document before; None: there was none
    lines_written: int = 0
    # it was done before, under the same id; the document is as it is now, its hash "" where it is gone
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class RemoveResult:
    """What a removal came to; when the document was newer than `base` it stays, and `text` is its content."""

    revision: int
    removed: bool
    text: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteResult:
    revision: int
    deleted_at: float  # seconds since 1970
    previous_hash: str | None  # of the text that was deleted
    is_deleted: bool  # False where it was done before, and the document has come back since
    repeated: bool = False  # it was done before, under the same id


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
    """What a machine has to do to agree with the space; see the `compare` request in PROTOCOL.md."""

    send: list[str] = field(default_factory=list)
    adopt: list[tuple[str, int]] = field(default_factory=list)
    pull: list[tuple[str, int, str]] = field(default_factory=list)
    drop: list[tuple[str, int]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """A person had these names forgotten: the machine keeps its files, and nothing of them is taken."""
    unheld: set[str] = field(default_factory=set)
    """Of `send`: the machine has no revision that is here: it names one that was lost or is not made yet, or there is no such document."""
