"""One streamer per folder: of all processes of this machine, the one that holds a folder's seat watches it, compares it, and hears of
what other machines changed.

The others answer for their own tool calls only, and try for the seat: when its holder ends, however it ends, one of them takes over
and begins with a comparison. A process whose link is down holds no seat, so that one whose link is up may have it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_memory.answers import ask
from confide_proxy.link.link import ATTACH_DEADLINE_S, Link
from confide_proxy.locks import SEAT_AGAIN_S, Seat
from confide_proxy.sealing.context import Sealing
from confide_proxy.sync.absence.rule import HOLD_S
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.workspace import Files

log = logging.getLogger(__name__)

DOUBT_S = 5.0
"""After a step that failed (a busy daemon, a full disk) everything is compared again, so much later."""
LONGEST_DOUBT_S = 300.0
ABSENT_S = 2.0
"""A project folder that is not there (an unmounted disk) is looked for this often."""

PULSE_S = 1.5
SILENT_S = 5.0
"""A holder that has shown no life for so long is frozen."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Streamer:
    """Streams the folders of one link. `bodies` are its attach requests, by project: what it sends at its next connection."""

    def __init__(
        self,
        seats: Path,
        files: Files,
        sealing: Sealing,
        link: Link,
        bodies: dict[str, dict[str, Any]],
        *,
        debounce_s: float,
    ) -> None:
        self._seats = seats
        self._files = files
        self._sealing = sealing
        self._link = link
        self._bodies = bodies
        self._debounce_s = debounce_s
        self._tasks: list[asyncio.Task[None]] = []
        self._held: set[str] = set()

    async def on_up(self, attached: dict[str, Any], spawn: Spawn) -> None:
        """The link is attached: have the keys of its space, then its files; `spawn` starts a task that the caller owns."""
        space = str(attached["space"])
        await self._sealing.open(self._link, attached)
        await self._files.open(self._link, space)
        self.on_down()
        self._tasks = [spawn(self._stream(folder, space)) for folder in self._files.folders]

    def on_down(self) -> None:
        """The link is down: nothing can be streamed from here."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def on_renewed(self, attached: dict[str, Any], spawn: Spawn) -> None:
        """The daemon's new session does not know yet what this machine holds: compare what is streamed from here."""
        spawn(self.look_again(attached))
        for project in self._held:
            self._tasks.append(spawn(self._begin_anew(project)))

    async def look_again(self, attached: dict[str, Any] | None = None) -> None:
        """Have the news of the space's devices, and send what would be sealed otherwise since."""
        await self._sealing.look_again(self._link, attached)
        await logged(self._files.reseal(), "sealing files anew")

    async def _stream(self, folder: Folder, space: str) -> None:
        seat = Seat(self._seats, f"{space}\0{folder.root}")
        pulse: asyncio.Task[None] | None = None
        try:
            await _wait_for(seat)
            pulse = asyncio.create_task(_pulse(seat))
            self._held.add(folder.project)
            while True:
                while not folder.root.is_dir():  # noqa: ASYNC110 - what is not there cannot be watched
                    await asyncio.sleep(ABSENT_S)
                await self._watch(folder)
        finally:
            self._held.discard(folder.project)
            self._bodies[folder.project]["watches"] = False
            if pulse is not None:
                pulse.cancel()
            seat.leave()

    async def _watch(self, folder: Folder) -> None:
        """Watch for as long as the folder is there."""
        # Imported late: the agent has its first answers before the file system is looked at, and who has no seat never needs it.
        from confide_proxy.sync.watcher import Watcher

        watcher = Watcher(folder, debounce_s=self._debounce_s)
        doubt_s = DOUBT_S
        try:
            # Watched before it is compared, and announced to before it is compared: nothing falls between.
            await asyncio.to_thread(watcher.start)
            is_done = await logged(self._begin(folder.project), "the comparison of files")
            while folder.root.is_dir() and not await asyncio.to_thread(watcher.is_stale):
                if is_done:
                    doubt_s = DOUBT_S
                else:
                    watcher.doubt(doubt_s)
                    doubt_s = min(doubt_s * 2, LONGEST_DOUBT_S)
                if self._files.is_held(folder.project):
                    watcher.doubt(HOLD_S)
                paths = await watcher.changes()
                is_done = await logged(self._files.changed(folder.project, paths), "sending a change")
            await logged(self._files.on_gone(folder.project), "taking deletions back")
        finally:
            await asyncio.to_thread(watcher.stop)

    async def _begin(self, project: str) -> None:
        body = self._bodies[project]
        body["watches"] = True
        await ask(self._link, "attach", body, timeout_s=ATTACH_DEADLINE_S)
        await self._files.changed(project, None)

    async def _begin_anew(self, project: str) -> None:
        await logged(self._begin(project), "the comparison of files")


async def _wait_for(seat: Seat) -> None:
    """Until the seat is ours, or its holder is frozen: a client that a person has stopped (Ctrl-Z) stops its server with it."""
    looks = 0
    while not _taken(seat):
        # Seen twice, since a holder that has just sat down shows its first life a moment later. Two streamers are wasteful, not wrong.
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


def _taken(seat: Seat) -> bool:
    try:
        return seat.try_take()
    except OSError as error:
        # A state folder that cannot be written to: two streamers of one folder are wasteful, none would be a loss.
        log.warning("cannot tell whether another session watches this folder: %s", error.strerror)
        return True


async def logged(work: Coroutine[Any, Any, Any], what: str) -> bool:
    """Do what no caller waits for; False if it failed, which is logged. The next event, connection or comparison tries again."""
    try:
        await work
    except ConnectionLost:
        log.debug("%s stopped: the link is down", what)
    except (ConfideError, TimeoutError, OSError) as error:
        log.warning("%s failed: %s", what, error if isinstance(error, ConfideError) else type(error).__name__)
        return False
    except (KeyError, TypeError, ValueError, AttributeError):
        log.warning("%s failed: the daemon's answer is not of the agreed form", what)
        return False
    return True
