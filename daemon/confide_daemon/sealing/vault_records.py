"""Storage of a space's sealed records in a vault. The database keeps their metadata, and each
record's location in the vault.

A record is acknowledged once the vault has it and its row is on disk. Before a record is written to
the vault, its location is registered as stray, which means that no record uses it. The transaction
that gives the location to the record ends that, and registers the record's previous location as
stray instead. So a daemon killed at any moment loses no record and leaves nothing behind in the
vault. Stray locations are emptied in the background, when the space is opened and after each
change. The location of a replaced record is kept for `KEPT_DAYS`, since a restored older copy of
the database refers to it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from confide_crypto.errors import ConfideError, RecordError, where
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.errors import VaultError
from confide_daemon.sealing.records import Follow, MoveResult, SealedRecords, parse_record
from confide_daemon.sealing.vault import KEPT_DAYS, THREADS, LostError, Vault, changed_record_error, place_for
from confide_daemon.store.rows import SealedEntry, SealedPlace, SealedRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_daemon.store.upkeep.integrity import record_in

log = logging.getLogger(__name__)
T = TypeVar("T")

# Records per batch; the vault's threads share it.
SLICE: Final = 16
# A place that isn't a record's after this time never becomes one: its request ended long ago.
STRAY_AFTER_S: Final = 3600.0
REPLACED_AFTER_S: Final = KEPT_DAYS * 86_400.0
SWEEP_EVERY_S: Final = 3600.0
STRAYS: Final = 256
ALL: Final = 2**62
# Attempts to read a record that is moved or replaced meanwhile.
LOOKS: Final = 3


class VaultRecords(SealedRecords):
    """The sealed records of one space, with new ones stored in a vault. Records that are still in
    the database are served from there.
    """

    def __init__(
        self, threads: StoreThreads, vault: Vault, space_id: str, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(threads, clock)
        self._vault = vault
        self._space_id = space_id
        self._changed = asyncio.Event()
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sweeping = asyncio.create_task(self._sweep_always(), name="confide-strays")

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def put(self, records: Sequence[SealedRecord]) -> int:
        """Store records in the vault, as `SealedRecords.put`. Raises StorageError if the database
        cannot be written, VaultError if some records could not be stored; the others are.
        """

        def newer(store: Store) -> list[SealedRecord]:
            epochs = ((one, store.sealed_records.epoch(one.secret_id)) for one in wanted.values())
            return [one for one, epoch in epochs if epoch is None or epoch < one.epoch]

        wanted: dict[bytes, SealedRecord] = {}
        for record in records:
            if record.secret_id not in wanted or wanted[record.secret_id].epoch < record.epoch:
                wanted[record.secret_id] = record
        left = await self._threads.read(newer)
        stored = 0
        for start in range(0, len(left), SLICE):
            batch = left[start : start + SLICE]
            kept, failure = await self._keep([(one.secret_id, one.encode()) for one in batch])
            rows = [
                (SealedRow(one.secret_id, one.kind, one.epoch, self._clock()), place)
                for one, place in zip(batch, kept, strict=True)
                if place is not None
            ]
            stored += await self._threads.write(lambda store, rows=rows: self._store(store, rows))  # type: ignore[misc]
            self._changed.set()
            if failure is not None:
                raise failure
        return stored

    async def get(self, secret_id: bytes) -> SealedRecord:
        before: SealedPlace | None = None
        for _ in range(LOOKS):
            found = await self._require_record(secret_id)
            if not isinstance(found, SealedPlace):
                return parse_record(found)
            try:
                return await self._fetch(secret_id, found)
            except LostError:
                if found == before:
                    raise
                # It may just have been replaced or moved back.
                before = found
        raise VaultError("a sealed record is being replaced", hint="try again in a moment")

    async def move(self, *, back: bool, follow: Follow, is_cancelled: Callable[[], bool]) -> MoveResult:
        """Move all records, as `SealedRecords.move`. Records moved before an error stay moved."""
        after = moved = lost = 0
        total = await self._threads.read(lambda store: store.sealed_records.count_at(is_placed=back))
        while not is_cancelled():
            follow(moved, total)
            start = after
            entries = await self._threads.read(
                lambda store: store.sealed_records.after(start, is_placed=back, limit=SLICE)  # noqa: B023 - awaited here
            )
            if not entries:
                break
            after = entries[-1].number
            found, failure = await (self._fetch_all(entries) if back else self._keep_entries(entries))
            moves = [(entry, one) for entry, one in zip(entries, found, strict=True) if one is not None]
            if back and failure is None:
                lost += await self._threads.read(lambda store: _count_missing(store, entries, found))  # noqa: B023
            moved += await self._threads.write(lambda store: self._move(store, moves))  # noqa: B023
            self._changed.set()
            if failure is not None:
                raise failure
        if not is_cancelled():
            if back:
                # The vault may be removed from daemon.toml afterwards, and replaced records would
                # stay in it forever.
                await self._threads.write(self._hasten)
            await self._sweep()
        return MoveResult(moved, lost, *await self.places())

    def _store(self, store: Store, rows: Sequence[tuple[SealedRow, SealedPlace]]) -> int:
        stored = 0
        with store.writing():
            for row, place in rows:
                before = store.sealed_records.find(row.id)
                if store.sealed_records.put(row, place):
                    stored += 1
                    if isinstance(before, SealedPlace):
                        store.sealed_records.add_strays([(before, row.id)], due_at=self._clock() + REPLACED_AFTER_S)
        return stored

    def _hasten(self, store: Store) -> None:
        """Make replaced records due for deletion now, except places that may be about to become a
        record's, even if the clock was an hour ahead.
        """
        now = self._clock()
        with store.writing():
            soon = {place for place, _ in store.sealed_records.strays(now=now + 2 * STRAY_AFTER_S, limit=ALL)}
            later = [stray for stray in store.sealed_records.strays(now=math.inf, limit=ALL) if stray[0] not in soon]
            store.sealed_records.add_strays(later, due_at=now)

    def _move(self, store: Store, moves: Sequence[tuple[SealedEntry, bytes | SealedPlace]]) -> int:
        with store.writing():
            return sum(store.sealed_records.move(entry, where, now=self._clock()) for entry, where in moves)

    async def _fetch(self, secret_id: bytes, place: SealedPlace) -> SealedRecord:
        try:
            record = SealedRecord.parse(await self._vault.fetch(self._space_id, secret_id, place.value))
        except RecordError:
            raise changed_record_error() from None
        if record.secret_id != secret_id:
            raise changed_record_error()
        return record

    async def _keep_entries(
        self, entries: Sequence[SealedEntry]
    ) -> tuple[list[SealedPlace | None], ConfideError | None]:
        """Store entries as `_keep`; damaged ones stay in the database, where `store.upkeep.repair`
        finds them.
        """
        sound = [entry for entry in entries if isinstance(entry.record, bytes) and record_in(entry.record)]
        kept, failure = await self._keep([(entry.id, entry.record) for entry in sound])  # type: ignore[misc]
        places = dict(zip([entry.id for entry in sound], kept, strict=True))
        return [places.get(entry.id) for entry in entries], failure

    async def _keep(
        self, records: Sequence[tuple[bytes, bytes]]
    ) -> tuple[list[SealedPlace | None], ConfideError | None]:
        """Write records, each a secret id and bytes, to the vault; return each one's place (None if
        it failed) and the first error.
        """
        places = [SealedPlace(place_for(record)) for _, record in records]

        def note(store: Store) -> None:
            with store.writing():
                names = [(place, secret_id) for place, (secret_id, _) in zip(places, records, strict=True)]
                store.sealed_records.add_strays(names, due_at=self._clock() + STRAY_AFTER_S)

        await self._threads.write(note)
        outcomes = await _together(
            [
                partial(self._vault.keep, self._space_id, secret_id, place.value, record)
                for place, (secret_id, record) in zip(places, records, strict=True)
            ]
        )
        kept = [None if isinstance(out, ConfideError) else place for out, place in zip(outcomes, places, strict=True)]
        return kept, _failure(outcomes)

    async def _fetch_all(self, entries: Sequence[SealedEntry]) -> tuple[list[bytes | None], ConfideError | None]:
        """Return the bytes of each entry, None if they are lost or unavailable, and the first error
        for unavailable ones.
        """

        async def fetch(entry: SealedEntry) -> bytes | None:
            assert isinstance(entry.record, SealedPlace)
            with suppress(LostError):
                return (await self._fetch(entry.id, entry.record)).encode()
            return None

        outcomes = await _together([partial(fetch, entry) for entry in entries])
        return [None if isinstance(one, ConfideError) else one for one in outcomes], _failure(outcomes)

    async def _sweep(self) -> None:
        """Empty the stray places that are due. Raises VaultError, StorageError."""
        while due := await self._threads.read(
            lambda store: store.sealed_records.strays(now=self._clock(), limit=STRAYS)
        ):
            for start in range(0, len(due), SLICE):
                places = due[start : start + SLICE]
                outcomes = await _together(
                    [
                        partial(self._vault.destroy, self._space_id, secret_id, place.value)
                        for place, secret_id in places
                    ]
                )
                empty = [place for (place, _), out in zip(places, outcomes, strict=True) if out is None]

                def forget(store: Store, empty: Sequence[SealedPlace] = empty) -> None:
                    with store.writing():
                        store.sealed_records.forget_strays(empty)

                await self._threads.maintain(forget)
                if (failure := _failure(outcomes)) is not None:
                    raise failure

    async def _sweep_always(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._sweep()
            except ConfideError as error:
                raise_if_cancelled()
                log.info("places in the vault that are to be emptied have to wait: %s", error)
            except Exception as error:
                raise_if_cancelled()
                log.error("emptying places in the vault broke: %s", where(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_EVERY_S):
                    await self._changed.wait()


def _count_missing(store: Store, entries: Sequence[SealedEntry], found: Sequence[object]) -> int:
    """Return how many entries still refer to a place where nothing was found."""
    missing = [entry for entry, one in zip(entries, found, strict=True) if one is None]
    return sum(store.sealed_records.find(entry.id) == entry.record for entry in missing)


async def _together(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T | ConfideError]:
    """Return the result or error of each call; as many run at once as the vault has threads, so
    that no call's deadline passes while it waits for a thread.

    After the first error no further calls are started.
    """
    gate = asyncio.Semaphore(THREADS)
    failures: list[ConfideError] = []

    async def run_one(call: Callable[[], Coroutine[Any, Any, T]]) -> T | ConfideError:
        async with gate:
            if failures:
                return failures[0]
            try:
                return await call()
            except ConfideError as error:
                failures.append(error)
                return error

    return await asyncio.gather(*map(run_one, calls))


def _failure(outcomes: Sequence[object]) -> ConfideError | None:
    return next((one for one in outcomes if isinstance(one, ConfideError)), None)
