"""The open database file of a space: its threads, its unreadable parts, and marks from which the
next process learns if this one closed it.
"""

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
"""Mark in the database: a process has the space open."""
_STRAYS = 64
"""Vector tables without a generation that are repaired on opening, at most."""


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """The open database file of a space.

    Attributes:
        store: the connection that writes, for use on the writer's thread.
        threads: the threads that write, read and run long reads.
        scan: the vectors in memory.
        damage: the parts of the file that cannot be read.
        lease: the right to write to the space's log in the shared store; None: there is no log.
        has_crashed: True if the last process that opened the file did not close it.
        behind: the ids of documents that other nodes have changed since it was open here.
    """

    store: Store
    threads: StoreThreads
    scan: VectorScan
    damage: Damage
    lease: Lease | None
    has_crashed: bool
    behind: tuple[int, ...]

    @classmethod
    async def open(
        cls, path: Path, key: bytes, held: Lease | None, *, quota: Quota, pages: PageBudget | None
    ) -> SpaceFile:
        """Open the file, or create it.

        Raises StorageError if the key is wrong, the file is damaged or not writable, a newer
        version wrote it, or the disk is full.
        """
        scan, damage = VectorScan(), Damage()
        store, crashed, behind = await asyncio.to_thread(_open_and_mark, path, key, scan, damage, held)
        store.quota = quota

        def open_reader() -> Store:
            return Store.open(path, store.key, writer=False, now=time.time(), scan=scan, damage=damage)

        return cls(store, StoreThreads(store, open_reader, pages), scan, damage, held, crashed, behind)

    async def close(self) -> None:
        """Mark the space as closed, and close the threads and connections."""
        with contextlib.suppress(StorageError):
            await self.threads.maintain(mark_closed)
        await self.threads.close()


def _open_and_mark(
    path: Path, key: bytes, scan: VectorScan, damage: Damage, held: Lease | None
) -> tuple[Store, bool, tuple[int, ...]]:
    opened = None if held is None else held.bring(path, key)
    store = Store.open(path, key, writer=True, now=time.time(), scan=scan, damage=damage)
    try:
        if held is not None and opened is not None:
            held.join(store, opened)
        crashed = mark_open(store, now=time.time())
        note_restore(store, path.with_suffix(".restored"))
        if store.outbox is not None:
            store.outbox.flush()  # receipts of this opening reach devices (PROTOCOL.md 9.2)
        return store, crashed, tuple(opened.documents) if opened is not None else ()
    except BaseException:
        store.close()
        raise


def note_salvage(store: Store, lost: int, *, now: float) -> None:
    """Record that the file was rebuilt because some pages were unreadable, and that `lost` rows
    could not be recovered.
    """
    with store.writing_derived():
        store.breaches.note(Breach(PAGES, 1, now))
        store.breaches.settle([PAGES], now=now)
        if lost:
            store.breaches.note(Breach(LOST_ROWS, lost, now))


def mark_open(store: Store, *, now: float) -> bool:
    """Mark the space as open; return True if the last process that opened it did not close it.
    Raises DamagedError if the database cannot be read.
    """
    crashed = bool(store.marks.find(OPEN))
    try:
        with store.writing_derived():
            store.marks.put(OPEN, 1.0)
            store.lives.begin(now=now)
            store.forgettings.key(now=now)  # in every snapshot from now on, so that each can forget
            # Everything else needs these tables.
            if strays := store.repair.fix(VECTOR_TABLES, limit=_STRAYS):
                store.breaches.note(Breach(VECTOR_TABLES, strays, now, now))
    except DamagedError:
        raise
    except StorageError as error:
        # A space on a full disk can still be read and searched.
        log.warning("the space is open, but nothing can be written down of that: %s", error)
    return crashed


def note_restore(store: Store, mark: Path) -> None:
    """If the file `mark` exists, record that the data folder was restored from a backup, then
    remove `mark`. Later revisions skip all numbers that may have been used before.

    After a crash between the two steps the restore is recorded twice, which only skips more
    numbers.
    """
    if not mark.exists():
        return
    try:
        with store.writing():
            if (life := store.lives.newest()) is None:
                return
            store.lives.put_back(life, restores=life.restores + 1, to=life.last_at)
        mark.unlink()
    except (StorageError, OSError) as error:
        # The next opening records it; until then a device that knows newer revisions reports the
        # restore.
        log.warning("the space was restored, but that cannot be written down: %s", error)


def mark_closed(store: Store) -> None:
    """Mark the space as closed. Raises StorageError if it cannot be written."""
    with store.writing_derived():
        store.marks.put(OPEN, 0.0)
