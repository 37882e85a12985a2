"""What a caller may cost once it has proven its key (PROTOCOL.md 8.2): so much a second, on all of its connections together.

The unit is a small request. What came is paid for before it is parsed, by what it will cost: a record of 16 KiB, 256 lists or objects and
4,096 other values are one each. Over its rate a caller's request waits before it is handled, and a caller that is far over is not read any
further: a greedy one slows down itself and nobody else.

Paying first is what protects the others. Parsing in a thread does not: json's parser keeps the interpreter to itself, so that 200,000 empty
lists stop everybody for 100 ms either way (measured; a thread took 200 ms).
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
"""MCP messages and sync requests. An agent sends a few a second; a first sync asks four at a time and stays below."""
BURST: Final = 1000.0
MAX_WAIT_S: Final = 5.0
"""The peer's deadline is 10 s and more: a request that would wait for longer than this is refused while it can still be tried again."""

CONNECTION: Final = 10.0
"""A connection, at so many requests: a session takes 6 ms to begin and to end. So a key may come 100 times at once, then 20 a second."""
RECORD_BYTES: Final = 16 * 1024
"""Of what comes, at the price of a request."""
ANSWERED_BYTES: Final = 64 * 1024
"""Of an answer, at the price of a request: it costs a seal, not a parse."""
CONTAINERS: Final = 256
VALUES: Final = 4096
"""Lists and objects, and values of any kind, at the price of a request: 0.15 ms and 0.3 ms of parsing."""
SMALL: Final = 1024
"""What is no longer is not looked at: 340 lists at most."""
_LOOKED_AT: Final = 1 << 20
"""Looked through at once, in 2 ms; then others get their turn."""

_OP: Final = re.compile(rb'"op"\s*:\s*"([a-z-]{1,32})"')


class TokenBucket:
    """So many a second, and some at once. Begins full; tokens below zero are waits that have been promised."""

    def __init__(self, per_second: float, burst: float, *, clock: Callable[[], float] | None = None) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._refilled = self._now()

    @property
    def wait_s(self) -> float:
        """How long somebody waits who takes one now."""
        self._refill()
        return max(0.0, (1.0 - self._tokens) / self._per_second)

    @property
    def is_full(self) -> bool:
        """Whether nothing of it is used: a new one would be the same."""
        self._refill()
        return self._tokens >= self._burst

    def take(self) -> bool:
        """Take a token that is there; False if there is none."""
        return self.borrow(0.0) is not None

    def borrow(self, longest_s: float, price: float = 1.0) -> float | None:
        """Take tokens and say how many seconds to wait before using them; None, and no token, if that is over `longest_s`.

        The wait is for those who came before; who comes next waits for these.
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
    """What a JSON text costs besides its records. Brackets and commas in its strings count too: to tell them apart is to parse it.

    Raises RequestError: `too_large`, it has more of them than anybody needs. 16 MiB can hold five million lists.
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
    """Refuse a request that need not be so large. Raises RequestError: `too_large`.

    Who names another `op` deeper inside is let through, has paid for it, and is refused for what it asks.
    """
    if len(data) > MAX_REQUEST and not any(_is_large(op.decode()) for op in _OP.findall(data)):
        problem = f"a request of {len(data):,} bytes is over the limit of {MAX_REQUEST:,}"
        raise RequestError("too_large", problem, "send a text of that length as a body")


class Rate:
    """How fast one caller may ask, on all of its connections together."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self.connections = 0

    @property
    def is_unused(self) -> bool:
        """Whether nobody is connected, and a new one would be the same."""
        return not self.connections and self._bucket.is_full

    async def pass_connection(self) -> bool:
        """Wait until a connection that has proven its key may come in; False where that would take more than `MAX_WAIT_S`."""
        wait_s = self._bucket.borrow(MAX_WAIT_S, CONNECTION)
        if wait_s:
            await asyncio.sleep(wait_s)
        return wait_s is not None

    async def pass_message(self, data: bytes) -> None:
        """Return when an MCP message, or JSON that came as a body, may be parsed, however long that takes: what is behind it waits anyway.

        Raises RequestError: `too_large`.
        """
        wait_s = self._bucket.borrow(math.inf, 1.0 + await price_of(data))
        if wait_s:
            await asyncio.sleep(wait_s)

    # `confide_crypto.transport.inbox.RateLimit`

    def record(self, price: float) -> float:
        """Pay for a record that is no whole message or request; how many seconds nothing more may be read."""
        wait_s = self._bucket.borrow(math.inf, price)
        return 0.0 if wait_s is None else max(0.0, wait_s - MAX_WAIT_S)

    async def request(self, data: bytes) -> None:
        """Return when a request may be parsed and handled.

        Raises RequestError: `busy` where it would have to wait for more than `MAX_WAIT_S`, `too_large`.
        """
        check_size(data)
        wait_s = self._bucket.borrow(MAX_WAIT_S, 1.0 + await price_of(data))
        if wait_s is None:
            raise RequestError("busy", "this machine asks faster than the daemon answers", "try again in a few seconds")
        if wait_s:
            await asyncio.sleep(wait_s)

    def answered(self, length: int) -> None:
        """Pay for an answer of so many bytes: the next request waits for it."""
        if length > SMALL:
            self._bucket.borrow(math.inf, length / ANSWERED_BYTES)


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

    async def pass_connection(self, key: bytes) -> bool:
        """The same of the caller with this key, whose connection is none of its own yet."""
        with self.of(key) as rate:
            return await rate.pass_connection()

    def __len__(self) -> int:
        return len(self._rates)

    def _tidy(self) -> None:
        """Forget the ones that say nothing, now and then: it looks at all of them."""
        if len(self._rates) < self._tidy_at:
            return
        self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_unused}
        self._tidy_at = 2 * len(self._rates) + 64
