"""Measures the free space on the disk of the data folder, for all work that can wait when the disk
is nearly full.

Writing a document does not check it: documents are stored until the disk is full, and refused then.
Data that can be derived again or written later is not written to the last part of the disk:
vectors, rewriting of whole databases, nightly snapshots. Each of these continues by itself when
there is free space again. Until then the status shows that it waits (docs/operating.md).
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
"""Upper limit of the reserve: a twentieth of a large disk would be more than Confide could need."""
MARGIN: Final = 1.05
"""Factor on the reserve until the disk counts as free again: work that resumes must not fill it at
once.
"""


def least_free(total_bytes: int) -> int:
    """Return how many bytes to keep free on a disk of that size."""
    return max(LEAST_BYTES, min(MOST_BYTES, int(LEAST_SHARE * total_bytes)))


Postponed = Literal["generations", "snapshots", "vacuum", "vectors"]
POSTPONED: Final[tuple[Postponed, ...]] = get_args(Postponed)


class Disk:
    """The free space of the daemon's disk. Until `look` has measured it, the space counts as
    sufficient.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: set[Postponed] = set()
        self._listeners: set[Callable[[], None]] = set()
        self.is_low = False
        """True if less than `least_free` was free at the last check."""

    def look(self) -> None:
        """Measure the free space. Blocks until the operating system responds."""
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
        """Measure the free space repeatedly until cancelled. Call the listeners when there is
        enough again.
        """
        while True:
            try:
                await self._look_once()
            except Exception as error:
                raise_if_cancelled()
                # Work that waits for free space would wait for ever.
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
        """Return True if this kind of data may be written now. Otherwise record that it waits, and
        return False; the caller checks again later. May be called from any thread.
        """
        if self.is_low:
            self._waiting.add(what)
        return not self.is_low

    @property
    def waiting(self) -> list[Postponed]:
        """The kinds of data that were refused and wait for free space, sorted by name."""
        return sorted(self._waiting.copy()) if self.is_low else []

    def listen(self, listener: Callable[[], None]) -> None:
        """Register a listener, which is called on the event loop whenever there is enough free
        space again.
        """
        self._listeners.add(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Remove a listener that `listen` has registered."""
        self._listeners.discard(listener)
