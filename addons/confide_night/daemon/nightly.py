"""A nightly check of the memory, which reports in the morning what the user could clean up. It
changes no notes and uses no model.

Each space keeps one report, which the next one replaces. A space that is not open at that hour gets
no report.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from confide_crypto.errors import ConfideError
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.notes.deduplication import Deduplication
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space
from confide_daemon.store.space_store import Store

log = logging.getLogger(__name__)

HOUR: Final = 3
MINUTE: Final = 30
LATE_S: Final = 3 * 3_600
"""How late a missed check may still run, in seconds; after that, it waits for the next night to
keep load off the day.
"""
LONGEST_SLEEP_S: Final = 3_600.0
"""Longest wait before the clock is read again, since clocks can be set or jump."""
UNUSED_DAYS: Final = 180
NEAR: Final = 0.95
DAY_S: Final = 86_400
MOST_CLASHES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Findings:
    """The numbers that the nightly check has found. A number that could not be determined is
    `None`.
    """

    at: float  # seconds since 1970
    duplicates: int  # notes that say nearly the same as a newer one
    unused: int  # notes neither used nor changed for `UNUSED_DAYS`
    strays: int  # relations to missing notes
    clashes: int
    vectors: int  # chunks that wait for a vector, for example for the next month's budget
    unsealed: int | None = None  # credentials in plain text, as counted by a device
    is_proven: bool | None = None  # whether a tested backup is recent enough; None: no backup is configured

    def lines(self) -> list[str]:
        """Return a line for the user about each problem, with the command that solves it; an empty
        list without problems.
        """
        findings = [
            (self.unsealed, "credentials in clear", "confide secrets scan --stored"),
            (self.clashes, "clashes", "confide sync names them"),
            (self.duplicates, "notes nearly the same as newer ones", "memory_dedupe"),
            (self.unused, "notes neither used nor changed", f"for {UNUSED_DAYS} days"),
            (self.strays, "relations to deleted notes", "memory_get shows them"),
            (self.vectors, "chunks without vectors", "memory_status says why"),
        ]
        said = [f"{what}: {count} ({way})" for count, what, way in findings if count]
        said += ["no proven backup is young enough (confided doctor)"] if self.is_proven is False else []
        if not said:
            return []
        day = datetime.fromtimestamp(self.at).astimezone().strftime("%m-%d")
        return [f"The memory itself, {day}: {'; '.join(said)}."]


class Nightly(SpacePart):
    """Runs the nightly check of one open space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._threads = space.threads
        self._clock = space.clock
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to check every night, once the space has been opened."""
        self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop checking, before the space closes."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def newest(self) -> Findings | None:
        """Return the result of the last check; None before the first check."""
        text = await self._threads.read(lambda store: store.overview.findings())
        return Findings(**json.loads(text)) if text else None

    async def look(self) -> Findings:
        """Check the memory now, and store the result in place of the last one. Raises StorageError
        if it cannot be stored.
        """
        now = self._clock()

        def count(store: Store) -> tuple[int, int, int]:
            with store.reading():
                unused = store.overview.unused_since(now - UNUSED_DAYS * DAY_S)
                clashes = len(store.documents.clashing(None, limit=MOST_CLASHES))
                return unused, store.overview.stray_relations(), clashes

        unused, strays, clashes = await self._threads.examine(count)
        near = await Deduplication(self._threads, self._space.notes).find(None, NEAR, _ignore_progress)
        unsealed, is_proven = await asyncio.to_thread(self._space.around)
        duplicates = sum(len(merger.older) for merger in near.mergers)
        # The indexer's own count is as old as its last step.
        progress = await self._threads.read(self._space.index.progress)
        lacking = 0 if progress.complete else self._space.waiting
        found = Findings(now, duplicates, unused, strays, clashes, lacking, unsealed, is_proven)
        text = json.dumps(asdict(found))

        def keep(store: Store) -> None:
            with store.writing_derived():
                store.overview.keep_findings(now, text)

        await self._threads.maintain(keep)
        return found

    async def _run(self) -> None:
        while True:
            try:
                last = await self.newest()
                if is_due(self._clock(), last.at if last else 0.0):
                    await self.look()
            except ConfideError as error:
                raise_if_cancelled()
                log.warning("the memory could not be looked through: %s", type(error).__name__)
            except Exception as error:
                raise_if_cancelled()
                # A bug here must not end the space. Only the type is logged: the message may quote
                # notes.
                log.error("looking through the memory broke: %s", type(error).__name__)
            await asyncio.sleep(min(LONGEST_SLEEP_S, until_next(self._clock())))


async def _ignore_progress(_done: int, _total: int) -> None: ...


def _hour_of(now: float) -> datetime:
    """Return half past three of that day in the local time zone."""
    return datetime.fromtimestamp(now).astimezone().replace(hour=HOUR, minute=MINUTE, second=0, microsecond=0)


def is_due(now: float, last: float) -> bool:
    """Return True if today's check has not run yet and was due at most `LATE_S` seconds ago. `last`
    is the time of the last check.
    """
    begin = _hour_of(now).timestamp()
    return begin <= now < begin + LATE_S and not begin <= last <= now


def until_next(now: float) -> float:
    """Return the seconds until the next half past three; at least 1."""
    today = _hour_of(now)
    following = today if today.timestamp() > now else today + timedelta(days=1)
    return max(1.0, following.timestamp() - now)
