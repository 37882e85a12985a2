"""How much one space may hold, so that a machine that writes without end fills its own space and not everybody's disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Quota:
    """What a space may hold before new texts and records are refused; 0 is no limit. Deleting, and what is derived, is not asked."""

    size_bytes: int = 0  # of its database: texts with all their revisions, and the index
    documents: int = 0  # that are not deleted


UNLIMITED: Final = Quota()
