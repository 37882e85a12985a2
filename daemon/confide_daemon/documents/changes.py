"""The notification about a document's new revision, which the devices of its space receive."""

from __future__ import annotations

from dataclasses import dataclass

from confide_daemon.documents.document_results import PutResult


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """A new revision of a document, as devices are notified of it."""

    project: str
    path: str
    revision: int
    hash: str
    before: str | None  # hash of the previous revision, or None
    text: str | None  # None: the document was removed

    @classmethod
    def of(cls, project: str, path: str, result: PutResult, before: str | None) -> DocumentChange:
        """Build the notification from the result of a write. `before` is the hash of the previous
        revision, or None if there was none.
        """
        return cls(project, path, result.revision, result.hash, before, result.text)
