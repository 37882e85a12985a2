"""A memory budget that all open databases share for their page caches.

Each connection caches the pages that it has read. SQLite has a limit per connection, and one for
all of its memory in the process, above which a connection reuses its own cache pages before it
allocates more. The limit per connection is a share that shrinks as connections open; the limit for
the process bounds idle connections that still hold more than their share.
"""

from __future__ import annotations

import threading
from typing import Final

import apsw

BUDGET_MIB: Final = 512
MOST_KIB: Final = 32 * 1024
"""Largest cache of one connection; 10,000 chunks with vectors are about 25 MiB."""
LEAST_KIB: Final = 256
"""Smallest cache of one connection: the inner pages of a small space's tables."""


class PageBudget:
    """The memory budget for the page caches of all spaces of a daemon. Any thread may use it."""

    def __init__(self, budget_mib: int = BUDGET_MIB) -> None:
        self._budget_kib = budget_mib * 1024
        self._connections = 0
        self._lock = threading.Lock()
        self.share_kib = MOST_KIB
        """Cache limit of one connection now; a power of two, so that it rarely changes."""

    @property
    def share(self) -> float:
        """The cache size per connection as a fraction of the largest size, 0 to 1."""
        return self.share_kib / MOST_KIB

    def enforce(self) -> None:
        """Limit all memory that SQLite allocates in this process to the budget."""
        apsw.soft_heap_limit(self._budget_kib * 1024)

    def count_opened(self) -> None:
        self._count(1)

    def count_closed(self) -> None:
        self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self._connections += more
            share = self._budget_kib // max(1, self._connections)
            self.share_kib = min(MOST_KIB, max(LEAST_KIB, 1 << share.bit_length() - 1 if share else 0))
