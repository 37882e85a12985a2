"""The database of one space, opened for writing: its threads, what cannot be read of it, and how it was left by who had it last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from confide_daemon.errors import DamagedError, StorageError
from confide_daemon.store.database import Damage
from confide_daemon.store.logs import Lease
from confide_daemon.store.page_budget import PageBudget
from confide_daemon.store.quota import Quota
from confide_daemon.store.rows import Breach
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.vector_scan import VectorScan
from confide_daemon.store.threads import StoreThreads
from confide_daemon.store.upkeep.integrity import LOST_ROWS, PAGES, VECTOR_TABLES

log = logging.getLogger(__name__)

OPEN = "open"
"""A mark: somebody has the space open."""
_STRAYS = 64
"""Tables of vectors without a generation that are put right at once."""


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """The file of a space, from `open` to `close`.

    Attributes:
        store: the connection that writes, for whoever runs in its thread.
        threads: those that write, read and examine.
        scan: its vectors in memory.
        damage: what its connections cannot read.
        held: the lease of its log, of which it is a copy; None: it is all there is.
        crashed: who had it open the last time did not close it.
        behind: the ids of documents that other nodes have changed since it was open here.
    """

    store: Store
    threads: StoreThreads
    scan: VectorScan
    damage: Damage
    held: Lease | None
    crashed: bool
    behind: tuple[int, ...]

    @classmethod
    async def open(
        cls, path: Path, key: bytes, held: Lease | None, *, quota: Quota, pages: PageBudget | None
    ) -> SpaceFile:
        """The file, made when it is not there. Raises StorageError: wrong key, damaged, newer schema, not writable, disk full."""
        scan, damage = VectorScan(), Damage()
        store, crashed, behind = await asyncio.to_thread(_open_marked, path, key, scan, damage, held)
        store.quota = quota

        def open_reader() -> Store:
            return Store.open(path, store.key, writer=False, now=time.time(), scan=scan, damage=damage)

        return cls(store, StoreThreads(store, open_reader, pages), scan, damage, held, crashed, behind)

    async def close(self) -> None:
        """Close it in good order."""
        with contextlib.suppress(StorageError):
            await self.threads.maintain(mark_closed)
        await self.threads.close()


def _open_marked(
    path: Path, key: bytes, scan: VectorScan, damage: Damage, held: Lease | None
) -> tuple[Store, bool, tuple[int, ...]]:
    opened = None if held is None else held.bring(path, key)
    store = Store.open(path, key, writer=True, now=time.time(), scan=scan, damage=damage)
    try:
        if held is not None and opened is not None:
            held.join(store, opened)
        crashed = open_marked(store, now=time.time())
        note_restore(store, path.with_suffix(".restored"))
        if store.outbox is not None:
            store.outbox.flush()  # machines are told of this life of the database (PROTOCOL.md 9.2)
        return store, crashed, tuple(opened.documents) if opened is not None else ()
    except BaseException:
        store.close()
        raise


def note_salvage(store: Store, lost: int, *, now: float) -> None:
    """Writes down that pages were unreadable, which they no longer are, and how many rows are lost with them."""
    with store.writing_derived():
        store.breaches.note(Breach(PAGES, 1, now))
        store.breaches.settle([PAGES], now=now)
        if lost:
            store.breaches.note(Breach(LOST_ROWS, lost, now))


def open_marked(store: Store, *, now: float) -> bool:
    """Marks the space as open; whether the last one that had it open did not close it. Raises DamagedError where it cannot be read."""
    crashed = bool(store.marks.find(OPEN))
    try:
        with store.writing_derived():
            store.marks.put(OPEN, 1.0)
            store.lives.begin(now=now)
            # Nothing else can begin without these.
            if strays := store.repair.fix(VECTOR_TABLES, limit=_STRAYS):
                store.breaches.note(Breach(VECTOR_TABLES, strays, now, now))
    except DamagedError:
        raise
    except StorageError as error:
        # On a full disk it can still be read and searched.
        log.warning("the space is open, but nothing can be written down of that: %s", error)
    return crashed


def note_restore(store: Store, mark: Path) -> None:
    """Counts that the data folder was restored, where the mark of that is there, so that no revision's number is given out twice; the mark
    goes. Cut off between the two, it is counted twice, which only leaves out numbers."""
    if not mark.exists():
        return
    try:
        with store.writing():
            if (life := store.lives.newest()) is None:
                return
            store.lives.put_back(life, restores=life.restores + 1, to=life.last_at)
        mark.unlink()
    except (StorageError, OSError) as error:
        # It is noted the next time; until then a machine that knows more tells of it.
        log.warning("the space was restored, but that cannot be written down: %s", error)


def mark_closed(store: Store) -> None:
    """Write down that nobody has the space open. Raises StorageError."""
    with store.writing_derived():
        store.marks.put(OPEN, 0.0)
