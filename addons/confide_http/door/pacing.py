"""Limits the share of an event loop that HTTP clients get while devices use the same loop.

The gateway runs on the daemon's event loop, which also answers devices. A turn of the loop takes as
long as all its input: five hundred connections with a byte each take 12 ms, and each refused
request half a millisecond. So requests of HTTP clients begin one after the other (`RequestTurns`),
and connections that send little at a time are read now and then, a few in a turn (`Rests`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

PER_S: Final = 200.0
"""Requests that may begin per second. Each costs half a millisecond or more, so they get a tenth of
the loop.
"""
IN_A_ROW: Final = 32
"""Requests that may begin in a row after a pause: a page with its resources."""
APART_S: Final = 0.001
"""Pause between two of these: together they would take a turn of 10 ms, six times a second."""
REST_S: Final = 0.5
"""Time for which a connection that sends little at a time is not read."""
WOKEN: Final = 2
WOKEN_EVERY_S: Final = 0.001
"""Interval at which a few resting connections are read again: 0.1 ms each."""


class RequestTurns:
    """A queue of HTTP requests that wait to begin. Clients take turns, so that one client with five
    hundred requests does not delay the others.
    """

    def __init__(self, *, per_second: float = PER_S, in_a_row: int = IN_A_ROW) -> None:
        self._pause_s = 1 / per_second
        self._ahead_s = (in_a_row - 1) / per_second
        # In loop time: when the next request may begin by the rate, and in a row.
        self._free_at = self._apart_at = 0.0
        self._waiting: dict[Hashable, dict[Callable[[], None], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, holder: Hashable, begin: Callable[[], None]) -> None:
        """Call `begin` at once if no request waits and the rate allows it; otherwise when it is the
        turn of the client `holder`.
        """
        self._waiting.setdefault(holder, {})[begin] = None
        if self._timer is None:
            self._next()

    def leave(self, holder: Hashable, begin: Callable[[], None]) -> None:
        """Remove a request that waits; does nothing if it does not wait."""
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
    """Connections that the server does not read for a while, in the order in which it resumes them.

    `rest_s` is the shortest pause in seconds; with 0 the connections only take turns.
    """

    def __init__(self, rest_s: float = REST_S) -> None:
        self._rest_s = rest_s
        self._until: dict[Callable[[], None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def rest(self, resume: Callable[[], None]) -> None:
        """Call `resume` after `rest_s` seconds or later.

        At most `WOKEN` connections are resumed in the same turn of the event loop. A second call
        with the same `resume` starts its pause again.
        """
        loop = asyncio.get_running_loop()
        self.leave(resume)  # keep the longest first, also if it rests again
        self._until[resume] = loop.time() + self._rest_s
        if self._timer is None:
            self._timer = loop.call_later(self._rest_s, self._wake)

    def leave(self, resume: Callable[[], None]) -> None:
        """Remove a connection that has ended."""
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
    """The limits on how much HTTP clients use an event loop that devices use too.

    Attributes:
        turns: the queue in which requests begin.
        rests: pauses of connections that send little data at a time.
        flowing: pauses of connections that send much data or are about to be closed; a few of them
            are read in each turn of the loop.
    """

    turns: RequestTurns = field(default_factory=RequestTurns)
    rests: Rests = field(default_factory=Rests)
    flowing: Rests = field(default_factory=lambda: Rests(0.0))
