"""A document's new revision, as the machines of its space are told of it."""

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
    before: str | None  # hash of the revision before it, None if there was none
    text: str | None  # None says that the document was removed

    @classmethod
    def of(cls, project: str, path: str, result: PutResult, before: str | None) -> DocumentChange:
        """Describe what a write has made. `before`: the hash of the revision before it, None if there was none."""
        return cls(project, path, result.revision, result.hash, before, result.text)
