"""How often documents are read, or shown among what a search found: counted in memory, written down every few seconds.

Nothing waits for it, and a crash forgets some seconds of it: that is why it is not written with the read itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable

from confide_crypto.errors import ConfideError
from confide_daemon.store.store import Store
from confide_daemon.store.threads import StoreThreads

log = logging.getLogger(__name__)
# The first use waits so long for others to be written with it: each write makes searches list again which documents they may see.
WRITTEN_AFTER_S = 5.0
# Documents whose uses wait; more than a caller can read in that time. What is beyond is not counted.
MOST_WAITING = 10_000


class Usage:
    """For one space, until `close`."""

    def __init__(self, threads: StoreThreads, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970."""
        self._threads = threads
        self._clock = clock
        self._waiting: Counter[int] = Counter()
        self._writing: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def count(self, documents: Iterable[int]) -> None:
        """One use of each of the documents; called in the space's event loop."""
        if self._closing:
            return
        for document in set(documents):
            if document in self._waiting or len(self._waiting) < MOST_WAITING:
                self._waiting[document] += 1
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._write_later(), name="confide-usage")

    def waiting(self, document: int) -> int:
        """How many uses of the document are not in the database yet."""
        return self._waiting[document] + self._writing[document]

    async def close(self) -> None:
        """Writes down what waits."""
        self._closing = True
        if self._task is not None:
            if not self._writing:
                self._task.cancel()
            await asyncio.wait([self._task])
        await self._write()

    async def _write_later(self) -> None:
        await asyncio.sleep(WRITTEN_AFTER_S)
        await self._write()
        self._task = None
        self.count(())  # what came meanwhile

    async def _write(self) -> None:
        if not self._waiting:
            return
        self._writing, self._waiting = self._waiting, Counter()
        uses, now = dict(self._writing), self._clock()

        def work(store: Store) -> None:
            with store.writing_derived():
                store.documents.count_uses(uses, now=now)

        try:
            await self._threads.maintain(work)
        except ConfideError as error:
            log.warning("uses could not be counted: %s", type(error).__name__)
        finally:
            self._writing = Counter()
