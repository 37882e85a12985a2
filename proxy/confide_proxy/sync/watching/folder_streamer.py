"""Synchronize folders while a session runs. Among all processes of this device, only one watches a
folder, compares it, and receives the changes of other devices: the one that holds the folder's lock
file, called its seat.

The other processes only answer their own tool calls, and try to take the lock. When its holder
ends, in whatever way, one of them takes over and starts with a comparison. A process whose link is
down gives up the lock to one whose link is up. It keeps its watcher meanwhile, since the system may
have no other one left when the link is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_memory.wire.session import ATTACH, Attached, AttachRequest
from confide_proxy.link.daemon_link import ATTACH_DEADLINE_S, Link
from confide_proxy.link.services import ServiceRunner
from confide_proxy.locks import SEAT_AGAIN_S, Seat
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.absence.rule import HOLD_S
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.workspace import Files

if TYPE_CHECKING:
    from confide_proxy.sync.watching.watcher import Watcher

log = logging.getLogger(__name__)

DOUBT_S = 5.0
"""Delay in seconds before everything is compared again after a failed step (a busy daemon, a full
disk); it doubles up to `LONGEST_DOUBT_S`.
"""
LONGEST_DOUBT_S = 300.0
ABSENT_S = 2.0
"""Interval in seconds at which a missing project folder (an unmounted disk) is checked."""
FORMER_S: Final = 10.0
"""Seconds that the work of a broken connection has to end before that of the next one starts
anyway.
"""
EVENTS_AGAIN_S: Final = 300.0
"""Interval in seconds at which a polled folder tries to get file events again."""

PULSE_S = 1.5
SILENT_S = 5.0
"""Seconds without a sign of life after which the holder of a seat counts as frozen."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(eq=False, slots=True)
class _Turn:
    """The sync of one folder over one connection.

    Attributes:
        tasks: all tasks that run for it.
        is_over: the connection is closed.
        is_compared: folder and daemon were compared over this connection, and the daemon knows that
            this process watches.
        comparing: held while folder and daemon are compared.
        asked: how many comparisons were asked for.
        answered: how many of them are done: one answers all that were asked for before it began.
    """

    folder: Folder
    seat: Seat
    former: asyncio.Task[None] | None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    watcher: Watcher | None = None
    is_over: bool = False
    is_compared: bool = False
    comparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: int = 0
    answered: int = 0

    @property
    def project(self) -> str:
        return self.folder.project

    def end(self) -> None:
        """Cancel the tasks and give up the seat at once, since a task may take time to end."""
        self.is_over = True
        for task in self.tasks:
            task.cancel()
        self.seat.leave()


