"""Limits on unauthenticated connections, whose peer has not proven a key yet (PROTOCOL.md 8.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final

from websockets import http11
from websockets.asyncio.server import Server, ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import Event
from websockets.server import ServerProtocol

from confide_crypto.errors import BusyError
from confide_daemon import figures
from confide_daemon.server.listening.refused_connections import Refusals
from confide_daemon.server.rates import TokenBucket

MAX_STRANGERS: Final = 256
MAX_UNDER_WAY: Final = 64
"""Limit on those with a handshake under way."""
OPENINGS_PER_S: Final = 1000.0
OPENINGS_AT_ONCE: Final = 1000.0
"""Rate and burst of connections that sent something: a useless websocket costs 350 us to open.

So a client has at least 0.19 s for message 1 before newer connections evict it; without a flood it
has 5 s.
"""
HANDSHAKES_PER_S: Final = 200.0
HANDSHAKES_AT_ONCE: Final = 400.0
"""Rate and burst of answers to a valid message 1, for which a sender must know this daemon's key,
or replay a recording.

An answer costs half a millisecond; its sender has at least 0.32 s for message 3. Garbage costs a
Diffie-Hellman of 80 us, and takes no place.
"""
HTTP_DEADLINE_S: Final = 5.0
MAX_MESSAGE: Final = 2048
"""Limit on a message before authentication; message 1, the longest valid one, has 1256 bytes."""
MAX_BYTES: Final = 32 * 1024
"""Limit on all bytes before authentication: an HTTP request, messages 1 and 3, and a few small
records after them.
"""
MAX_FRAMES: Final = 16
"""Limit on websocket frames before authentication: the smallest has 6 bytes and costs about 200
here.
"""

MAX_HTTP_LINE: Final = 4096
MAX_HTTP_HEADERS: Final = 64
"""Limit on HTTP headers. A websocket has 8 and a reverse proxy adds a dozen; Caddy and nginx accept
some 100, of 8 KiB.
"""

MAX_LOOSE_FRAMES: Final = 64
"""Limit on pings and fragments between two whole messages. Our clients send neither; a middlebox
may, rarely.
"""
MAX_UNREAD: Final = 1024 * 1024
"""Limit on unsent output. Our senders wait from 32 KiB on, so more than that is answers to pings
that the peer does not read.
"""
_PIECE: Final = 16 * 1024
"""Bytes passed to the parser at once, so that a read full of tiny frames is detected before all of
it is parsed.
"""


class Stage(IntEnum):
    """How far an unauthenticated connection has come. Those that came least far are cut first."""

    CONNECTED = 0  # nothing came yet
    OPENED = 1  # an HTTP request, or a part of one
    UNDER_WAY = 2  # a message 1 that was made for this daemon


class Strangers:
    """The unauthenticated connections of a daemon ("strangers"), including plain HTTP requests.

    At the limit, the oldest of those that came least far is cut, so idle connections never lock out
    new ones. The rate limits guarantee a minimum time to each peer that continues. Sessions are
    counted elsewhere.
    """

    def __init__(
        self,
        refusals: Refusals,
        *,
        most: int = MAX_STRANGERS,
        under_way: int = MAX_UNDER_WAY,
        openings: TokenBucket | None = None,
        handshakes: TokenBucket | None = None,
    ) -> None:
        self._refusals = refusals
        self._most = most
        self._most_under_way = under_way
        self._openings = openings or TokenBucket(OPENINGS_PER_S, OPENINGS_AT_ONCE)
        self._handshakes = handshakes or TokenBucket(HANDSHAKES_PER_S, HANDSHAKES_AT_ONCE)
        self._stages: dict[Stage, dict[GuardedConnection, None]] = {stage: {} for stage in Stage}  # oldest first

    def __len__(self) -> int:
        return sum(map(len, self._stages.values()))

    def count(self, stage: Stage) -> int:
        """Return how many unauthenticated connections are at exactly this stage."""
        return len(self._stages[stage])

    def connection_class(self) -> type[GuardedConnection]:
        """Return a subclass of `GuardedConnection` that uses these limits, for
        `serve(create_connection=...)`.
        """
        return type("GuardedConnection", (GuardedConnection,), {"strangers": self})

    def enter(self, connection: GuardedConnection) -> None:
        """Add a new connection; at the limit, cut an older one."""
        if len(self) >= self._most:
            self._push_out()
        self._stages[Stage.CONNECTED][connection] = None

    def open(self, connection: GuardedConnection) -> bool:
        """Record that the first bytes have arrived on a connection; return False if the rate limit
        requires that it is cut.
        """
        if not self._openings.take():
            self._refuse("cut at once", "flood")
            return False
        self._move(connection, Stage.OPENED)
        return True

    @contextmanager
    def handshake(self, connection: GuardedConnection) -> Iterator[None]:
        """Count a handshake while the context is active: the daemon answers message 1 and waits for
        message 3.

        Raises BusyError if too many handshakes began in this second; close the connection with
        `CLOSE_BUSY` then.
        """
        if not self._handshakes.take():
            raise BusyError
        if self.count(Stage.UNDER_WAY) >= self._most_under_way:
            self._cut_oldest(Stage.UNDER_WAY)
        self._move(connection, Stage.UNDER_WAY)
        yield

    def refuse_page(self) -> None:
        """Count a refused connection from a web page in a browser."""
        self._refuse("by web pages", "page")

    def leave(self, connection: GuardedConnection) -> None:
        """Remove a connection that has ended or was authenticated."""
        for stage in self._stages.values():
            stage.pop(connection, None)

    def cut_all(self) -> None:
        """Cut all unauthenticated connections, because the daemon ends."""
        for stage in self._stages.values():
            for connection in list(stage):
                connection.cut()

    def is_one(self, connection: GuardedConnection) -> bool:
        """Return True if the connection is still unauthenticated."""
        return any(connection in stage for stage in self._stages.values())

    def _move(self, connection: GuardedConnection, stage: Stage) -> None:
        if self.is_one(connection):  # else it was cut meanwhile
            self.leave(connection)
            self._stages[stage][connection] = None

    def _refuse(self, kind: str, reason: str) -> None:
        """Count a refusal: as `kind` in the log and as `reason` in the metrics."""
        self._refusals.count(kind)
        figures.REFUSED.labels(reason).inc()

    def _push_out(self) -> None:
        self._cut_oldest(next(stage for stage in Stage if self._stages[stage]))

    def _cut_oldest(self, stage: Stage) -> None:
        oldest = next(iter(self._stages[stage]))
        self.leave(oldest)
        oldest.cut()
        self._refuse("pushed out by newer ones", "pushed_out")


class GuardedConnection(ServerConnection):
    """A websocket connection that is cut without notice if its peer exceeds a limit."""

    strangers: Strangers

    def __init__(self, protocol: ServerProtocol, server: Server, **options: Any) -> None:
        protocol.max_message_size = MAX_MESSAGE  # until message 3; frames can come right behind the HTTP request
        super().__init__(protocol, server, **options)
        self._was_made = self._was_let_in = False
        self._is_cut = False
        self._bytes = self._frames = self._loose = 0

    def let_in(self) -> None:
        """Lift the limits, because the peer has proven its key. From then on the limits of its
        session apply.
        """
        self._was_let_in = True
        self.strangers.leave(self)

    def cut(self) -> None:
        self._is_cut = True
        self.transport.abort()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the new connection. The websocket, which needs a task, is created only when the
        first bytes arrive.
        """
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._silence = self.loop.call_later(HTTP_DEADLINE_S, self.cut)
        self.strangers.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silence.cancel()
        self.strangers.leave(self)
        if self._was_made:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the websocket, and cut the connection if it exceeds a limit."""
        if not self._was_made and not self._is_cut:
            self._begin()
        if not self._was_let_in:
            self._bytes += len(data)
            if self._bytes > MAX_BYTES:
                self.cut()
        for start in range(0, len(data), _PIECE):
            if self._is_cut:
                return
            super().data_received(data[start : start + _PIECE])
            if self.transport.get_write_buffer_size() > MAX_UNREAD:
                self.cut()

    def _begin(self) -> None:
        self._silence.cancel()
        if self.strangers.open(self):
            self._was_made = True
            super().connection_made(self.transport)
        else:
            self.cut()

    def eof_received(self) -> None:
        if not self._is_cut and self._was_made:
            super().eof_received()

    def process_event(self, event: Event) -> None:
        """Count the frame, and cut the connection if there are too many; otherwise let the
        websocket handle it.
        """
        if isinstance(event, Frame):
            is_whole = event.fin and event.opcode in (Opcode.BINARY, Opcode.TEXT)
            self._loose = 0 if is_whole else self._loose + 1
            self._frames += 1
            if self._loose > MAX_LOOSE_FRAMES or (self._frames > MAX_FRAMES and not self._was_let_in):
                self.cut()
        if not self._is_cut:
            super().process_event(event)


def limit_http() -> None:
    """Limit the size of HTTP requests in this process. The websockets library reads these values at
    each request; its default is 128 lines of 8 KiB.
    """
    http11.MAX_LINE_LENGTH = MAX_HTTP_LINE
    http11.MAX_NUM_HEADERS = MAX_HTTP_HEADERS
