"""Replicates a space with a log in the background: it uploads use counts and budgets within
seconds, and snapshots.

No request waits for it. Changes whose upload fails stay in the file, and are sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from confide_crypto.errors import where
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.errors import EngineError, StorageError
from confide_daemon.spaces.index import Index
from confide_daemon.spaces.part import SpacePart
from confide_daemon.store.database import ReplicationOutbox
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
SNAPSHOT_VECTORS: Final = 1000
"""Vectors after a snapshot that require a new one, once none is waiting: another node would compute
them in seven seconds of a core.
"""
REST_VECTORS: Final = 200
"""Vectors of a closed space that may be left to the node that opens it next."""
RETRY_S: Final = 60.0
"""Pause after a failure: a snapshot copies the whole space before it is sent."""


class Shipping(SpacePart):
    """Replicates one open space in the background."""

    def __init__(self, threads: StoreThreads, outbox: ReplicationOutbox, index: Index) -> None:
        self._threads = threads
        self._outbox = outbox
        self._index = index
        self._brought_bytes = 0  # of those computed
        self._task: asyncio.Task[None] | None = None
        self._snapshot: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start to send changes that are in no log entry yet every few seconds."""
        self._task = asyncio.create_task(self._run(self._outbox), name="confide-shipping")

    async def finish(self) -> None:
        """Send the remaining changes, and a snapshot if the next node to open the space would have
        many entries to replay.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._snapshot is not None:
            await asyncio.gather(self._snapshot, return_exceptions=True)
        with contextlib.suppress(StorageError):
            await self._bring(self._outbox, at_rest=True)

    async def _run(self, outbox: ReplicationOutbox) -> None:
        pause_s = EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = EVERY_S
            try:
                await self._bring(outbox, at_rest=False)
            except StorageError as error:
                raise_if_cancelled()
                pause_s = RETRY_S
                if not isinstance(error, EngineError):  # the heartbeat reports that one, once
                    log.warning("the snapshot of a space could not be brought to its log: %s", error)
            except Exception as error:
                raise_if_cancelled()
                pause_s = RETRY_S  # a bug must not end this for good; its text may quote anything
                log.error("bringing a snapshot to its log broke: %s", where(error))

    async def _bring(self, outbox: ReplicationOutbox, *, at_rest: bool) -> None:
        if outbox.has_pending:
            await self._threads.maintain(_flush)
        computed = self._index.indexer.computed_pieces
        if outbox.is_snapshot_due(at_rest=at_rest) or self._are_vectors_due(computed, at_rest=at_rest):
            # In a separate thread, which a cancellation does not end: the copy is read while others
            # write.
            self._snapshot = asyncio.ensure_future(asyncio.to_thread(outbox.take_snapshot))
            await asyncio.shield(self._snapshot)
            self._brought_bytes = computed

    def _are_vectors_due(self, computed: int, *, at_rest: bool) -> bool:
        """Return True if a snapshot would save another node much work: entries contain no vectors
        (docs/decisions/0032).
        """
        if at_rest:
            return computed - self._brought_bytes >= REST_VECTORS
        return computed - self._brought_bytes >= SNAPSHOT_VECTORS and self._index.is_at_rest


def _flush(store: Store) -> None:
    if store.outbox is not None:
        store.outbox.flush()
