"""What a connection may cost before anybody has proven a key on it (PROTOCOL.md 8.1), and what a greedy peer may cost afterwards (8.2).

A flood is counted, never written down line by line: whoever can open a connection must not be able to fill the disk. Over its rate a
caller's request waits before it is handled, and while it waits, the bounds on what a connection may have under way hold its sender back:
a greedy caller slows down itself and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from websockets import http11
from websockets.asyncio.server import Server, ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import Event
from websockets.server import ServerProtocol

from confide_crypto.errors import BusyError, ConfideError, DeniedError, HandshakeError, RequestError

log = logging.getLogger(__name__)

MAX_HALF_OPEN: Final = 64
HANDSHAKES_PER_S: Final = 50.0
"""WireGuard's figure; garbage at this rate costs the daemon 0.4 % of a core (channel design, 4)."""
MAX_STRANGERS: Final = 256
STRANGERS_PER_S: Final = 200.0
"""New connections: four for each handshake that is taken. One that is cut costs 60 us, one that opens a websocket in vain 350 us."""
STRANGERS_AT_ONCE: Final = 512.0
MAX_MESSAGE: Final = 2048
"""Of a stranger; message 1, the longest that may come, has 1256 bytes."""
MAX_BYTES: Final = 32 * 1024
"""All that a stranger may send: an HTTP request, messages 1 and 3, and a few small records behind them."""
MAX_FRAMES: Final = 16
"""The same in websocket frames: the smallest has 6 bytes and costs some 200 here."""

MAX_HTTP_LINE: Final = 4096
MAX_HTTP_HEADERS: Final = 64
"""A websocket's own are 8; a tunnel or a reverse proxy adds a dozen. Caddy and nginx take some 100, of 8 KiB."""

MAX_LOOSE_FRAMES: Final = 64
"""Pings and fragments from one whole message to the next. We use neither; a middlebox may, rarely."""
MAX_UNREAD: Final = 1024 * 1024
"""Our senders wait from 32 KiB on. What piles up beyond that is answers to pings that the peer does not read."""
_PIECE: Final = 16 * 1024
"""Fed to the parser at once, so that a read full of tiny frames is noticed before all of it has been parsed."""

REQUESTS_PER_S: Final = 200.0
"""MCP messages and sync requests. An agent sends a few a second; a first sync asks four at a time and stays below."""
BURST: Final = 1000.0
MAX_WAIT_S: Final = 5.0
"""The peer's deadline is 10 s and more: a request that would wait for longer than this is refused while it can still be tried again."""

REPORT_EVERY_S: Final = 60.0
DENIALS_LOGGED: Final = 10
"""Lines about proven keys that may not come in, in a minute: the operator who enrolls somebody needs to see them."""
FAILURES_LOGGED: Final = 10
"""Lines about failures of our own, in a minute: strangers can bring them about where the registry cannot be read."""


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


class Refusals:
    """Counts what was refused, and tells the log once a minute."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._since = clock()
        self._denials = self._failures = 0

    def count(self, kind: str) -> None:
        """One more of this kind; `kind` is ours, never a peer's word."""
        self._counts[kind] += 1

    def note(self, error: Exception) -> None:
        """A handshake that failed, a proven key that may not come in, or a failure of our own: why a connection became no session."""
        if isinstance(error, HandshakeError | TimeoutError):
            self.count("while others were under way" if isinstance(error, BusyError) else "failed")
        elif isinstance(error, DeniedError):
            self._denials += 1
            if self._denials <= DENIALS_LOGGED:
                log.info("denied %s: %s", error.fingerprint, error.reason)
            else:
                self.count("denied")
        else:
            self._failures += 1
            if self._failures <= FAILURES_LOGGED:
                # A bug only by its class: its text may quote anything.
                why = error if isinstance(error, ConfideError) else type(error).__name__
                log.error("a connection was given up by a failure here: %s", why)
            else:
                self.count("by a failure here")

    def report(self, *, is_last: bool = False) -> None:
        """Write the counts down, if a minute has passed since the last time or the daemon ends."""
        now = self._clock()
        if now - self._since < REPORT_EVERY_S and not is_last:
            return
        if self._counts:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self._counts.items()))
            log.warning("refused %s handshakes in %.0f s: %s", f"{self._counts.total():,}", now - self._since, kinds)
        self._counts.clear()
        self._denials = self._failures = 0
        self._since = now


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
        """Hold one place for the time of a handshake. Raises BusyError: no place is free; the caller closes with `CLOSE_BUSY`, at once."""
        if self.half_open >= self._half_open_limit or not self._bucket.take():
            raise BusyError
        self.half_open += 1
        try:
            yield
        finally:
            self.half_open -= 1


