"""The threads of a space: one that writes, a few that read, and one that examines, each with its own connection."""

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
# A reading takes milliseconds; one that takes longer makes the others wait no longer than this.
ALONE_S = 30.0
# So few pages are copied in one go with the swap of a change of the key: some 20 ms of the writer.
LAST_PAGES: Final = 512


class StoreThreads:
    """Runs functions with a store. `open_reader` is called once in each reading thread."""

    def __init__(self, writer: Store, open_reader: Callable[[], Store], pages: PageBudget | None = None) -> None:
        """`pages`: which the connections share with those of other spaces; None: a budget of their own."""
        self._pages = pages or PageBudget()
        self._pages.opened()
        self._writer = writer
        self._open_reader = open_reader
        self._stores: list[Store] = []
        self._own = threading.local()
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="confide-write")
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="confide-read")
        self._examining = ThreadPoolExecutor(1, thread_name_prefix="confide-examine")
        self._examiner: Store | None = None
        self.used_at = time.monotonic()  # by anybody but the upkeep
        self._closed = False

    @property
    def share(self) -> float:
        """Of what a space may keep in memory while no other is open, the part that it may now."""
        return self._pages.share

    @property
    def refused(self) -> StorageError | None:
        """Why nothing can be written: the last write was refused, or the file is not the one that was opened. None: it can."""
        if self._closed or self._writer.refused is not None:
            return self._writer.refused
        try:
            self._writer.require_file()
        except StorageError as error:
            return error
        return None

    @property
    def has_file(self) -> bool:
        """Whether the file that was opened is still at its path."""
        return self._writer.path.exists()

    async def write(self, work: Callable[[Store], T]) -> T:
        """Runs in the writer's thread, after all that was asked before."""
        self.used_at = time.monotonic()
        return await self.maintain(work)

    async def maintain(self, work: Callable[[Store], T]) -> T:
        """As `write`, for what nobody waits for."""
        asked_at = time.perf_counter()

        def run() -> T:
            figures.WRITE_WAIT.observe(time.perf_counter() - asked_at)
            return work(self._kept(self._writer))

        return await self._submit(self._writing, run)

    async def answer(self) -> None:
        """Return once the writer's thread has come to it; what is closed has nothing to answer for."""
        if not self._closed:
            await self._submit(self._writing, lambda: None)

    async def examine(self, work: Callable[[Store], T]) -> T:
        """As `read`, in a thread apart, so that it may take longer."""

        def run() -> T:
            self._examiner = self._reader()
            return work(self._examiner)

        return await self._submit(self._examining, run)

    async def rest(self) -> None:
        """Closes the connection that examines until it is asked again, and lets go of what the writer has read: half of what a small space
        takes of memory."""

        def let_go() -> None:
            self._examiner = None
            self._close_own()

        await self._submit(self._examining, let_go)
        await self._submit(self._writing, lambda: self._writer.shrink())

    def interrupt(self) -> None:
        """Ends what is being examined right now, with a StorageError."""
        if self._examiner is not None:
            self._examiner.interrupt()

    def alone(self, work: Callable[[], T]) -> T:
        """Runs in the writer's thread, which calls it, while every other connection is closed and whoever reads waits.

        Raises StorageError: a reading did not end in time.
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
        """Copies the database under the new key (32 bytes) in small steps, between which others write, and goes on with the copy.

        Whoever reads waits for the swap alone: a few milliseconds. Cancelled or failed, the old key stays. `follow` is told how many pages
        are copied, and of how many. Raises StorageError: no room, a disk that fails, or another process that reads the file.
        """

        def is_nearly_done(store: Store) -> bool:
            left, total = store.replacement.rekeying.step(leave=LAST_PAGES)
            follow(total - left, total)
            return left <= LAST_PAGES

        def finish(store: Store) -> None:
            # In one go: what came between the copy and the swap would be lost.
            store.replacement.rekeying.finish()
            if store.outbox is not None:
                # In the log before it is here: whoever opens the space next has the one key that opens both.
                store.outbox.bring(replacement.copy_of(store.path), key)
            self.alone(store.replacement.swap_rekeyed)

        try:
            sync = await self.maintain(lambda store: store.replacement.begin_rekeying(key))
            while not await self.maintain(is_nearly_done):
                pass
            # Beside the writer, so that nobody waits for the disk to take all of it.
            await asyncio.to_thread(sync)
            await self.maintain(finish)
        except BaseException:
            with contextlib.suppress(ConfideError):
                await self.maintain(lambda store: store.replacement.abandon_rekeying())
            raise

    async def read(self, work: Callable[[Store], T]) -> T:
        """Runs in a reader's thread; sees the last committed state."""
        self.used_at = time.monotonic()
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
            self._writer.require_reader_file()
            store = self._own.store = self._open_reader()
            self._stores.append(store)
            self._pages.opened()
        return self._kept(store)

    def _close_own(self) -> None:
        """Closes the connection of this thread, if it has one; its next reading opens another."""
        store: Store | None = getattr(self._own, "store", None)
        if store is not None:
            self._own.store = None
            self._stores.remove(store)
            self._pages.closed()
            store.close()

    def _kept(self, store: Store) -> Store:
        store.keep_pages(self._pages.share_kib)
        return store

    def _close(self) -> None:
        self._examining.shutdown(wait=True)
        self._reading.shutdown(wait=True)
        self._writing.shutdown(wait=True)
        for _ in (self._writer, *self._stores):
            self._pages.closed()
        with contextlib.ExitStack() as stack:  # each of them, whatever becomes of the others
            stack.callback(self._writer.close)
            for store in self._stores:
                stack.callback(store.close)
