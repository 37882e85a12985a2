"""The threads of a space: one that writes, a few that read, and one for long reads. Each has its
own connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from confide_crypto.errors import ConfideError
from confide_daemon import figures
from confide_daemon.errors import StorageError
from confide_daemon.store.page_budget import PageBudget
from confide_daemon.store.space_store import Store
from confide_daemon.store.upkeep import replacement

T = TypeVar("T")

# More than the two cores of a small server gains nothing, and every connection has a page cache.
READERS = 2
# A read takes milliseconds; a longer one delays a replacement of the file by at most this time.
ALONE_S = 30.0
# Pages that are copied in one step with the swap at the end of a key change: some 20 ms of the
# writer.
LAST_PAGES: Final = 512


class StoreThreads:
    """Runs functions on the threads of a space; each function receives its thread's connection.
    Each reading thread calls `open_reader` once.
    """

    def __init__(self, writer: Store, open_reader: Callable[[], Store], pages: PageBudget | None = None) -> None:
        """Start the threads.

        `pages`: the memory budget shared with other spaces' connections; None: a budget of its own.
        """
        self._pages = pages or PageBudget()
        self._pages.count_opened()
        self._writer = writer
        self._open_reader = open_reader
        self._stores: list[Store] = []
        self._own = threading.local()
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="confide-write")
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="confide-read")
        self._examining = ThreadPoolExecutor(1, thread_name_prefix="confide-examine")
        self._examiner: Store | None = None
        self.used_at = time.monotonic()  # not by the maintenance
        self._closed = False

    @property
    def share(self) -> float:
        """The fraction of its full memory that a space may use now; 1 if it is the only one open."""
        return self._pages.share

    @property
    def write_error(self) -> StorageError | None:
        """The reason why writes fail now: the last write failed, or the path leads to another file.
        None if writes are possible.
        """
        if self._closed or self._writer.write_error is not None:
            return self._writer.write_error
        try:
            self._writer.require_file()
        except StorageError as error:
            return error
        return None

    @property
    def has_file(self) -> bool:
        """True if a file exists at the path of the opened database, even if it is another file."""
        return self._writer.path.exists()

    async def write(self, work: Callable[[Store], T]) -> T:
        """Run `work` on the writer's thread after all earlier requests; return its result."""
        self.used_at = time.monotonic()
        return await self.maintain(work)

    async def maintain(self, work: Callable[[Store], T]) -> T:
        """Run `work` on the writer's thread like `write`, but without counting as use of the space."""
        asked_at = time.perf_counter()

        def run() -> T:
            figures.WRITE_WAIT.observe(time.perf_counter() - asked_at)
            return work(self._limit_pages(self._writer))

        return await self._submit(self._writing, run)

    async def answer(self) -> None:
        """Return when the writer's thread has finished all earlier requests, or at once if the
        threads are closed.
        """
        if not self._closed:
            await self._submit(self._writing, lambda: None)

    async def examine(self, work: Callable[[Store], T]) -> T:
        """Run `work`, which may take long, with a reading connection on a separate thread."""

        def run() -> T:
            self._examiner = self._reader()
            return work(self._examiner)

        return await self._submit(self._examining, run)

    async def rest(self) -> None:
        """Free memory while the space is idle: close the connection for long reads until its next
        use, and empty the writer's page cache.
        """

        def let_go() -> None:
            self._examiner = None
            self._close_own()

        await self._submit(self._examining, let_go)
        await self._submit(self._writing, lambda: self._writer.shrink())

    def interrupt(self) -> None:
        """Abort the long read that `examine` is running; it then raises StorageError."""
        if self._examiner is not None:
            self._examiner.interrupt()

    def alone(self, work: Callable[[], T]) -> T:
        """Close all other connections, make readers wait, and run `work`. The calling thread must
        be the writer's.

        Raises StorageError if a read does not end within 30 seconds.
        """
        pools = [self._reading] * READERS + [self._examining]
        all_closed = threading.Barrier(len(pools) + 1)
        done = threading.Event()

        def give_way() -> None:
            self._close_own()
            with contextlib.suppress(threading.BrokenBarrierError):
                all_closed.wait(ALONE_S)
                done.wait()

        for pool in pools:
            pool.submit(give_way)
        try:
            all_closed.wait(ALONE_S)
            return work()
        except threading.BrokenBarrierError:
            raise StorageError(
                "cannot replace the database: a reading does not end", hint="it is tried again"
            ) from None
        finally:
            done.set()

    async def change_key(self, key: bytes, follow: Callable[[int, int], None]) -> None:
        """Re-encrypt the database with a new key (32 bytes): copy it in small steps, between which
        writes continue, then switch to the copy.

        Readers wait only for the switch: a few milliseconds. If this is cancelled or fails, the old
        key stays in force. `follow` receives the number of copied pages and the total. Raises
        StorageError if the disk is full or fails, or another process reads the file.
        """

        def is_nearly_done(store: Store) -> bool:
            left, total = store.replacement.rekeying.step(leave=LAST_PAGES)
            follow(total - left, total)
            return left <= LAST_PAGES

        def finish(store: Store) -> None:
            # In one step: a write between the copy and the swap would be lost.
            store.replacement.rekeying.finish()
            if store.outbox is not None:
                # The log gets the new key first, so that the next opener of the space has a key
                # that opens both.
                store.outbox.bring(replacement.copy_of(store.path), key)
            self.alone(store.replacement.swap_rekeyed)

        try:
            sync = await self.maintain(lambda store: store.replacement.begin_rekeying(key))
            while not await self.maintain(is_nearly_done):
                pass
            # On another thread, so that writes don't wait for the disk.
            await asyncio.to_thread(sync)
            await self.maintain(finish)
        except BaseException:
            with contextlib.suppress(ConfideError):
                await self.maintain(lambda store: store.replacement.abandon_rekeying())
            raise

    async def read(self, work: Callable[[Store], T]) -> T:
        """Run `work` on a reading thread and return its result. It sees the last committed state."""
        self.used_at = time.monotonic()
        return await self._submit(self._reading, lambda: work(self._reader()))

    async def close(self) -> None:
        """Run all earlier requests, end the threads and close the connections. The writer's
        connection is last and copies the write-ahead log into the file.
        """
        self._closed = True
        await asyncio.to_thread(self._close)

    async def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._closed:
            raise StorageError("the space is closed")
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def _reader(self) -> Store:
        store: Store | None = getattr(self._own, "store", None)
        if store is None:
            self._writer.require_reader_file()
            store = self._own.store = self._open_reader()
            self._stores.append(store)
            self._pages.count_opened()
        return self._limit_pages(store)

    def _close_own(self) -> None:
        """Close this thread's connection, if it has one; its next read opens another."""
        store: Store | None = getattr(self._own, "store", None)
        if store is not None:
            self._own.store = None
            self._stores.remove(store)
            self._pages.count_closed()
            store.close()

    def _limit_pages(self, store: Store) -> Store:
        store.keep_pages(self._pages.share_kib)
        return store

    def _close(self) -> None:
        self._examining.shutdown(wait=True)
        self._reading.shutdown(wait=True)
        self._writing.shutdown(wait=True)
        for _ in (self._writer, *self._stores):
            self._pages.count_closed()
        with contextlib.ExitStack() as stack:  # all of them, even if closing one fails
            stack.callback(self._writer.close)
            for store in self._stores:
                stack.callback(store.close)
