"""How much of an event loop strangers get, where others wait for the same loop.

A daemon's machines are answered on the loop that its gateway is on. A turn of it is as long as all that came in meanwhile takes: five
hundred connections that bring a byte each are 12 ms, and each request that is refused half a one. So requests of strangers begin one after
the other (`RequestTurns`), and connections that bring little at a time are looked at now and then, a few in a turn (`Rests`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

PER_S: Final = 200.0
"""Requests of strangers that begin. One costs half a millisecond or more, so they have a tenth of the loop."""
IN_A_ROW: Final = 32
"""That begin one right behind the other after a pause: a page with what it takes along."""
APART_S: Final = 0.001
"""Between two of these: together they were a turn of 10 ms, and that six times a second."""
REST_S: Final = 0.5
"""For which a connection that brings little at a time is left alone."""
WOKEN: Final = 2
WOKEN_EVERY_S: Final = 0.001
"""So many are looked at again, so often: 0.1 ms of each."""


class RequestTurns:
    """Requests that wait to begin, in turn of whoever brings them: who brings one does not wait for another's five hundred."""

    def __init__(self, *, per_second: float = PER_S, in_a_row: int = IN_A_ROW) -> None:
        self._pause_s = 1 / per_second
        self._ahead_s = (in_a_row - 1) / per_second
        # As the loop tells the time: when the next may begin by the rate, and in a row.
        self._free_at = self._apart_at = 0.0
        self._waiting: dict[Hashable, dict[Callable[[], None], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, holder: Hashable, begin: Callable[[], None]) -> None:
        """Call `begin` now where nobody waits, or else when it is its turn. `holder`: who brings it."""
        self._waiting.setdefault(holder, {})[begin] = None
        if self._timer is None:
            self._next()

    def leave(self, holder: Hashable, begin: Callable[[], None]) -> None:
        """It has nothing to begin any more."""
        theirs = self._waiting.get(holder, {})
        theirs.pop(begin, None)
        if not theirs:
            self._waiting.pop(holder, None)

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        self._free_at = max(self._free_at, now - self._ahead_s)
        if self._waiting and max(self._free_at, self._apart_at) <= now:
            holder, theirs = next(iter(self._waiting.items()))
            begin = next(iter(theirs))
            del self._waiting[holder]
            del theirs[begin]
            if theirs:  # behind all others
                self._waiting[holder] = theirs
            self._free_at += self._pause_s
            self._apart_at = now + APART_S
            begin()
        if self._waiting and self._timer is None:
            self._timer = loop.call_at(max(self._free_at, self._apart_at), self._next)


class Rests:
    """Connections that are left alone for a while, the longest first. `rest_s`: at least so long; 0 for those that only come in turn."""

    def __init__(self, rest_s: float = REST_S) -> None:
        self._rest_s = rest_s
        self._until: dict[Callable[[], None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def rest(self, resume: Callable[[], None]) -> None:
        """Call `resume` in a while, with few others in the same turn."""
        loop = asyncio.get_running_loop()
        self.leave(resume)  # the longest first, whoever rests again
        self._until[resume] = loop.time() + self._rest_s
        if self._timer is None:
            self._timer = loop.call_later(self._rest_s, self._wake)

    def leave(self, resume: Callable[[], None]) -> None:
        """It has ended."""
        self._until.pop(resume, None)

    def _wake(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        due = [resume for _, resume in zip(range(WOKEN), self._until, strict=False) if self._until[resume] <= now]
        for resume in due:
            del self._until[resume]
            resume()
        if self._until:
            first = next(iter(self._until.values()))
            self._timer = loop.call_at(max(first, now + WOKEN_EVERY_S), self._wake)


@dataclass(frozen=True, slots=True)
class Pace:
    """How strangers are served on a loop that others wait for.

    Attributes:
        turns: in which their requests begin.
        rests: of what brings little at a time.
        flowing: of what brings much, and of what is to end: a few in each turn of the loop.
    """

    turns: RequestTurns = field(default_factory=RequestTurns)
    rests: Rests = field(default_factory=Rests)
    flowing: Rests = field(default_factory=lambda: Rests(0.0))
