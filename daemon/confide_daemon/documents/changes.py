"""A document's new revision, as the devices of its space are notified of it."""

from __future__ import annotations

from dataclasses import dataclass

from confide_daemon.documents.document_results import PutResult


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """A new revision of a document."""

    project: str
    path: str
    revision: int
    hash: str
    before: str | None  # hash of the previous revision, or None
    text: str | None  # None: the document was removed

    @classmethod
    def of(cls, project: str, path: str, result: PutResult, before: str | None) -> DocumentChange:
        """Describe the result of a write. `before`: the hash of the previous revision, or None."""
        return cls(project, path, result.revision, result.hash, before, result.text)
