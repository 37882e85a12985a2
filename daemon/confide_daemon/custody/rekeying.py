"""The key of an open space's database, changed while everybody goes on reading and writing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from confide_crypto.errors import ConfideError
from confide_daemon.store import Store
from confide_daemon.threads import StoreThreads

LAST_PAGES: Final = 512
"""So few are copied in one go with the swap: some 20 ms of the writer."""


async def change_key(threads: StoreThreads, key: bytes, follow: Callable[[int, int], None]) -> None:
    """Copies the database under the new key in small steps, between which others write, and goes on with the copy.

    Whoever reads waits for the swap alone: a few milliseconds. Cancelled or failed, the old key stays.

    Args:
        key: 32 bytes.
        follow: told how many pages are copied, and of how many.

    Raises:
        StorageError: no room, a disk that fails, or another process that reads the file.
    """

    def is_nearly_done(store: Store) -> bool:
        left, total = store.step_rekeying(leave=LAST_PAGES)
        follow(total - left, total)
        return left <= LAST_PAGES

    def finish(store: Store) -> None:
        # In one go: what came between the copy and the swap would be lost.
        store.finish_rekeying()
        threads.alone(store.swap_rekeyed)

    try:
        sync = await threads.maintain(lambda store: store.begin_rekeying(key))
        while not await threads.maintain(is_nearly_done):
            pass
        # Beside the writer, so that nobody waits for the disk to take all of it.
        await asyncio.to_thread(sync)
        await threads.maintain(finish)
    except BaseException:
        with contextlib.suppress(ConfideError):
            await threads.maintain(lambda store: store.abandon_rekeying())
        raise
