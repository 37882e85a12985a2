"""The threads of a space: one that writes and a few that read, each with its own connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from confide_daemon.errors import StorageError
from confide_daemon.store import Store

T = TypeVar("T")

# More than the two cores of a small server gains nothing, and every connection has a page cache.
READERS = 2


class StoreThreads:
    """Runs functions with a store. `open_reader` is called once in each reading thread."""

    def __init__(self, writer: Store, open_reader: Callable[[], Store]) -> None:
        self._writer = writer
        self._open_reader = open_reader
        self._stores: list[Store] = []
        self._own = threading.local()
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="confide-write")
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="confide-read")
        self._closed = False

    async def write(self, work: Callable[[Store], T]) -> T:
        """Runs in the writer's thread, after all that was asked before."""
        return await self._submit(self._writing, lambda: work(self._writer))

    async def read(self, work: Callable[[Store], T]) -> T:
        """Runs in a reader's thread; sees the last committed state."""
        return await self._submit(self._reading, lambda: work(self._reader()))

    async def close(self) -> None:
        """Ends the threads after what was asked before, then closes the connections, the writer last: it folds the log into the file."""
        self._closed = True
        await asyncio.to_thread(self._close)

    async def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._closed:
            raise StorageError("the space is closed")
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def _reader(self) -> Store:
        store: Store | None = getattr(self._own, "store", None)
        if store is None:
            store = self._own.store = self._open_reader()
            self._stores.append(store)
        return store

    def _close(self) -> None:
        self._reading.shutdown(wait=True)
        self._writing.shutdown(wait=True)
        for store in self._stores:
            store.close()
        self._writer.close()
