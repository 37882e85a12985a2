"""The rate limit of a caller that has proven its key (PROTOCOL.md 8.2), shared by all of its
connections.

The unit is a small request. A message is paid for before it is parsed, by its estimated cost: each
16 KiB record, 256 lists or objects, or 4,096 other values cost one unit. A caller over its rate
waits before its request is handled; far over it, the daemon stops reading from it. So a greedy
caller slows down only itself.

Paying before parsing protects the other callers. Parsing in a thread does not: json's parser holds
the GIL, so 200,000 empty lists block every caller for 100 ms (measured; 200 ms with a thread).
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confide_crypto.errors import RequestError
from confide_crypto.limits import MAX_CONTAINERS, MAX_REQUEST, MAX_VALUES
from confide_memory.wire.operation import OPERATIONS

REQUESTS_PER_S: Final = 200.0
"""Sustained rate of MCP messages and sync requests. An agent sends a few a second; a first sync
sends four at a time and stays below.
"""
BURST: Final = 1000.0
MAX_WAIT_S: Final = 5.0
"""The longest wait. A peer's deadline is at least 10 s, so a refused request can still be tried
again.
"""

CONNECTION: Final = 10.0
"""Price of a connection in requests: a session takes 6 ms to begin and end. A key may connect 100
times at once, then 20 times a second.
"""
RECORD_BYTES: Final = 16 * 1024
"""Received bytes for the price of a request."""
ANSWERED_BYTES: Final = 64 * 1024
"""Bytes of an answer for the price of a request: an answer is encrypted, not parsed."""
CONTAINERS: Final = 256
VALUES: Final = 4096
"""Lists and objects, and values of any kind, for the price of a request: 0.15 ms and 0.3 ms of
parsing.
"""
SMALL: Final = 1024
"""Messages up to this length are not inspected: they hold 340 lists at most."""
_LOOKED_AT: Final = 1 << 20
"""Bytes inspected at once, in 2 ms, before other tasks run."""

_OP: Final = re.compile(rb'"op"\s*:\s*"([a-z-]{1,32})"')


class TokenBucket:
    """A rate limiter: `per_second` tokens are added a second, up to `burst`. It begins full. A
    negative balance stands for waits that callers have accepted already.
    """

    def __init__(self, per_second: float, burst: float, *, clock: Callable[[], float] | None = None) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._refilled = self._now()

    @property
    def wait_s(self) -> float:
        """How many seconds a caller that takes a token now must wait."""
        self._refill()
        return max(0.0, (1.0 - self._tokens) / self._per_second)

    @property
    def is_full(self) -> bool:
        """True if no token is missing, so that the bucket could be replaced by a new one."""
        self._refill()
        return self._tokens >= self._burst

    def take(self) -> bool:
        """Take one token without waiting; return False if none is left."""
        return self.borrow(0.0) is not None

    def borrow(self, longest_s: float, price: float = 1.0) -> float | None:
        """Take `price` tokens in advance; return how many seconds the caller must wait before
        acting. If that exceeds `longest_s`, take none and return None.

        The wait covers what earlier callers took; the next caller also waits for these tokens.
        """
        wait_s = self.wait_s
        if wait_s > longest_s:
            return None
        self._tokens -= price
        return wait_s

    def _refill(self) -> None:
        now = self._now()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_second)
        self._refilled = now

    def _now(self) -> float:
        return self._clock() if self._clock else time.monotonic()


async def price_of(data: bytes) -> float:
    """Return what parsing a JSON text costs, by its brackets and commas. Those within strings count
    too: leaving them out would mean parsing.

    Raises RequestError (`too_large`) if there are more than any request needs; 16 MiB can hold five
    million lists.
    """
    if len(data) <= SMALL:
        return 0.0
    containers = values = 0
    for start in range(0, len(data), _LOOKED_AT):
        end = start + _LOOKED_AT
        containers += data.count(b"[", start, end) + data.count(b"{", start, end)
        values += data.count(b",", start, end)
        if containers > MAX_CONTAINERS or values > MAX_VALUES:
            raise RequestError("too_large", "there are too many values in it", "ask for less at once")
        if end < len(data):
            await asyncio.sleep(0)
    return containers / CONTAINERS + values / VALUES


def _is_large(op: str) -> bool:
    return op in OPERATIONS and OPERATIONS[op].is_large


def check_size(data: bytes) -> None:
    """Raise RequestError (`too_large`) if a request is longer than its kind needs.

    The kind is found without parsing. A request that names a larger kind somewhere inside passes
    here, is paid for, and is refused later.
    """
    if len(data) > MAX_REQUEST and not any(_is_large(op.decode()) for op in _OP.findall(data)):
        problem = f"a request of {len(data):,} bytes is over the limit of {MAX_REQUEST:,}"
        raise RequestError("too_large", problem, "send a text of that length as a body")


class Rate:
    """The rate limit of one caller, shared by all of its connections."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self.connections = 0

    @property
    def is_unused(self) -> bool:
        """True if no connection uses this limit and its bucket is full, so that it can be dropped."""
        return not self.connections and self._bucket.is_full

    async def pass_connection(self) -> bool:
        """Wait until an authenticated connection may proceed; return False at once if that would
        take longer than `MAX_WAIT_S`.
        """
        wait_s = self._bucket.borrow(MAX_WAIT_S, CONNECTION)
        if wait_s:
            await asyncio.sleep(wait_s)
        return wait_s is not None

    async def pass_message(self, data: bytes) -> None:
        """Wait until an MCP message or a JSON body may be parsed. The wait has no limit, since
        later messages queue behind this one anyway.

        Raises RequestError (`too_large`) if the message has more values than any request needs.
        """
        wait_s = self._bucket.borrow(math.inf, 1.0 + await price_of(data))
        if wait_s:
            await asyncio.sleep(wait_s)

    def record(self, price: float) -> float:
        """Pay for one record of an incomplete message or request. Return for how many seconds to
        stop reading from the connection; 0: go on.
        """
        wait_s = self._bucket.borrow(math.inf, price)
        return 0.0 if wait_s is None else max(0.0, wait_s - MAX_WAIT_S)

    async def request(self, data: bytes) -> None:
        """Wait until a request may be parsed and handled.

        Raises RequestError `busy` if the wait would exceed `MAX_WAIT_S`, `too_large` if the request
        is too long or has too many values.
        """
        check_size(data)
        wait_s = self._bucket.borrow(MAX_WAIT_S, 1.0 + await price_of(data))
        if wait_s is None:
            raise RequestError("busy", "this device asks faster than the daemon answers", "try again in a few seconds")
        if wait_s:
            await asyncio.sleep(wait_s)

    def charge(self, length: int) -> None:
        """Pay for an answer of `length` bytes after it was sent; the caller's next request waits
        correspondingly longer.
        """
        if length > SMALL:
            self._bucket.borrow(math.inf, length / ANSWERED_BYTES)


class Rates:
    """The rate limits of all callers, by key. A limit is kept after its last connection until its
    bucket is full, so that reconnecting does not reset it.
    """

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
        """Yield the rate limit of a caller's key, and count one connection of it while the context
        is active.
        """
        rate = self._rates.get(key)
        if rate is None:
            self._tidy()
            rate = self._rates[key] = Rate(TokenBucket(self._per_second, self._burst, clock=self._clock))
        rate.connections += 1
        try:
            yield rate
        finally:
            rate.connections -= 1

    async def pass_connection(self, key: bytes) -> bool:
        """Wait as `Rate.pass_connection` does, for a connection that has no session yet."""
        with self.of(key) as rate:
            return await rate.pass_connection()

    def __len__(self) -> int:
        return len(self._rates)

    def _tidy(self) -> None:
        """Drop unused rates each time the number has doubled, since this scans all of them."""
        if len(self._rates) < self._tidy_at:
            return
        self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_unused}
        self._tidy_at = 2 * len(self._rates) + 64
