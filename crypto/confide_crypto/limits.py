"""Every size, count and timer of the protocol, and the limiter in front of it (PROTOCOL.md 8). Imports nothing heavy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confide_crypto.errors import BusyError

SUBPROTOCOL: Final = "confide.v1"
DEFAULT_PORT: Final = 7733

MAX_RECORD: Final = 65535
"""Noise's limit for one message (Noise 3), and the websocket's `max_size`. Our own records stay below 16.5 KiB."""

HANDSHAKE_TIMEOUT_S: Final = 10.0
FIRST_MESSAGE_TIMEOUT_S: Final = 5.0
"""A peer that has opened the websocket has no reason to think before message 1."""

CLOSE_REFUSED: Final = 4400
"""Websocket close code of every failure before the caller is known. One code, no reason."""
CLOSE_VIOLATION: Final = 4401
"""Websocket close code after a broken rule in an open channel."""
CLOSE_BUSY: Final = 1013
"""Too many handshakes: said openly ("try again later"), or the client would take it for a wrong daemon."""
CLOSE_DENIED: Final = 4403
"""Websocket close code after a sealed denial. The observer learns no more than from an early end of the connection."""

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""One message, request or answer: documents of 4 MiB and room for JSON's escapes."""
MAX_REASSEMBLY: Final = 32 * 1024 * 1024
"""All unfinished messages of one connection together; over it, the channel dies."""
MAX_HELD: Final = 32 * 1024 * 1024
"""Messages and requests that came whole and whose handlers have not ended; over it, nothing is read until some have."""
MAX_WAITING_MESSAGES: Final = 256
MAX_REQUESTS: Final = 64
"""Unanswered requests and unfinished streams in one direction."""

STREAM_CREDIT: Final = 1024 * 1024
"""What may be sent of one body before its receiver grants more (PROTOCOL.md 7.5)."""
CONNECTION_CREDIT: Final = 8 * 1024 * 1024
"""The same of all bodies of one direction together: the most that a receiver has to hold."""
MAX_CREDIT: Final = (1 << 31) - 1
MAX_BODY: Final = 1 << 40
BODY_STALL_S: Final = 60.0
"""A body of which nothing has come for so long is given up."""

REKEY_RECORDS: Final = 1 << 14
"""At most 1 GiB under one key."""
MAX_RECORDS: Final = 1 << 32
"""The end of a cipher state, far below its 2^64 nonces."""

CLOSE_TIMEOUT_S: Final = 2.0
"""For what still waits to be sent or handled when one side ends the session, and for the websocket's goodbye."""

IDLE_KEEPALIVES: Final = 3.6
LEAST_KEEPALIVE_S: Final = 5
MOST_KEEPALIVE_S: Final = 300
"""Bounds of what a person may choose: more often only costs battery, and no NAT keeps a silent connection for longer than minutes."""


@dataclass(frozen=True, slots=True)
class Timers:
    """How an open channel notices that nobody is there.

    Attributes:
        keepalive_s: silence after which we say that we are there; below the 30 s after which reverse proxies and NATs forget a connection.
        idle_s: silence after which the peer counts as gone: three lost keepalives.
    """

    keepalive_s: float = 25.0
    idle_s: float = 90.0

    @classmethod
    def every(cls, keepalive_s: float) -> Timers:
        """Those of a chosen keepalive, and the idle limit that fits it."""
        return cls(keepalive_s, keepalive_s * IDLE_KEEPALIVES)


DEFAULT_TIMERS: Final = Timers()

MAX_HALF_OPEN: Final = 64
HANDSHAKES_PER_S: Final = 50.0
"""WireGuard's figure; garbage at this rate costs the daemon 0.4 % of a core (channel design, 4)."""

WRITE_LIMIT: Final = 16 * 1024
"""Bytes that wait in our own buffer, and as many in the kernel's, before a sender does: one bulk record each, so that a message in
between waits for two. At 10 Mbit/s a body that is under way adds 70 ms to a call, 550 ms with the kernel's usual megabytes."""


def websocket_options() -> dict[str, Any]:
    """Keyword arguments for `websockets` that both ends must use (PROTOCOL.md 3).

    No compression: it would reveal lengths and costs 50 KiB per connection. No websocket pings: a middlebox can answer them.
    """
    return {
        "subprotocols": [SUBPROTOCOL],
        "compression": None,
        "max_size": MAX_RECORD,
        "ping_interval": None,
        "write_limit": WRITE_LIMIT,
        "close_timeout": CLOSE_TIMEOUT_S,
    }


class TokenBucket:
    """So many a second, and some at once. Begins full; tokens below zero are waits that have been promised."""

    def __init__(self, per_second: float, burst: float, *, clock: Callable[[], float] | None = None) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._refilled = self._now()

    @property
    def is_full(self) -> bool:
        """Whether nothing of it is used: a new one would be the same."""
        self._refill()
        return self._tokens >= self._burst

    def take(self) -> bool:
        """Take a token that is there; False if there is none."""
        return self.borrow(0.0) is not None

    def borrow(self, longest_s: float) -> float | None:
        """Take a token and say how many seconds to wait before using it; None, and no token, if that is over `longest_s`."""
        self._refill()
        wait_s = max(0.0, (1.0 - self._tokens) / self._per_second)
        if wait_s > longest_s:
            return None
        self._tokens -= 1.0
        return wait_s

    def _refill(self) -> None:
        now = self._now()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_second)
        self._refilled = now

    def _now(self) -> float:
        return self._clock() if self._clock else time.monotonic()


class Handshakes:
    """Bounds what strangers can make the daemon do: a number of half-open channels and a token bucket, no queue.

    Sessions that are authenticated are counted elsewhere, so a flood cannot push them out.
    """

    def __init__(
        self,
        *,
        half_open: int = MAX_HALF_OPEN,
        per_second: float = HANDSHAKES_PER_S,
        burst: float = 2 * HANDSHAKES_PER_S,
    ) -> None:
        self._half_open_limit = half_open
        self._bucket = TokenBucket(per_second, burst)
        self.half_open = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one place for the time of a handshake.

        Raises:
            BusyError: no place is free; the caller closes with `CLOSE_BUSY`, at once.
        """
        if self.half_open >= self._half_open_limit or not self._bucket.take():
            raise BusyError
        self.half_open += 1
        try:
            yield
        finally:
            self.half_open -= 1
