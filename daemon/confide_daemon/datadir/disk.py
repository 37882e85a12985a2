"""The room on the file system of the data folder: looked at in one place, and asked by all that can wait for it.

Documents do not ask: whatever is stored goes on until nothing is free, and is refused then. What was made of them, or can be made later,
keeps off the last room: vectors and new generations of them, rewriting of whole databases, nightly snapshots. Each goes on by itself when
there is room again, and until then it can be seen that it waits (docs/operating.md).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, get_args

from confide_crypto.errors import where
from confide_crypto.transport.task_group import raise_if_cancelled

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
LEAST_BYTES: Final = 1 << 30
LEAST_SHARE: Final = 0.05
MOST_BYTES: Final = 10 << 30
"""A twentieth of a large disk is more than anything here could need."""
MARGIN: Final = 1.05
"""So much more has to be free until there is room again: what goes on then must not end it at once."""


def least_free(total_bytes: int) -> int:
    """How many bytes of a disk of that size are to be free."""
    return max(LEAST_BYTES, min(MOST_BYTES, int(LEAST_SHARE * total_bytes)))


Postponed = Literal["generations", "snapshots", "vacuum", "vectors"]
POSTPONED: Final[tuple[Postponed, ...]] = get_args(Postponed)


class Disk:
    """One for each daemon. Where nobody has it look, there is room."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: set[Postponed] = set()
        self._listeners: set[Callable[[], None]] = set()
        self.is_low = False
        """Less is free than `least_free`, as last seen."""

    def look(self) -> None:
        """Waits for the disk."""
        try:
            usage = shutil.disk_usage(self._folder)
        except OSError:
            return  # as it was: whatever is wrong there has a word of its own
        was_low = self.is_low
        self.is_low = usage.free < least_free(usage.total) * (MARGIN if was_low else 1)
        if self.is_low and not was_low:
            log.warning("little room where the data folder is, %.0f MB: what can wait does", usage.free / 1e6)
        elif was_low and not self.is_low:
            log.info("there is room again where the data folder is, %.0f MB: what has waited goes on", usage.free / 1e6)

    async def watch(self) -> None:
        """Looks until it is cancelled, and tells those who listen when there is room again."""
        while True:
            try:
                await self._look_once()
            except Exception as error:
                raise_if_cancelled()
                # Whoever waits for room would wait for ever.
                log.error("looking at the disk broke: %s", where(error))
            await asyncio.sleep(LOOK_S)

    async def _look_once(self) -> None:
        was_low = self.is_low
        await asyncio.to_thread(self.look)
        if was_low and not self.is_low:
            self._waiting.clear()
            for listener in tuple(self._listeners):
                listener()

    def has_room_for(self, what: Postponed) -> bool:
        """Whether it may be written now. Where not, it is noted that it waits; ask again. From any thread."""
        if self.is_low:
            self._waiting.add(what)
        return not self.is_low

    @property
    def waiting(self) -> list[Postponed]:
        """What has asked and waits, by name."""
        return sorted(self._waiting.copy()) if self.is_low else []

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls it, on the event loop, whenever there is room again."""
        self._listeners.add(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Calls it no longer."""
        self._listeners.discard(listener)