class Strangers:
    """The connections on which nobody has proven a key yet, HTTP requests included."""

    def __init__(self, refusals: Refusals, *, most: int = MAX_STRANGERS) -> None:
        self._refusals = refusals
        self._most = most
        self._arrivals = TokenBucket(STRANGERS_PER_S, STRANGERS_AT_ONCE)
        self._present: set[GuardedConnection] = set()

    def __len__(self) -> int:
        return len(self._present)

    def connection_class(self) -> type[GuardedConnection]:
        """For `serve(create_connection=...)`: a `GuardedConnection` that is counted here."""
        return type("GuardedConnection", (GuardedConnection,), {"strangers": self})

    def enter(self, connection: GuardedConnection) -> bool:
        """Count a new connection; False if it is to be cut."""
        if len(self._present) >= self._most or not self._arrivals.take():
            self._refusals.count("cut at once")
            return False
        self._present.add(connection)
        return True

    def leave(self, connection: GuardedConnection) -> None:
        """It has ended, or is none any more."""
        self._present.discard(connection)

    def cut_all(self) -> None:
        """The daemon ends, and waits for nobody whom it does not know."""
        for connection in list(self._present):
            connection.cut()

    def is_one(self, connection: GuardedConnection) -> bool:
        """Whether nobody has proven a key on it."""
        return connection in self._present


class GuardedConnection(ServerConnection):
    """A websocket that ends, without a word, when its peer goes over what a peer may cost."""

    strangers: Strangers

    def __init__(self, protocol: ServerProtocol, server: Server, **options: Any) -> None:
        protocol.max_message_size = MAX_MESSAGE  # until message 3; frames can come right behind the HTTP request
        super().__init__(protocol, server, **options)
        self._was_made = False
        self._is_cut = False
        self._bytes = self._frames = self._loose = 0

    def let_in(self) -> None:
        """A caller has proven its key: from now on the session bounds what comes."""
        self.strangers.leave(self)

    def cut(self) -> None:
        self._is_cut = True
        self.transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in, or cut it before anything is allocated for it."""
        if self.strangers.enter(self):
            self._was_made = True
            super().connection_made(transport)
            return
        self._is_cut = True
        assert isinstance(transport, asyncio.Transport)
        transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._was_made:
            self.strangers.leave(self)
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, until it is too much."""
        if self.strangers.is_one(self):
            self._bytes += len(data)
            if self._bytes > MAX_BYTES:
                self.cut()
        for start in range(0, len(data), _PIECE):
            if self._is_cut:
                return
            super().data_received(data[start : start + _PIECE])
            if self.transport.get_write_buffer_size() > MAX_UNREAD:
                self.cut()

    def eof_received(self) -> None:
        if not self._is_cut:
            super().eof_received()

    def process_event(self, event: Event) -> None:
        """Count frames; `ServerConnection` does the rest."""
        if isinstance(event, Frame):
            is_whole = event.fin and event.opcode in (Opcode.BINARY, Opcode.TEXT)
            self._loose = 0 if is_whole else self._loose + 1
            self._frames += 1
            if self._loose > MAX_LOOSE_FRAMES or (self._frames > MAX_FRAMES and self.strangers.is_one(self)):
                self.cut()
        if not self._is_cut:
            super().process_event(event)


def limit_http() -> None:
    """Bound the HTTP request in this process (the library reads these at every request; its default is 128 lines of 8 KiB)."""
    http11.MAX_LINE_LENGTH = MAX_HTTP_LINE
    http11.MAX_NUM_HEADERS = MAX_HTTP_HEADERS


class Rate:
    """How fast one caller may ask, on all of its connections together."""

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
        """Return when a request may be handled. Raises RequestError (`busy`) where it would have to wait for more than `MAX_WAIT_S`."""
        wait_s = self._bucket.borrow(MAX_WAIT_S)
        if wait_s is None:
            raise RequestError("busy", "this machine asks faster than the daemon answers", "try again in a few seconds")
        if wait_s:
            await asyncio.sleep(wait_s)


class Rates:
    """The rates of all callers. One outlives its connections until it is full again: reconnecting must not fill it."""

    def __init__(
        self, *, per_second: float = REQUESTS_PER_S, burst: float = BURST, clock: Callable[[], float] | None = None
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