class Streamer:
    """Synchronizes all folders of one link. `bodies` are the attach requests by project, which the
    link sends at its next connection.
    """

    def __init__(
        self,
        seats: Path,
        files: Files,
        sealing: SessionSealing,
        link: Link,
        bodies: dict[str, AttachRequest],
        services: ServiceRunner,
        *,
        debounce_s: float,
    ) -> None:
        self._seats = seats
        self._files = files
        self._sealing = sealing
        self._link = link
        self._bodies = bodies
        self._services = services
        self._debounce_s = debounce_s
        self._turns: dict[str, _Turn] = {}
        self._watchers: dict[str, Watcher] = {}

    async def on_up(self, attached: Attached, spawn: Spawn) -> None:
        """Load the keys of the space, then start to synchronize its folders. `spawn` starts a task
        that the caller owns.
        """
        space = str(attached["space"])
        await self._sealing.open(self._link, attached)
        await self._files.begin(self._link, space)
        self.on_down()
        for folder in self._files.folders:
            with suppress(
                ConfideError, OSError
            ):  # the link stays up; the folder's stream reports the error and tries again
                await self._files.open_folder(folder)
            former = self._turns.get(folder.project)
            seat = Seat(self._seats, f"{space}\0{folder.root}")
            turn = _Turn(folder, seat, former.tasks[0] if former else None)
            self._turns[folder.project] = turn
            self._note_uncompared(turn)
            turn.tasks.append(spawn(self._services.keep(f"the sync of {folder.project}", partial(self._stream, turn))))

    def on_down(self) -> None:
        """Stop synchronizing all folders, since the link is down."""
        for turn in self._turns.values():
            turn.end()
            self._services.well(_comparison(turn))

    def on_renewed(self, attached: Attached, spawn: Spawn) -> None:
        """Compare the folders of this process again, since the daemon has started a new session and
        does not know yet which files this device has.
        """
        spawn(self.look_again(attached))
        for turn in self._turns.values():
            if turn.watcher is not None and not turn.is_over:
                turn.tasks[1:] = (task for task in turn.tasks[1:] if not task.done())
                turn.tasks.append(spawn(self._begin_again(turn)))

    async def look_again(self, attached: Attached | None = None) -> None:
        """Fetch changes of the space's devices and keys, and send again the files that would be
        sealed in another way now.
        """
        await self._sealing.look_again(self._link, attached)
        await run_logged(self._files.reseal(), "sealing files again")

    async def _stream(self, turn: _Turn) -> None:
        pulse: asyncio.Task[None] | None = None
        try:
            if turn.former is not None:
                await asyncio.wait([turn.former], timeout=FORMER_S)
            if not self._files.has_open(turn.project):
                await self._files.open_folder(turn.folder)
            if not _try_take(turn.seat):
                self._services.well(_comparison(turn))  # the process that has the seat compares
                if (kept := self._watchers.pop(turn.project, None)) is not None:
                    await asyncio.to_thread(kept.stop)  # another process watches now
                await _wait_for(turn.seat)
            pulse = asyncio.create_task(_pulse(turn.seat))
            turn.tasks.append(pulse)
            while not turn.is_over:
                while not turn.folder.root.is_dir():  # what is not there cannot be watched
                    self._services.well(_comparison(turn))
                    await asyncio.sleep(ABSENT_S)
                await self._watch(turn)
        finally:
            if self._turns.get(turn.project) is turn:
                self._bodies[turn.project]["watches"] = False
            if pulse is not None:
                pulse.cancel()
                turn.tasks = [task for task in turn.tasks if task is not pulse]
            turn.seat.leave()

    async def _watch(self, turn: _Turn) -> None:
        """Watch and sync the folder until it is missing or replaced, or the connection closes."""
        self._note_uncompared(turn)  # the other process that had the seat, or an absent folder, took it back
        watcher = turn.watcher = await self._watcher(turn)
        doubt_s, began = DOUBT_S, time.monotonic()
        try:
            # Watching and the announcement to the daemon start before the comparison, so that no
            # change in between is lost.
            is_done = await self._began(turn)
            while turn.folder.root.is_dir() and not await asyncio.to_thread(watcher.is_stale):
                if turn.is_over:
                    return
                self._note_events(turn, watcher.problem)
                if is_done:
                    doubt_s = DOUBT_S
                else:
                    watcher.doubt(doubt_s)
                    doubt_s = min(doubt_s * 2, LONGEST_DOUBT_S)
                if self._files.is_held(turn.project):
                    watcher.doubt(HOLD_S)
                paths = await watcher.changes()
                if turn.is_compared or paths:
                    is_done = await run_logged(self._files.send_changes(turn.project, paths), "sending a change")
                if not turn.is_compared:
                    is_done = await self._began(turn)
                if not watcher.has_events and time.monotonic() - began > EVENTS_AGAIN_S:
                    return
            await run_logged(self._files.on_gone(turn.project), "taking deletions back")
        finally:
            turn.watcher = None
            if turn.is_over and watcher.has_events:
                self._watchers[turn.project] = watcher
            else:
                await asyncio.to_thread(watcher.stop)

    async def _watcher(self, turn: _Turn) -> Watcher:
        """Return a watcher of the folder: the previous connection's if it still watches the same
        folder, or else a new one.
        """
        # Imported late: the agent gets its first answers before that, and a process without a seat
        # never needs it.
        from confide_proxy.sync.watching.watcher import Watcher

        kept = self._watchers.pop(turn.project, None)
        if kept is not None:
            if kept.has_events and kept.fits(turn.folder) and not await asyncio.to_thread(kept.is_stale):
                return kept
            await asyncio.to_thread(kept.stop)
        watcher = Watcher(turn.folder, debounce_s=self._debounce_s)
        await asyncio.to_thread(watcher.start)
        return watcher

    def _note_events(self, turn: _Turn, problem: str) -> None:
        name = f"events of {turn.project}"
        if problem:
            from confide_proxy.sync.watching.watcher import POLL_S

            what = f"no file events for a memory folder ({problem}); looking every {POLL_S:.0f} s"
            self._services.note(name, what, project=turn.project)
        else:
            self._services.well(name)

    async def _began(self, turn: _Turn) -> bool:
        """Attach and compare over this connection; return True on success. Until then, status shows
        the comparison as pending.
        """
        self._note_uncompared(turn)
        await run_logged(self._begin(turn), "the comparison of files")
        return turn.is_compared

    def _note_uncompared(self, turn: _Turn) -> None:
        turn.is_compared = False
        what = f"the files of {turn.project} here are not compared yet over this connection: changes of others may be missing"
        self._services.note(_comparison(turn), what, project=turn.project, is_logged=False)

    async def _begin(self, turn: _Turn) -> None:
        body = self._bodies[turn.project]
        body["watches"] = True
        await ATTACH.ask(self._link, body, timeout_s=ATTACH_DEADLINE_S)
        await self._compare(turn)
        if turn.answered == turn.asked:
            turn.is_compared = True
            self._services.well(_comparison(turn))

    async def _compare(self, turn: _Turn) -> None:
        """Compare the folder with the daemon once more, after a comparison that is under way. Calls
        that wait for the same one share it: a link that moves again and again, on a busy machine,
        would otherwise ask for more than get done.
        """
        turn.asked += 1
        own = turn.asked
        async with turn.comparing:
            if turn.answered < own:
                upto = turn.asked
                await self._files.send_changes(turn.project, None)
                turn.answered = upto

    async def _begin_again(self, turn: _Turn) -> None:
        if not await self._began(turn) and turn.watcher is not None:
            turn.watcher.doubt(DOUBT_S)


