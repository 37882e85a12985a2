"""Background maintenance of a space: integrity checks, repairs, and the return of free disk space.

A quick check of ids runs right after opening and every ten minutes. A full check runs once a day,
after a crash, and when a read finds unreadable data. It runs in slices on a separate thread and
uses a tenth of a core. Failed checks ("breaches") are recorded and repaired in small transactions,
between which other writes continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon import figures
from confide_daemon.datadir.disk import Disk
from confide_daemon.errors import DamagedError, StorageError
from confide_daemon.spaces.file import SpaceFile, note_salvage
from confide_daemon.spaces.index import Index
from confide_daemon.store.rows import Breach
from confide_daemon.store.space_store import Store
from confide_daemon.store.upkeep import salvage
from confide_daemon.store.upkeep.integrity import (
    ACCEPTED,
    CLOCK_CONFIRMED,
    FILE_LOST,
    LOSSES,
    PAGES,
    UNCUT,
    VECTOR_UNUSABLE,
    VECTORS_FOREIGN,
)

log = logging.getLogger(__name__)

LOOK_S = 600.0
# Time between the checks of two spaces, each of which takes some 10 ms of the interpreter. Hundreds
# of spaces opened within a minute were all checked within a minute ten minutes later, and searches
# took three times as long meanwhile.
APART_S = 0.5
RETRY_S = 60.0
DAY_S = 86_400.0
# A damaged file may contain data that exists nowhere else, and data that was meant to be deleted.
DAMAGED_DAYS = 30
# Rows repaired in one transaction: some 20 ms of the writer.
MENDED = 64
# Pause after each slice of a full check, as a multiple of its duration.
REST = 9
# Rewriting an old file makes writes wait, so the space must be unused for this time.
QUIET_S = 60.0
_SHOWN = 20
# A repair can reveal more breaches; those left after so many rounds wait for the next check.
_ROUNDS = 4
CHECKED_AT = "checked_at"
WRITTEN_AT = "written_at"


@dataclass(frozen=True, slots=True)
class SpaceHealth:
    """The result of the integrity checks of a space's database."""

    state: str  # ok, healing, damaged: data is lost, or cannot be repaired
    breaches: list[tuple[str, int]]  # (name, rows), not repaired yet
    healed_breaches: int  # number of repaired breaches in the record


