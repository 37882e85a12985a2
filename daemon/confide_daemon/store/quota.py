"""Size limits of one space, so that a device which writes without end fills its own space and not
the disk of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits above which a space refuses new texts and records; 0 means no limit. Deletions and
    derived data are always accepted.
    """

    size_bytes: int = 0  # size of its database: all revisions of texts, and the index
    documents: int = 0  # number of documents that are not deleted


UNLIMITED: Final = Quota()
