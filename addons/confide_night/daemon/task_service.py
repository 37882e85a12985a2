"""The tasks of one open space: asynchronous access to them, and a loop that updates them when
something becomes due.

Correctness does not depend on timers. After a sleep or a jump of the clock, the next pass of the
loop finds what has become due.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from confide_crypto.sealing.roster import Roster
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.errors import StorageError
from confide_daemon.notes.note_edit import Draft
from confide_daemon.notes.note_service import StoredNote
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space
from confide_daemon.store.space_store import Store
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import text_hash
from confide_memory.errors import NotFoundError
from confide_night.daemon import claims, moving
from confide_night.daemon.claims import Ending, Runner, SlotId, SlotLease
from confide_night.daemon.slot_states import order_in
from confide_night.daemon.task_queue import SlotRow, TaskRow, queue
from confide_night.order.order import Slot
from confide_night.order.wire import MOST_WAIT_S, MovedTasks, MoveTasksPage

log = logging.getLogger(__name__)

T = TypeVar("T")

DAY_S: Final = 86_400
KEPT_DAYS: Final = 400
"""Days for which ended slots and tasks are kept."""
LOGS_DAYS: Final = 30
LONGEST_SLEEP_S: Final = 60.0
"""Longest wait between two passes while anything is pending, so that a clock that jumps ahead is
noticed by then.
"""
RETRY_S: Final = 60.0
TIDIED_AT: Final = "tasks_tidied_at"


class Tasks(SpacePart):
    """Access to the tasks of one space. `start` starts the loop that follows the clock, `close`
    ends it.
    """

    def __init__(self, space: Space, *, monthly: int) -> None:
        """Args:
        monthly: the monthly budget of all runners together, in millionths of a dollar.
        """
        self._threads = space.threads
        self._notes = space.notes
        self._roster = space.roster  # may be slow
        self._clock = space.clock
        self._monthly = monthly
        self._draw = random.SystemRandom()  # for the delay of retries
        self._followers: list[Callable[[], None]] = []
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()

    # Time

    def start(self) -> None:
        """Start the loop, once the space has been opened."""
        self._looking = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop the loop, before the space closes."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def wake(self) -> None:
        """Run the next pass of the loop at once, because a slot may be due or the roster has
        changed.
        """
        self._wake.set()

    @contextlib.contextmanager
    def following(self, follow: Callable[[], None]) -> Iterator[None]:
        """Call `follow` within the context whenever a slot may be ready for a runner, or a run is
        to be killed.
        """
        self._followers.append(follow)
        try:
            yield
        finally:
            self._followers.remove(follow)

    async def look(self) -> float | None:
        """Update all tasks for which something has become due. Return the seconds until the next
        pass, or None if nothing is planned.
        """
        roster = await asyncio.to_thread(self._roster)

        def work(store: Store) -> float | None:
            now = self._clock()
            if claims.is_idle(store):
                return None
            with store.writing():
                if moving.rests(store):
                    return None
                claims.look(store, roster, now=now, draw=self._draw)
            moment = queue(store).slots.next_moment(now)
            return max(0.0, min(LONGEST_SLEEP_S, (moment or now + LONGEST_SLEEP_S) - now))

        return await self._threads.maintain(work)

    async def begin(self) -> None:
        """Extend every lease by one lease length at the start of the daemon, since no runner could
        renew while it was down.
        """

        def work(store: Store) -> None:
            if queue(store).slots.list_held():
                with store.writing():
                    if not moving.rests(store):
                        claims.lengthen_leases(store, now=self._clock())

        await self._threads.maintain(work)

    async def _run(self) -> None:
        has_begun = False
        while True:
            self._wake.clear()
            wait_s: float | None = RETRY_S
            try:
                if not has_begun:
                    await self.begin()
                    has_begun = True
                wait_s = await self.look()
                await self._tidy()
            except StorageError as error:
                raise_if_cancelled()
                log.warning("tasks could not be looked after: %s", error)
            except Exception as error:
                raise_if_cancelled()
                # A bug must not end the loop. Only the type is logged: the message may quote
                # orders.
                log.error("looking after tasks broke: %s", type(error).__name__)
            self._looked.set()
            self._tell()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    def _tell(self) -> None:
        for follow in self._followers:
            follow()

    async def _tidy(self) -> None:
        def work(store: Store) -> None:
            now = self._clock()
            if 0 <= now - store.marks.find(TIDIED_AT) < DAY_S:
                return
            with store.writing():
                store.marks.put(TIDIED_AT, now)
                confirmed = store.marks.confirm_clock(now)
                queue(store).logs.forget(confirmed - LOGS_DAYS * DAY_S)
                queue(store).slots.forget(confirmed - KEPT_DAYS * DAY_S)
                queue(store).tasks.forget(confirmed - KEPT_DAYS * DAY_S)

        await self._threads.maintain(work)

    async def change(
        self, work: Callable[[Store, Roster | None, float], T], *, has_news: bool = True, devices: bool = True
    ) -> T:
        """Run `work` in one transaction, with the store, the roster and the time. The roster is
        None unless `devices`. With `has_news`, wake the loop afterwards, since a slot may be ready
        or to be killed.

        Raises what `work` raises; RequestError if the tasks have moved or are still arriving
        (`moving.rests`); StorageError if the disk fails.
        """
        roster = await asyncio.to_thread(self._roster) if devices else None

        def run(store: Store) -> T:
            with store.writing():
                moving.require_here(store)
                return work(store, roster, self._clock())

        done = await self._threads.write(run)
        if has_news:
            self.wake()
        return done

    async def _say(self, work: Callable[[Store, float], T], *, has_news: bool = True) -> T:
        return await self.change(lambda store, _roster, now: work(store, now), has_news=has_news, devices=False)

    # Requests of runners

    async def claim(self, runner: Runner) -> tuple[SlotLease | None, int]:
        """Give a slot to a runner, if one is ready. Return the lease or None, and the seconds to
        wait before the next request. Raises StorageError if the disk fails.
        """
        await self._looked.wait()

        def work(store: Store, roster: Roster | None, now: float) -> tuple[SlotLease | None, int]:
            if roster is None:
                return None, MOST_WAIT_S
            lease = claims.claim(store, runner, roster, monthly=self._monthly, now=now, draw=self._draw)
            moment = queue(store).slots.next_moment(now)
            return lease, MOST_WAIT_S if moment is None else int(min(MOST_WAIT_S, max(1.0, moment - now)))

        # This wakes the loop: the new lease has an end that it does not wait for yet.
        return await self.change(work)

    async def take_over(self, earlier: Collection[str], runner: str) -> None:
        """Give the slots that a runner's device holds under `earlier` keys to its new key. Raises
        StorageError if the disk fails.
        """
        if await self._threads.read(lambda store: any(one.runner in earlier for one in queue(store).slots.list_held())):
            await self._say(lambda store, _now: claims.take_over(store, earlier, runner))

    async def record_start(self, name: SlotId, runner: str, *, is_repeatable: bool) -> None:
        """Mark a leased slot as running. Raises RequestError or NotFoundError if it may not start;
        StorageError if the disk fails.
        """
        await self._say(lambda store, now: claims.begin(store, name, runner, is_repeatable=is_repeatable, now=now))

    async def renew(self, name: SlotId, runner: str) -> bool:
        """Renew a lease; return True if the run is to be killed. Raises RequestError or
        NotFoundError if the slot does not belong to the runner; StorageError if the disk fails.
        """
        return await self._say(lambda store, now: claims.renew(store, name, runner, now=now), has_news=False)

    async def record_end(
        self, name: SlotId, runner: str, ending: Ending, text: str, *, author: str
    ) -> tuple[SlotRow, str, StoredNote | None]:
        """Record the outcome of a run, and store its text as a note. Return the slot, the project
        of its task, and the note, or None if none was stored.

        Raises RequestError or NotFoundError if the slot does not belong to the runner; StorageError
        if the disk fails.
        """
        slot, was_known = await self._say(
            lambda store, now: claims.end(store, name, runner, ending, now=now, draw=self._draw)
        )
        task = await self.task(name.task)
        counts = slot.state in (Slot.SUCCEEDED, Slot.FAILED)
        if not text or not counts or (was_known and slot.note is not None):
            return slot, task.project, None
        stored = await self._notes.store(
            _draft(task, slot, text, self._clock()),
            project=task.project,
            author=author,
            operation=_operation(slot, text),
            by=UNTRUSTED,
        )

        def note(store: Store, _now: float) -> SlotRow:
            found = replace(queue(store).slots.find(slot.task, slot.at) or slot, note=stored.row.path)
            queue(store).slots.write(found)
            return found

        return await self._say(note), task.project, stored

    async def log(self, name: SlotId, runner: str, part: int, record: bytes) -> None:
        """Store a part of a run's log. Raises RequestError or NotFoundError if the slot does not
        belong to the runner; SpaceFullError if the space has no room; StorageError if the disk
        fails.
        """

        def work(store: Store, now: float) -> None:
            claims.may_log(store, name, runner)
            queue(store).logs.put(name.task, name.at, part, record, now=now)

        await self._say(work, has_news=False)

    async def to_kill(self, runner: str) -> list[SlotRow]:
        """List the slots held by a runner that are to be killed."""
        found = await self._threads.read(lambda store: queue(store).slots.list_held())
        return [one for one in found if one.runner == runner and one.to_cancel is not None]

    async def is_ready(self) -> bool:
        """Return True if a slot is due that a runner could start."""
        now = self._clock()
        found = await self._threads.read(lambda store: queue(store).slots.list_due(due=int(now)))
        return any(one.state is Slot.READY and one.next_try_at <= now for one in found)

    # Requests of users and agents

    async def task(self, identity: str) -> TaskRow:
        """Return a task by its full id. Raises NotFoundError if there is none."""
        found = await self.read(lambda store: queue(store).tasks.find(identity))
        if found is None:
            raise NotFoundError("there is no task of that id")
        return found

    async def read(self, work: Callable[[Store], T]) -> T:
        """Run `work`, which reads from one consistent snapshot, and return its result."""

        def run(store: Store) -> T:
            with store.reading():
                moving.require_here(store)
                return work(store)

        return await self._threads.read(run)

    # A move of the space

    async def items_to_move(self) -> Mapping[str, int]:
        """Return the number of tasks that would be moved to another daemon, ended ones included."""
        return {"tasks": await self._threads.read(lambda store: queue(store).tasks.count())}

    async def leaving(self, after: str) -> MoveTasksPage:
        """Return one page of tasks for the new daemon; `after` is the position that the previous
        page returned, "" for the first.

        Raises RequestError if the space has not moved yet, or the position is invalid; StorageError
        if the disk fails.
        """

        def run(store: Store) -> MoveTasksPage:
            with store.reading():
                return moving.page(store, after)

        return await self._threads.read(run)

    async def arrive(self, page: MovedTasks, *, is_last: bool, are_given_up: bool) -> None:
        """Store a page of moved tasks in one transaction. After the last page the tasks can start,
        or are cancelled if `are_given_up`.

        Raises RequestError if no tasks are expected, or a slot or log comes before its task;
        OrderError if an order is damaged; SpaceFullError if the space has no room; StorageError if
        the disk fails.
        """

        def run(store: Store) -> None:
            with store.writing():
                moving.take(store, page)
                if are_given_up:
                    moving.give_up(store, now=self._clock())
                elif is_last:
                    moving.settle(store, now=self._clock())

        await self._threads.write(run)
        self.wake()

    async def roster(self) -> Roster | None:
        """Return the space's current list of devices; None if unknown."""
        return await asyncio.to_thread(self._roster)

    def now(self) -> float:
        """Return the time of the daemon's clock, in seconds since 1970."""
        return self._clock()


def _draft(task: TaskRow, slot: SlotRow, text: str, now: float) -> Draft:
    order = order_in(task)
    heading = order.description.strip().splitlines()[0][:80] if order.description.strip() else "task"
    return Draft(
        text,
        float(int(now)),
        title=f"Result of: {heading}",
        task_id=task.id,
        source="task",
        metadata={"task": task.id, "at": slot.at, "state": str(slot.state), "trust": "unreviewed"},
    )


def _operation(slot: SlotRow, text: str) -> RepeatableChange:
    identity = text_hash(f"task {slot.task} {slot.at} {slot.fence}")[:32]
    return RepeatableChange(identity, text_hash(text))