class MaintenanceTurns:
    """Spreads the checks of all open spaces over time, so that they do not coincide. Use it on the
    event loop.
    """

    def __init__(self) -> None:
        self._next_at = 0.0

    def next_s(self) -> float:
        """Reserve the next free time for a check; return the seconds until then."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next_at)
        self._next_at = at + APART_S
        return at - now


class Upkeep:
    """Runs the maintenance of an open space in the background."""

    def __init__(
        self, file: SpaceFile, index: Index, disk: Disk, turns: MaintenanceTurns, *, clock: Callable[[], float]
    ) -> None:
        """Make the maintenance of a space; `start` begins it.

        `index`: computes vectors and cuts documents again, and is notified of repaired derived
        rows.
        """
        self._threads = file.threads
        self._damage = file.damage
        self._index = index
        self._disk = disk
        self._turns = turns
        self._is_unfolded = False
        self._is_due = file.has_crashed
        self._clock = clock
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.Future[int] | None = None
        self._open: list[Breach] = []
        self._healed_breaches = 0
        self.failure: StorageError | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            # The loop may have ended before the thread notices.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

        self._damage.listen(wake)
        self._task = asyncio.create_task(self._run(), name="confide-upkeep")

    async def close(self) -> None:
        """Stop the maintenance after the current transaction."""
        self._ended.set()
        self._damage.listen(None)
        self._wake.set()
        self._threads.interrupt()
        if self._asking is not None:
            self._asking.cancel()  # the model's server may hang
        if self._task is not None:
            await self._task

    async def record_salvage(self, lost: int) -> None:
        """Record that the database was rebuilt before it could be opened, and that `lost` rows
        could not be recovered.
        """
        await self._threads.maintain(lambda store: note_salvage(store, lost, now=self._clock()))
        self._wake.set()

    async def record_loss(self) -> None:
        """Record that the database file was missing when the space was opened, although devices
        have used the space before.
        """
        await self._threads.maintain(lambda store: _note_breach(store, Breach(FILE_LOST, 1, self._clock())))
        await self._look_up()

    def look(self) -> None:
        """Start a check now, without waiting for the next scheduled one."""
        self._wake.set()

    def health(self) -> SpaceHealth:
        if self.failure is not None or any(breach.what in LOSSES for breach in self._open):
            state = "damaged"
        else:
            state = "healing" if self._open or self._damage.parts else "ok"
        return SpaceHealth(state, [(one.what, one.rows) for one in self._open], self._healed_breaches)

    def warnings(self) -> list[str]:
        """Return the warnings about damage and failed writes for the users of the space."""
        said = self._damage.warnings()
        if (refused := self._threads.write_error) is not None:
            said.append(f"nothing new can be stored in this space: {refused}")
        if self.failure is not None:
            said.append(f"the space cannot be kept in order: {self.failure}")
        for breach in self._open:
            if breach.what in LOSSES:
                said.append(
                    f"lost: {breach.rows} {breach.what}; devices that have the files send them again when they next compare "
                    "(confide sync), the rest has to come from a backup"
                )
            else:
                said.append(f"being put right: {breach.rows} {breach.what}")
        return said

    async def check(self, *, accept_losses: bool = False) -> Counter[str]:
        """Run a full check and repair now; return how many faults of each kind were found.

        `accept_losses`: True if an operator has seen the recorded losses, so that they are no
        longer reported.
        """
        async with self._lock:
            found = await self._examine(rest=0)
            await self._heal(found)
            found += await self._renew_vectors()
            if accept_losses:
                await self._threads.maintain(lambda store: _settle(store, ACCEPTED, self._clock()))
                await self._look_up()
            return found

    async def breaches_since(self, moment: float) -> Counter[str]:
        """Return the faults that any check has found since a time (seconds since 1970), with the
        largest number of rows found at once for each kind.
        """
        noted = await self._threads.examine(lambda store: store.breaches.list_breaches(limit=_SHOWN))
        return Counter({one.what: one.rows for one in noted if one.found_at >= moment})

    async def give_back(self) -> int:
        """Return free space in the file to the disk: merge the full-text table and cut off free
        pages. Return the number of bytes saved.
        """
        async with self._lock:
            return await self._give_back(merge=True)

    async def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            try:
                async with self._lock:
                    if self._threads.write_error is not None:
                        await self._threads.maintain(lambda store: _try_to_write(store, self._clock()))
                    await self._round()
                    await self._threads.rest()
                self.failure = None
            except StorageError as error:
                raise_if_cancelled()
                if self._closing:
                    return
                self.failure = error
                log.warning("the space could not be looked after: %s", error)
            except Exception as error:
                raise_if_cancelled()
                # After a bug the space must not be reported healthy without maintenance; the
                # exception's text may quote anything.
                self.failure = StorageError(f"its upkeep is broken ({type(error).__name__})")
                log.error("the upkeep of a space broke: %s", type(error).__name__)
            if not await self._is_woken_within(RETRY_S if self.failure or self._threads.write_error else LOOK_S):
                await self._is_woken_within(self._turns.next_s())

    async def _is_woken_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        return self._wake.is_set()

    async def _round(self) -> None:
        if self._damage.parts:
            self._is_due = True
        try:
            found = Counter(
                {one.what: one.rows for one in await self._threads.examine(lambda store: store.integrity.glance())}
            )
        except DamagedError:
            found = Counter({PAGES: 1})
        await self._heal(found)
        checked_at = await self._threads.examine(lambda store: store.marks.find(CHECKED_AT))
        if self._is_due or not 0 <= self._clock() - checked_at < DAY_S:
            is_first = checked_at == 0 and not self._is_due
            if not is_first:  # a new space has no data to check yet
                found = await self._examine(rest=0 if self._damage.parts else REST)
                if self._closing:
                    return
                await self._heal(found)
                await self._renew_vectors()
            await self._threads.maintain(lambda store: _set_mark(store, CHECKED_AT, self._clock()))
            self._is_due = False
            await self._threads.maintain(
                lambda store: salvage.forget_damaged(
                    store.path, store.marks.find(CLOCK_CONFIRMED) - DAMAGED_DAYS * DAY_S
                )
            )
            await self._give_back(merge=True)
        await self._give_back(merge=False)

    async def _examine(self, *, rest: int) -> Counter[str]:
        found: Counter[str] = Counter()
        slices: list[tuple[Store, Iterator[list[Breach]]]] = []

        def look(store: Store) -> list[Breach] | None:
            if not slices or slices[0][0] is not store:
                # Start again if the file was replaced, as after a change of the key, which closes
                # the former connection.
                slices[:] = [(store, store.integrity.examine())]
                found.clear()
            return next(slices[0][1], None)

        while not self._closing:
            started = time.monotonic()
            breaches = await self._threads.examine(look)
            if breaches is None:
                break
            for breach in breaches:
                found[breach.what] += breach.rows
            if rest:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout((time.monotonic() - started) * rest):
                        await self._ended.wait()
        return found

    @property
    def _closing(self) -> bool:
        return self._ended.is_set()

    async def _heal(self, found: Counter[str]) -> None:
        """Repair the breaches that were found, those left from before, and those that the repairs
        reveal.
        """
        noted = await self._threads.examine(
            lambda store: [one for one in store.breaches.list_breaches(limit=_SHOWN) if not one.healed_at]
        )
        todo = {*found, *(one.what for one in noted)}
        for _ in range(_ROUNDS):
            if not todo or self._closing:
                break
            if found:
                log.warning("found wrong: %s", ", ".join(f"{count} {what}" for what, count in sorted(found.items())))
            now = self._clock()
            await self._note([Breach(what, count, now) for what, count in found.items()])
            await self._look_up()
            for what in sorted(todo, key=lambda what: what != PAGES):
                await self._mend(what)
            # A rebuilt table shows only now that it lacks rows.
            found = Counter(
                {one.what: one.rows for one in await self._threads.examine(lambda store: store.integrity.glance())}
            )
            await self._settle(found)
            todo = {*found} - {*LOSSES}
        await self._look_up()

    async def _renew_vectors(self) -> Counter[str]:
        """Replace vectors of another model with the same name; they serve until the new ones are
        complete, as after any change of the model.
        """
        self._asking = asyncio.ensure_future(self._index.renew_foreign())
        try:
            foreign = await self._asking
        except asyncio.CancelledError:
            if not self._closing:
                raise
            foreign = 0
        if foreign:
            now = self._clock()
            log.warning("the embedding model is another one under the same name; its vectors are computed again")
            await self._note([Breach(VECTORS_FOREIGN, foreign, now, now)])
            await self._look_up()
        return Counter({VECTORS_FOREIGN: foreign} if foreign else {})

    async def _mend(self, what: str) -> None:
        if what == UNCUT:
            if await self._index.cut_again():
                self._index.on_repair(vectors_changed=False)
            return
        while not self._closing:
            try:
                count = await self._threads.maintain(lambda store: _mend(store, what))
            except DamagedError:
                raise_if_cancelled()
                await self._salvage()
                count = 1 if what != PAGES else 0
            if not count:
                return
            self._index.on_repair(vectors_changed=what == VECTOR_UNUSABLE)

    async def _salvage(self) -> None:
        def work(store: Store) -> int:
            if store.outbox is not None:
                store.outbox.discard()
                raise StorageError("the copy of the space is damaged: it is fetched again from its log")
            lost = store.replacement.copy_readable()
            self._threads.alone(store.replacement.swap_readable)
            return lost

        lost = await self._threads.maintain(work)
        self._damage.clear()
        await self._threads.maintain(lambda store: note_salvage(store, lost, now=self._clock()))
        log.warning("the database was rebuilt from what could be read of it; the damaged file is kept beside it")
        self._index.on_repair(vectors_changed=True)

    async def _settle(self, left: Counter[str]) -> None:
        """Record breaches that are no longer found as repaired; losses stay until an operator
        accepts them.
        """
        healed = [one.what for one in self._open if one.what not in left and one.what not in ACCEPTED]
        if healed:
            await self._threads.maintain(lambda store: _settle(store, healed, self._clock()))
        if not left:
            self._damage.clear()

    async def _note(self, breaches: Sequence[Breach]) -> None:
        if breaches:
            await self._threads.maintain(lambda store: _note(store, breaches))
            for breach in breaches:
                figures.BREACHES.labels(breach.what).inc(breach.rows)

    async def _look_up(self) -> None:
        found = await self._threads.examine(lambda store: store.breaches.list_breaches(limit=1000))
        self._open = [one for one in found if one.healed_at is None]
        self._healed_breaches = len(found) - len(self._open)

    async def _give_back(self, *, merge: bool) -> int:
        begin = True
        while merge and not self._closing:
            if not await self._threads.maintain(lambda store: store.free_space.merge_words(begin=begin)):  # noqa: B023
                break
            begin = False
            await asyncio.sleep(0)
        returned = 0
        while not self._closing and (count := await self._threads.maintain(lambda store: store.free_space.give_back())):
            returned += count
            await asyncio.sleep(0)
        is_quiet = time.monotonic() - self._threads.used_at >= QUIET_S
        is_old = is_quiet and await self._threads.maintain(lambda store: store.free_space.is_old())
        if is_old and self._disk.has_room_for("vacuum"):
            await self._threads.maintain(lambda store: store.free_space.compact())
            returned += 1
        if returned or self._is_unfolded:
            # A concurrent reader keeps the file at its length: then this is tried again, even if
            # nothing more was cut off.
            self._is_unfolded = not await self._threads.maintain(lambda store: store.free_space.fold_log())
        return returned


def _mend(store: Store, what: str) -> int:
    with store.writing_derived():
        return store.repair.fix(what, limit=MENDED)


def _note(store: Store, breaches: Sequence[Breach]) -> None:
    with store.writing_derived():
        for breach in breaches:
            store.breaches.note(breach)


def _note_breach(store: Store, breach: Breach) -> None:
    with store.writing():
        store.breaches.note(breach)


def _try_to_write(store: Store, now: float) -> None:
    """Try whether a write succeeds again after a failure, forced to the disk as devices' writes
    are. Raises StorageError.
    """
    with store.writing():
        store.marks.put(WRITTEN_AT, now)


def _settle(store: Store, what: Sequence[str], now: float) -> None:
    with store.writing_derived():
        store.breaches.settle(what, now=now)


def _set_mark(store: Store, name: str, value: float) -> None:
    with store.writing_derived():
        store.marks.put(name, value)
