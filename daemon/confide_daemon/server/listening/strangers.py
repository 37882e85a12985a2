"""What a connection may cost before anybody has proven a key on it (PROTOCOL.md 8.1)."""

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
"""Of them, with a handshake under way."""
OPENINGS_PER_S: Final = 1000.0
OPENINGS_AT_ONCE: Final = 1000.0
"""Connections on which something came: a websocket opened in vain costs 350 us. So whoever has opened one has 0.19 s for message 1 at least
before newer ones push it out; in peace it has 5 s."""
HANDSHAKES_PER_S: Final = 200.0
HANDSHAKES_AT_ONCE: Final = 400.0
"""Answers to a message 1 that is one, for which its sender must know this daemon's key, or have recorded somebody who does. One costs half
a millisecond; whoever holds such a place has 0.32 s for message 3 at least. Garbage costs a Diffie-Hellman of 80 us, and no place."""
HTTP_DEADLINE_S: Final = 5.0
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


class Stage(IntEnum):
    """How far a stranger has come; who has come less far makes way first."""

    CONNECTED = 0  # nothing came yet
    OPENED = 1  # an HTTP request, or a part of one
    UNDER_WAY = 2  # a message 1 that was made for this daemon


class Strangers:
    """The connections on which nobody has proven a key yet, HTTP requests included.

    A place is never held against newcomers: where all are taken, the oldest that has come least far is cut. The rates say how long whoever
    goes on has at least. So connections that do nothing keep nobody out, however many there are; sessions are counted elsewhere.
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
        """How many have come just so far."""
        return len(self._stages[stage])

    def connection_class(self) -> type[GuardedConnection]:
        """For `serve(create_connection=...)`: a `GuardedConnection` that is counted here."""
        return type("GuardedConnection", (GuardedConnection,), {"strangers": self})

    def enter(self, connection: GuardedConnection) -> None:
        """Count a new connection."""
        if len(self) >= self._most:
            self._push_out()
        self._stages[Stage.CONNECTED][connection] = None

    def open(self, connection: GuardedConnection) -> bool:
        """Something came on it, for the first time; False if it is to be cut."""
        if not self._openings.take():
            self._refuse("cut at once", "flood")
            return False
        self._move(connection, Stage.OPENED)
        return True

    @contextmanager
    def handshake(self, connection: GuardedConnection) -> Iterator[None]:
        """Hold a place while the daemon answers its message 1 and waits for message 3.

        Raises BusyError: too many came in this second; the caller closes with `CLOSE_BUSY`, at once.
        """
        if not self._handshakes.take():
            raise BusyError
        if self.count(Stage.UNDER_WAY) >= self._most_under_way:
            self._cut_oldest(Stage.UNDER_WAY)
        self._move(connection, Stage.UNDER_WAY)
        yield

    def refuse_page(self) -> None:
        """A web page tried, in a browser that says so."""
        self._refuse("by web pages", "page")

    def leave(self, connection: GuardedConnection) -> None:
        """It has ended, or is none any more."""
        for stage in self._stages.values():
            stage.pop(connection, None)

    def cut_all(self) -> None:
        """The daemon ends, and waits for nobody whom it does not know."""
        for stage in self._stages.values():
            for connection in list(stage):
                connection.cut()

    def is_one(self, connection: GuardedConnection) -> bool:
        """Whether nobody has proven a key on it."""
        return any(connection in stage for stage in self._stages.values())

    def _move(self, connection: GuardedConnection, stage: Stage) -> None:
        if self.is_one(connection):  # else it was cut meanwhile
            self.leave(connection)
            self._stages[stage][connection] = None

    def _refuse(self, kind: str, reason: str) -> None:
        """Count one for the log, which says `kind`, and for the figures, which say `reason`."""
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
    """A websocket that ends, without a word, when its peer goes over what a peer may cost."""

    strangers: Strangers

    def __init__(self, protocol: ServerProtocol, server: Server, **options: Any) -> None:
        protocol.max_message_size = MAX_MESSAGE  # until message 3; frames can come right behind the HTTP request
        super().__init__(protocol, server, **options)
        self._was_made = self._was_let_in = False
        self._is_cut = False
        self._bytes = self._frames = self._loose = 0

    def let_in(self) -> None:
        """A caller has proven its key: from now on the session bounds what comes."""
        self._was_let_in = True
        self.strangers.leave(self)

    def cut(self) -> None:
        self._is_cut = True
        self.transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in. What makes a websocket of it, a task of its own, has to wait until something comes."""
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
        """Parse what came, until it is too much."""
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
        """Count frames; `ServerConnection` does the rest."""
        if isinstance(event, Frame):
            is_whole = event.fin and event.opcode in (Opcode.BINARY, Opcode.TEXT)
            self._loose = 0 if is_whole else self._loose + 1
            self._frames += 1
            if self._loose > MAX_LOOSE_FRAMES or (self._frames > MAX_FRAMES and not self._was_let_in):
                self.cut()
        if not self._is_cut:
            super().process_event(event)


def limit_http() -> None:
    """Bound the HTTP request in this process (the library reads these at every request; its default is 128 lines of 8 KiB)."""
    http11.MAX_LINE_LENGTH = MAX_HTTP_LINE
    http11.MAX_NUM_HEADERS = MAX_HTTP_HEADERS