def _comparison(turn: _Turn) -> str:
    return f"comparison of {turn.project}"


async def _wait_for(seat: Seat) -> None:
    """Wait until this process has the seat, or its holder is frozen: a user who stops a client
    (Ctrl-Z) stops its server with it.
    """
    looks = 0
    while not _try_take(seat):
        # Checked twice, since a new holder shows its first sign of life a moment later. Two
        # streamers of one folder waste work, but do no harm.
        looks = looks + 1 if seat.silent_s() > SILENT_S else 0
        if looks > 1:
            log.info("the session that watches this folder is frozen; watching it as well")
            return
        await asyncio.sleep(SEAT_AGAIN_S)


async def _pulse(seat: Seat) -> None:
    while True:
        with suppress(OSError):
            if seat.try_take():
                seat.show_life()
        await asyncio.sleep(PULSE_S)


def _try_take(seat: Seat) -> bool:
    try:
        return seat.try_take()
    except OSError as error:
        # The state folder is not writable: two streamers of one folder waste work, but without any,
        # changes would be lost.
        log.warning("it is not known whether another session watches this folder: %s", error.strerror)
        return True


async def run_logged(work: Coroutine[Any, Any, Any], what: str) -> bool:
    """Wait for background work to end; if it fails, log a warning and return False. The next event,
    connection or comparison tries again.
    """
    try:
        await work
    except ConnectionLost:
        raise_if_cancelled()
        log.debug("%s stopped: the link is down", what)
    except (ConfideError, TimeoutError, OSError) as error:
        raise_if_cancelled()
        log.warning("%s failed: %s", what, error if isinstance(error, ConfideError) else type(error).__name__)
        return False
    except (KeyError, TypeError, ValueError, AttributeError):
        raise_if_cancelled()
        log.warning("%s failed: the daemon's answer is not of the agreed form", what)
        return False
    return True
