"""One budget of memory for the pages of all databases that are open.

Each connection keeps pages it has read. SQLite knows a limit for each of them, and one for all of its memory in a process, beyond which a
connection takes pages of its own anew before it asks for more. The first is a share that grows smaller the more connections there are; the
second holds whatever the connections that nobody uses keep of what they were allowed before.
"""

from __future__ import annotations

import threading
from typing import Final

import apsw

BUDGET_MIB: Final = 512
MOST_KIB: Final = 32 * 1024
"""For one connection; 10,000 pieces with vectors are about 25 MiB."""
LEAST_KIB: Final = 256
"""The inner pages of a small space's tables."""


class PageBudget:
    """Shared by all spaces of a daemon; from any thread."""

    def __init__(self, budget_mib: int = BUDGET_MIB) -> None:
        self._budget_kib = budget_mib * 1024
        self._connections = 0
        self._lock = threading.Lock()
        self.share_kib = MOST_KIB
        """What one connection may keep now: a power of two, so that it does not change with each of them."""

    @property
    def share(self) -> float:
        """`share_kib` as a part of what one connection keeps that is alone, at most 1."""
        return self.share_kib / MOST_KIB

    def enforce(self) -> None:
        """Makes it the limit for all memory that SQLite takes in this process."""
        apsw.soft_heap_limit(self._budget_kib * 1024)

    def opened(self) -> None:
        self._count(1)

    def closed(self) -> None:
        self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self._connections += more
            share = self._budget_kib // max(1, self._connections)
            self.share_kib = min(MOST_KIB, max(LEAST_KIB, 1 << share.bit_length() - 1 if share else 0))
