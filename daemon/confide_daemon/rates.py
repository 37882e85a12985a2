"""How fast one caller may ask, all of its connections together (PROTOCOL.md 8.2).

Over the rate a request waits before it is handled. While it waits, the bounds on what a connection may have under way hold its sender
back, so a greedy caller slows down itself and nobody else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confide_crypto.bucket import TokenBucket
from confide_crypto.errors import RequestError

REQUESTS_PER_S: Final = 200.0
"""MCP messages and sync requests. An agent sends a few a second; a first sync asks four at a time and stays below."""
BURST: Final = 1000.0
MAX_WAIT_S: Final = 5.0
"""The peer's deadline is 10 s and more: a request that would wait for longer than this is refused while it can still be tried again."""


class Rate:
    """One caller's, for all of its connections."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self.connections = 0

    @property
    def is_unused(self) -> bool:
        """Whether nobody is connected, and a new one would be the same."""
        return not self.connections and self._bucket.is_full

    async def pass_message(self) -> None:
        """Return when an MCP message may be handled, however long that takes: the ones behind it wait for it anyway."""
        wait_s = self._bucket.borrow(math.inf)
        if wait_s:
            await asyncio.sleep(wait_s)

    async def pass_request(self) -> None:
        """Return when a request may be handled.

        Raises:
            RequestError: `busy`: it would have to wait for more than `MAX_WAIT_S`.
        """
        wait_s = self._bucket.borrow(MAX_WAIT_S)
        if wait_s is None:
            raise RequestError("busy", "this machine asks faster than the daemon answers", "try again in a few seconds")
        if wait_s:
            await asyncio.sleep(wait_s)


class Rates:
    """The rates of all callers. One outlives its connections until it is full again: reconnecting must not fill it."""

    def __init__(
        self,
        *,
        per_second: float = REQUESTS_PER_S,
        burst: float = BURST,
        clock: Callable[[], float] | None = None,
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
            rate = self._rates[key] = Rate(TokenBucket(self._per_second, self._burst, clock=self._clock))
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
        self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_unused}
        self._tidy_at = 2 * len(self._rates) + 64
