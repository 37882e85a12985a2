"""How fast one caller may ask, all of its connections together (PROTOCOL.md 8.2).

Over the rate a request waits before it is handled. While it waits, the bounds on what a connection may have under way hold its sender
back, so a greedy caller slows down itself and nobody else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confide_crypto.errors import RequestError

REQUESTS_PER_S: Final = 200.0
"""MCP messages and sync requests. An agent sends a few a second; a first sync asks four at a time and stays below."""
BURST: Final = 1000.0
MAX_WAIT_S: Final = 5.0
"""The peer's deadline is 10 s and more: a request that would wait for longer than this is refused while it can still be tried again."""


class Rate:
    """One caller's token bucket. Tokens below zero are waits that have been promised."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._refilled = clock()
        self.connections = 0

    async def pass_message(self) -> None:
        """Return when an MCP message may be handled, however long that takes: the ones behind it wait for it anyway."""
        wait_s = self._take(float("inf"))
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def pass_request(self) -> None:
        """Return when a request may be handled.

        Raises:
            RequestError: `busy`: it would have to wait for more than `MAX_WAIT_S`.
        """
        wait_s = self._take(MAX_WAIT_S)
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    @property
    def is_full(self) -> bool:
        """Whether nothing of it is used: a new one would be the same."""
        self._refill()
        return self._tokens >= self._burst

    def _take(self, longest_s: float) -> float:
        """Take a token and say how many seconds to wait before using it."""
        self._refill()
        wait_s = max(0.0, (1.0 - self._tokens) / self._per_second)
        if wait_s > longest_s:
            raise RequestError("busy", "this machine asks faster than the daemon answers", "try again in a few seconds")
        self._tokens -= 1.0
        return wait_s

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_second)
        self._refilled = now


class Rates:
    """The rates of all callers. One outlives its connections until it is full again: reconnecting must not fill it."""

    def __init__(
        self,
        *,
        per_second: float = REQUESTS_PER_S,
        burst: float = BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._rates: dict[bytes, Rate] = {}
        self._tidy_at = 64

    @contextmanager
    def of(self, key: bytes) -> Iterator[Rate]:
        """The rate of the caller with this key, for the time of one connection."""
        rate = self._rates.get(key)
        if rate is None:
            self._tidy()
            rate = self._rates[key] = Rate(self._per_second, self._burst, self._clock)
        rate.connections += 1
        try:
            yield rate
        finally:
            rate.connections -= 1

    def __len__(self) -> int:
        return len(self._rates)

    def _tidy(self) -> None:
        """Forget the ones that say nothing, now and then: it looks at all of them."""
        if len(self._rates) < self._tidy_at:
            return
        self._rates = {key: rate for key, rate in self._rates.items() if rate.connections or not rate.is_full}
        self._tidy_at = 2 * len(self._rates) + 64
