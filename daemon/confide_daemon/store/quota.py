"""How much one space may hold, so that a machine that writes without end fills its own space and not everybody's disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confide_daemon.errors import SpaceFullError


@dataclass(frozen=True, slots=True)
class Quota:
    """What a space may hold before new texts and records are refused; 0 is no limit. Deleting, and what is derived, is not asked."""

    size_bytes: int = 0  # of its database: texts with all their revisions, and the index
    documents: int = 0  # that are not deleted

    def require_room(self, size_bytes: int) -> None:
        """Refuse to grow. Raises SpaceFullError."""
        if self.size_bytes and size_bytes >= self.size_bytes:
            raise SpaceFullError(f"its database has {self.size_bytes >> 20:,} MiB", "space_mib")

    def require_place(self, documents: int) -> None:
        """Refuse another document. Raises SpaceFullError."""
        if self.documents and documents >= self.documents:
            raise SpaceFullError(f"it has {self.documents:,} documents", "documents")


UNLIMITED: Final = Quota()
