"""Limits the number of open spaces: above the limit, the space that was unused for longest is
closed first.

An open space needs threads, file descriptors and memory; a closed one needs only a file. The pool
decides which spaces may be closed, and closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from confide_daemon.errors import CrowdedError

CLOSE_AFTER_S: Final = 900.0
MOST_OPEN: Final = 256
SPARE: Final = 8
"""Spaces above the limit that may be open while others are being closed, so that opening one does
not wait for that.
"""
WAIT_S: Final = 30.0
LOOK_AGAIN_S: Final = 30.0
"""Time until busy spaces, due for closing, are checked again."""


class Closable(Protocol):
    """The interface of the pool that OpenSpaceLimit uses to close spaces."""

    async def close_unused(self, space_id: str) -> None:
        """Close a space, unless an operation has begun to use it meanwhile."""

    def may_close(self, space_id: str) -> bool:
        """Return True if the space is not in use and its key is not being changed."""

    def is_at_rest(self, space_id: str) -> bool:
        """Return True if the space has nothing left to index. Such spaces are closed first; if more
        room is needed, others are closed too.
        """


class OpenSpaceLimit:
    """Tracks open spaces and their last use, and closes unused ones. Use it on the event loop."""

    def __init__(self, spaces: Closable, most: int, close_after_s: float) -> None:
        """Set the limits.

        `most`: open spaces at once; `close_after_s`: time without use after which a space is
        closed.
        """
        self._spaces = spaces
        self._most = most
        self._close_after_s = close_after_s
        self._open: OrderedDict[str, float] = OrderedDict()
        """Last use of each space, by the loop's clock; the longest unused first."""
        self._closing: set[asyncio.Task[None]] = set()
        self._leaving: set[str] = set()
        self._freed = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of spaces that are open or being opened."""
        return len(self._open)

    async def enter(self, space_id: str) -> None:
        """Reserve room for a space before it is opened. Raises CrowdedError if no other space can
        be closed within half a minute.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while not self._has_room():
                    self._freed.clear()
                    await self._freed.wait()
        if len(self._open) >= self._most + SPARE and space_id not in self._open:
            raise CrowdedError(len(self._open))
        self._open[space_id] = 0.0
        self.mark_used(space_id)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="confide-close-idle")

    def mark_used(self, space_id: str) -> None:
        """Record that the space is used now. A space that is not open is ignored."""
        if space_id not in self._open:
            return
        self._open[space_id] = asyncio.get_running_loop().time()
        self._open.move_to_end(space_id)
        self._freed.set()  # a waiting `enter` may close it now

    def mark_closed(self, space_id: str) -> None:
        """Record that the space was closed, or could not be opened, which frees its room."""
        self._open.pop(space_id, None)
        self._freed.set()

    async def close(self) -> None:
        """Stop closing idle spaces; wait for closings under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _has_room(self) -> bool:
        """Return True if another space may be opened now; start to close spaces above the limit."""
        for _ in range(len(self._open) - len(self._leaving) + 1 - self._most):
            longest_unused = self._closable(self._spaces.is_at_rest) or self._closable(lambda _space_id: True)
            if longest_unused is None:
                break
            self._begin_to_close(longest_unused)
        return len(self._open) < self._most + SPARE

    def _closable(self, also: Callable[[str], bool]) -> str | None:
        return next(
            (one for one in self._open if one not in self._leaving and self._spaces.may_close(one) and also(one)), None
        )

    def _begin_to_close(self, space_id: str) -> asyncio.Task[None]:
        async def close() -> None:
            try:
                await self._spaces.close_unused(space_id)
            finally:
                self._leaving.discard(space_id)
                self._freed.set()

        self._leaving.add(space_id)
        task = asyncio.create_task(close(), name="confide-close")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _look(self) -> None:
        """Close spaces as their time without use expires, until none is open."""
        loop = asyncio.get_running_loop()
        while self._open:
            due = next(iter(self._open.values())) + self._close_after_s
            await asyncio.sleep(max(0.0, due - loop.time()))
            before = loop.time() - self._close_after_s
            is_busy = False
            for space_id, used_at in list(self._open.items()):
                if used_at > before:
                    break
                if self._open.get(space_id) != used_at:
                    continue  # used meanwhile, or closed
                if (
                    space_id not in self._leaving
                    and self._spaces.may_close(space_id)
                    and self._spaces.is_at_rest(space_id)
                ):
                    await self._begin_to_close(space_id)
                else:
                    is_busy = True
            if is_busy:
                await asyncio.sleep(min(LOOK_AGAIN_S, self._close_after_s))
