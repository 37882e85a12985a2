"""Forgotten texts of a space: stores the signed records of them, removes the texts from the
database, and writes all records to a file beside it.

A record is stored before anything is removed, and marked done when the database file has no trace
of its texts. What a crash or a full disk interrupts is finished when the space is next opened, or
an hour later. The file `<space>.forgotten` has all records. So a database that was restored from an
older copy removes the texts again before it serves (`forgotten_file`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_crypto.errors import where
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.documents.writer import Writer
from confide_daemon.errors import StorageError
from confide_daemon.sealing.unsealed_texts import SpaceTexts
from confide_daemon.spaces import forget_steps
from confide_daemon.spaces.index import Index
from confide_daemon.store import forgotten_file
from confide_daemon.store.forgotten_file import FiledRecord
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.forget_table import ForgetRow
from confide_daemon.store.threads import StoreThreads
from confide_daemon.store.upkeep import salvage
from confide_memory.forgetting import ForgetGuard, ForgetPart, SignedRecord, ids_digest, name_hash
from confide_memory.globs import normal

log = logging.getLogger(__name__)

AGAIN_S: Final = 3600.0
SUFFIX: Final = ".forgotten"


@dataclass(frozen=True, slots=True)
class Forgot:
    """The result of applying a record of forgotten texts: the number of documents removed or cut,
    and the new revisions to announce to the devices.
    """

    documents: int
    changes: Sequence[DocumentChange]


class Forgetting:
    """Stores and applies the records of forgotten texts of one space."""

    def __init__(self, threads: StoreThreads, writer: Writer, index: Index, database: Path) -> None:
        """`database`: the path of the space's file."""
        self._threads = threads
        self._writer = writer
        self._index = index
        self._file = database.with_suffix(SUFFIX)
        self._texts = SpaceTexts(threads, index.indexer, index.searcher)
        self._turn = asyncio.Lock()
        self._retry: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Add the records from the file beside the database, and remove their texts before anyone
        uses the space. Raises StorageError if the texts cannot be removed.
        """
        kept = await asyncio.to_thread(forgotten_file.read, self._file)
        if kept:
            await self._threads.write(lambda store: _add(store, kept))
        rows = await self._pending()
        for row in rows:
            await self._remove(row)
        await self.save()

    def start(self) -> None:
        """Start a background task that retries removals which a full disk prevents, until `close`."""
        self._retry = asyncio.create_task(self._try_again(), name="confide-forget")

    async def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            await asyncio.gather(self._retry, return_exceptions=True)

    async def _try_again(self) -> None:
        while True:
            try:
                async with self._turn:
                    for row in await self._pending():
                        await self._remove(row)
                        await self._clean(row.id)
            except StorageError as error:
                raise_if_cancelled()
                log.error("a forgotten text is not removed from the file yet: %s", error)
            except Exception as error:
                raise_if_cancelled()
                log.error("removing a forgotten text broke: %s", where(error))
            await asyncio.sleep(AGAIN_S)

    async def key(self) -> bytes:
        """Return the key for the hashes of new records; create it if there is none."""

        def work(store: Store) -> bytes:
            with store.writing():
                return store.forgettings.key(now=time.time())

        return await self._threads.write(work)

    async def plan(
        self,
        project: str | None,
        asked: Sequence[str],
        parts: Sequence[ForgetPart],
        reaches: Callable[[str, str], bool],
    ) -> tuple[bytes, forget_steps.ForgetPlan]:
        """Return the documents that forgetting would remove, and the key for the hashes in the
        record.

        Args:
            project: the project that `asked` belongs to; None if `parts` are given instead.
            asked: paths, folders and note ids in the project; empty for the whole project.
            parts: the parts of a text to forget in all projects.
            reaches: returns True if the caller may write the document (project, path).
        """
        key = await self.key()
        found = await self._threads.read(
            lambda store: forget_steps.plan(store, key, project, asked, parts, reaches=reaches)
        )
        return key, found

    async def take(self, signed: SignedRecord, key: bytes, *, author: str, lifted: Collection[bytes] = ()) -> Forgot:
        """Store a signed record and remove its texts. If the record is stored already, finish its
        removal.

        Args:
            key: the key of the record's hashes.
            author: the name of the device that forgets the texts.
            lifted: hashes of the record whose texts are accepted again.

        Raises StorageError if the record was stored but its removal failed; it is retried later.
        """

        def store_it(store: Store) -> None:
            now = time.time()
            with store.writing():
                store.forgettings.add_key(key, now=now)
                store.forgettings.add(signed, author=author, now=now, lifted=lifted)

        async with self._turn:
            await self._threads.write(store_it)
            await self.save()
            row = await self.find(signed.record.id)
            if row is None or row.done_at is not None:
                return Forgot(0, ())
            found = await self._remove(row)
            await self._clean(row.id)
            return found

    async def _remove(self, row: ForgetRow) -> Forgot:
        key = await self._threads.read(lambda store: store.forgettings.key_of(row.signed.record.key_id))
        if key is None:
            log.warning("a record of forgotten texts has no key here; a device that has it brings it")
            return Forgot(0, ())
        guard = ForgetGuard(key, [row.signed.record], row.lifted)
        steps = forget_steps.ForgetSteps(self._writer, row, guard, self._index.derivation.keep)
        try:
            has_more = True
            while has_more:  # each step waits its turn among the other writes
                has_more = await self._threads.write(lambda _store: steps.step())
        finally:
            self._index.indexer.note_change()
        return Forgot(steps.documents, steps.changes)

    async def _clean(self, identity: bytes) -> None:
        has_key = await self._threads.read(lambda store: _has_key(store, identity))
        if not has_key:
            return
        await self._texts.erase()

        def finish(store: Store) -> None:
            with store.writing():
                store.forgettings.finish(identity, now=time.time())

        await self._threads.write(finish)

    async def _pending(self) -> list[ForgetRow]:
        rows = await self.rows()
        return [row for row in rows if row.done_at is None]

    async def rows(self) -> list[ForgetRow]:
        """Return all records of the space, the oldest first."""
        return await self._threads.read(lambda store: store.forgettings.rows())

    async def find(self, identity: bytes) -> ForgetRow | None:
        """Return the record with this id, or None if there is none."""
        return await self._threads.read(lambda store: store.forgettings.find(identity))

    async def count(self) -> int:
        return await self._threads.read(lambda store: store.forgettings.count())

    async def digest(self) -> str:
        """Return a hash of all record ids, or "" without records. A device compares it to learn if
        it has all records.
        """
        return ids_digest(row.id for row in await self.rows()) if await self.count() else ""

    async def keys(self) -> dict[bytes, bytes]:
        """Return the keys of all records' hashes, by key id."""

        def work(store: Store) -> dict[bytes, bytes]:
            names = {row.signed.record.key_id for row in store.forgettings.rows()}
            return {name: key for name in names if (key := store.forgettings.key_of(name)) is not None}

        return await self._threads.read(work)

    async def note_device_done(self, identities: Iterable[bytes], device: bytes) -> None:
        """Record that a device has deleted the texts of these records from its own files."""
        known = list(identities)

        def work(store: Store) -> None:
            with store.writing():
                for identity in known:
                    if store.forgettings.find(identity) is not None:
                        store.forgettings.note_device_done(identity, device.hex(), now=time.time())

        if known:
            await self._threads.write(work)

    async def devices_done(self, identity: bytes) -> dict[str, float]:
        """Return when each device deleted the record's texts from its own files: seconds since
        1970, by the device's public key in hex.
        """
        return await self._threads.read(lambda store: store.forgettings.devices_done(identity))

    async def allow(self, text: str, *, said: float) -> None:
        """Accept a forgotten text again, because a person stores it. `said` is when the person
        stated the text, in seconds since 1970; texts that were forgotten after that stay forgotten.
        """

        def work(store: Store) -> frozenset[bytes]:
            found = [each for guard in store.forgettings.guards() for each in guard.hashes_in(text)]
            later = [row.signed.record for row in store.forgettings.rows() if row.signed.record.at > said]
            barred = {each for one in later for each in (*one.texts, *(part.hash for part in one.parts))}
            return frozenset(found) - barred

        if hashes := await self._threads.read(work):
            await self._lift(hashes)

    async def undo(self, project: str, asked: Sequence[str]) -> int:
        """Accept forgotten names of a project again, with the texts in their records; return the
        number of these names. `asked`: paths and folders; empty for the whole project.
        """

        def work(store: Store) -> tuple[frozenset[bytes], int]:
            names = [normal(name) for name in asked] or [""]
            if "" in names:
                for document in store.documents.list_documents(frozenset((project,))):
                    parts = document.path.split("/")
                    names += ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
            lifted: set[bytes] = set()
            count = 0
            for row in store.forgettings.rows():
                record = row.signed.record
                key = store.forgettings.key_of(record.key_id)
                mine = {name_hash(key, project, name) for name in names} if key is not None else set()
                if here := mine.intersection(record.names) - row.lifted:
                    count += len(here)
                    lifted |= here | {*record.texts} | {part.hash for part in record.parts}
            return frozenset(lifted), count

        lifted, count = await self._threads.read(work)
        if lifted:
            await self._lift(lifted)
        return count

    async def undo_parts(self, parts: Sequence[ForgetPart]) -> int:
        """Accept these parts of a text again; return how many of them were forgotten."""

        def work(store: Store) -> frozenset[bytes]:
            rows = store.forgettings.rows()
            known = {part.hash for row in rows for part in row.signed.record.parts if part.hash not in row.lifted}
            wanted = {part.hash for part in parts} & known
            texts = {
                text
                for row in rows
                if wanted.intersection(part.hash for part in row.signed.record.parts)
                for text in row.signed.record.texts
            }
            return frozenset(wanted | texts) if wanted else frozenset()

        hashes = await self._threads.read(work)
        if hashes:
            await self._lift(hashes)
        return len(hashes & {part.hash for part in parts})

    async def _lift(self, hashes: Collection[bytes]) -> None:
        def work(store: Store) -> None:
            with store.writing():
                store.forgettings.lift(hashes)

        await self._threads.write(work)
        await self.save()

    async def save(self) -> None:
        """Write all records to the file beside the database. Raises StorageError if that fails."""
        rows = await self.rows()
        if rows:
            keys, own = await self.keys(), await self._threads.read(lambda store: store.key)
            await asyncio.to_thread(forgotten_file.write, self._file, rows, keys, own)

    @property
    def copies_aside(self) -> int:
        """Count the old database files kept beside the database: damaged ones, and those with
        changes that a shared store has lost. They may still contain forgotten texts.
        """
        path = self._file.with_suffix(".db")
        return salvage.count_damaged_copies(path) + len([*path.parent.glob(f"{path.name}.ahead*")])


def _has_key(store: Store, identity: bytes) -> bool:
    row = store.forgettings.find(identity)
    return row is not None and store.forgettings.key_of(row.signed.record.key_id) is not None


def _add(store: Store, kept: Iterable[FiledRecord]) -> None:
    with store.writing():
        for one in kept:
            row = one.row
            if (key := one.key(store.key)) is not None:
                store.forgettings.add_key(key, now=row.taken_at)
            store.forgettings.add(row.signed, author=row.author, now=row.taken_at, lifted=row.lifted)
