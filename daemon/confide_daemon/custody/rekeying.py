"""The key of an open space's database, changed while everybody goes on reading and writing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from confide_crypto.errors import ConfideError
from confide_daemon.store import Store
from confide_daemon.threads import StoreThreads


async def change_key(threads: StoreThreads, key: bytes, follow: Callable[[int, int], None]) -> None:
    """Copies the database under the new key in small steps, between which others write, and goes on with the copy.

    Whoever reads waits for the swap alone: a few milliseconds. Cancelled or failed, the old key stays.

    Args:
        key: 32 bytes.
        follow: told how many pages are copied, and of how many.

    Raises:
        StorageError: no room, a disk that fails, or another process that reads the file.
    """

    def finished(store: Store) -> bool:
        # In one go with the last pages: what came between the copy and the swap would be lost.
        left, total = store.step_rekeying()
        follow(total - left, total)
        if left:
            return False
        store.finish_rekeying()
        threads.alone(store.swap_rekeyed)
        return True

    try:
        await threads.maintain(lambda store: store.begin_rekeying(key))
        while not await threads.maintain(finished):
            pass
    except BaseException:
        with contextlib.suppress(ConfideError):
            await threads.maintain(lambda store: store.abandon_rekeying())
        raise
