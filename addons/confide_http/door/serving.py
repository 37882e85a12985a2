"""Runs uvicorn on the socket of a gateway, with timeouts, and closes a connection when there are
too many.

uvicorn waits for the head of a request for ever, and answers every client with 503 once its limit
of connections is reached. Here a connection that sends nothing is closed soon. At the limit one
connection is closed: of those whose client must send or read next, the one that has waited longest,
of the client with the most connections. So no client can lock out others with connections alone.
`request_limits.Places` limits the requests that run at the same time, and `pacing` the time that
they take of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from confide_http.door.crowd import Address, Crowd, holder_of
from confide_http.door.pacing import Pace, RequestTurns

BACKLOG: Final = 1024
"""Length of the kernel's queue; a client that finds it full retries after a second."""
ACCEPTED_PER_S: Final = 500.0
"""Connections accepted per second, one in a turn of the loop, since a flood has no end and devices
use the same loop. A connection that is opened and closed costs 0.15 ms.
"""
ACCEPTED_BY_TLS_PER_S: Final = 150.0
"""The same with TLS: a signature takes half a millisecond more."""
AGAIN_S: Final = 1.0
"""Pause before accepting again if the process has no free file descriptor."""
HANDSHAKE_S: Final = 5.0
"""Time limit of a TLS handshake."""
MOST_HANDSHAKES: Final = 128
"""Most TLS handshakes in progress. Each takes 50 KB, and its input is read at once: a byte on each
of five hundred took 5 ms of the loop. At the rate above each has at least 0.85 s.
"""
FIRST_S: Final = 3.0
"""Time limit for the first byte of a connection."""
HEAD_S: Final = 10.0
"""Time limit for the head of a request."""
IDLE_S: Final = 30
"""Time after which an idle connection is closed."""
MAX_HEAD_BYTES: Final = 32 * 1024
FREE_READS: Final = 1
"""Reads of less than `READ_BYTES` that a request may need before its connection rests after each. A
head arrives in one read, or can wait.
"""
READ_BYTES: Final = 512
"""Bytes for which a read does not count: a steady upload does not rest, and is read in turn with
others.
"""
LINGER_S: Final = 1.0
"""Time for a client that is refused during its body to read the response."""
KNOWN: Final = "confide.known"
"""Key in the state of a request with a valid token: the next request on its connection begins
without waiting.
"""
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_TALKATIVE: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "sse_starlette", "mcp")
"""Loggers of libraries that would log URLs and error texts."""

log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; one for `::` accepts IPv4 too. Raises OSError if the address
    cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name the protocol, or asyncio leaves Nagle's algorithm on: a response would wait 40 ms for the
    # acknowledgement of its head.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind((host, port))
        found.listen(BACKLOG)
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


def settings(
    application: Any,
    *,
    most_connections: int,
    finish_s: int = 1,
    cert: Path | None = None,
    key: Path | None = None,
) -> uvicorn.Config:
    """Return the configuration of uvicorn, with TLS if a certificate is given.

    `finish_s` is the time that requests in progress get at shutdown. Raises OSError or ssl.SSLError
    if the certificate cannot be used.
    """
    for name in _TALKATIVE:
        quiet = logging.getLogger(name)
        quiet.propagate, quiet.handlers = False, [logging.NullHandler()]
        quiet.setLevel(logging.CRITICAL)
    found = uvicorn.Config(
        application,
        http=ThrottledProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=most_connections,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=finish_s,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    found.load()
    return found


class EmbeddedServer(uvicorn.Server):
    """A uvicorn server for a process that does other work too."""

    def __init__(self, config: uvicorn.Config, *, pace: Pace | None = None) -> None:
        """`pace`: for clients of a port that other computers reach; None on loopback."""
        super().__init__(config)
        assert config.limit_concurrency is not None
        self._crowd = Crowd(config.limit_concurrency)
        self._pace = pace

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, since the process has its own."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start like uvicorn, but accept connections with `ConnectionListener` if they are paced."""
        if self._pace is None:
            connection: Any = lambda **_uvicorns: self._connection()  # noqa: E731 - its own arguments are those of `self`
            self.config.http_protocol_class = connection
            await super().startup(sockets)
            return
        listeners: list[Any] = [ConnectionListener(each, self._connection, self.config.ssl) for each in sockets or ()]
        for each in listeners:
            each.listen()
        self.servers = listeners
        self.started = True

    def _connection(self) -> ThrottledProtocol:
        return ThrottledProtocol(self.config, self.server_state, {}, self._crowd, self._pace)


class ConnectionListener:
    """Accepts connections one in a turn of the loop and at a limited rate; asyncio's server accepts
    all that wait at once.
    """

    def __init__(
        self, listening: socket.socket, connection: Callable[[], ThrottledProtocol], ssl: SSLContext | None
    ) -> None:
        self._socket = listening
        self._connection = connection
        self._ssl = ssl
        self._turns = RequestTurns(per_second=ACCEPTED_PER_S if ssl is None else ACCEPTED_BY_TLS_PER_S)
        self._coming: dict[asyncio.Task[Any], Coming] = {}
        self._agreeing = Crowd(MOST_HANDSHAKES)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def listen(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._socket, self._somebody_comes)

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._socket)
        self._turns.leave(None, self._take_in)

    async def wait_closed(self) -> None:
        for each in self._coming:
            each.cancel()
        await asyncio.gather(*self._coming, return_exceptions=True)

    def _somebody_comes(self) -> None:
        self._loop.remove_reader(self._socket)
        self._turns.wait(None, self._take_in)

    def _take_in(self) -> None:
        try:
            taken, address = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # it has gone again
        except OSError as error:
            log.error("no connection can be taken in: %s", error.strerror or type(error).__name__)
            self._loop.call_later(AGAIN_S, self.listen)
            return
        else:
            self._begin(taken, address[0])
        self.listen()

    def _begin(self, taken: socket.socket, host: str) -> None:
        taken.setblocking(False)
        one = self._connection()
        # asyncio would wait a minute for a TLS handshake.
        handshake_s = HANDSHAKE_S if self._ssl is not None else None
        task = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: one, taken, ssl=self._ssl, ssl_handshake_timeout=handshake_s)
        )
        coming = Coming(one, task, holder_of(host), self._loop.time())
        self._coming[task] = coming
        task.add_done_callback(partial(self._has_come, taken))
        if self._ssl is not None:
            self._agreeing.enter(coming)

    def _has_come(self, taken: socket.socket, task: asyncio.Task[Any]) -> None:
        coming = self._coming.pop(task)
        self._agreeing.remove(coming)
        # Failures here are the client's: an invalid handshake.
        if (task.cancelled() or task.exception() is not None) and not coming.has_come:
            taken.close()  # if it was cut before it began, nothing else closes it


@dataclass(eq=False, slots=True)
class Coming:
    """A connection that is being accepted; with TLS, until its handshake ends."""

    protocol: ThrottledProtocol
    task: asyncio.Task[Any]
    address: Address
    last_heard: float

    @property
    def waits(self) -> bool:
        return not self.has_come

    @property
    def has_come(self) -> bool:
        return self.protocol.transport is not None

    def cut(self) -> None:
        if not self.has_come:
            self.task.cancel()


class ThrottledProtocol(H11Protocol):
    """An HTTP/1.1 connection of uvicorn with timeouts and pacing."""

    _timer: asyncio.TimerHandle | None = None
    _has_begun = False
    _is_known = False
    _waits_its_turn = False
    _is_refused = False
    _reads = FREE_READS
    last_heard = 0.0
    """The loop time at which the client last sent something."""

    address: Address = ""
    """The network address by which connections of one client are counted together (`holder_of`)."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        crowd: Crowd,
        pace: Pace | None,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._crowd = crowd
        self._pace = pace

    @property
    def waits(self) -> bool:
        """True if the server only waits, because the client has sent no complete request or does
        not read its response.
        """
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def cut(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = holder_of(self.client[0] if self.client else "")
        self.last_heard = self.loop.time()
        self._watch()
        self._crowd.enter(self)

    def data_received(self, data: bytes) -> None:
        self._note_heard()
        super().data_received(data)
        if not self._has_begun:
            self._has_begun = True
            self._unwatch()
        self._watch()
        if self._pace is not None:
            self._reads = min(self._reads + len(data) // READ_BYTES - 1, FREE_READS)
            self._rest(self._pace)

    def _rest(self, pace: Pace) -> None:
        """Pause reading if a head is incomplete, if little came at a time, or if the body belongs to
        an unauthenticated client.
        """
        if self._waits_its_turn:
            return
        has_half_a_head = self.conn.their_state is h11.IDLE
        if has_half_a_head or self._reads < 0:
            self.transport.pause_reading()
            pace.rests.rest(self._read_on)
        elif self.conn.their_state is h11.SEND_BODY and KNOWN not in self.scope["state"]:
            self.transport.pause_reading()
            pace.flowing.rest(self._read_on)

    def handle_events(self) -> None:
        """Process new input. The request of an unauthenticated client waits for its turn once its
        head is complete.
        """
        if self._waits_its_turn:
            return
        is_stranger = self._pace is not None and not self._is_known
        # Work, and so its cost, begins only at the end of the head.
        if is_stranger and self.conn.their_state is h11.IDLE and _HEAD_END.search(self.conn.trailing_data[0]):
            assert self._pace is not None
            self._waits_its_turn = True
            self.transport.pause_reading()
            self._pace.turns.wait(self.address, self._begin)
        else:
            super().handle_events()

    def on_response_complete(self) -> None:
        self._is_known = KNOWN in self.scope["state"]
        self._reads = FREE_READS
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # The request was refused before its body came; further input is ignored, also after a
            # rest.
            self._is_refused = True
            self.transport.pause_reading()
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._crowd.remove(self)
        if self._pace is not None:
            self._pace.rests.leave(self._read_on)
            self._pace.flowing.leave(self._read_on)
            self._pace.flowing.leave(self._close)
            self._pace.turns.leave(self.address, self._begin)
        super().connection_lost(exc)
        # uvicorn's keep-alive timer would hold a connection lost with an error for half a minute.
        self._unset_keepalive_if_required()
        _undo_circle(self.transport)

    def _begin(self) -> None:
        """Begin the request that waited for its turn."""
        self._waits_its_turn = False
        self._read_on()
        super().handle_events()
        self._watch()

    def _read_on(self) -> None:
        if not (self._is_refused or self.flow.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def _note_heard(self) -> None:
        self.last_heard = self.loop.time()
        self._crowd.note_heard(self)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._timer is None and self.timeout_keep_alive_task is None:
            self._timer = self.loop.call_later(HEAD_S if self._has_begun else FIRST_S, self._end)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        if self._pace is None:
            self._close()
        else:
            # Connections that came together have waited together: closing five hundred in one turn
            # would take 80 ms.
            self._pace.flowing.rest(self._close)

    def _close(self) -> None:
        if self.waits and not self.transport.is_closing():
            self.transport.close()


def _undo_circle(transport: asyncio.Transport) -> None:
    """Break a reference cycle of a transport that has ended, so that it is freed at once.

    asyncio's transport holds a method of its own, which only the garbage collector finds: in a
    flood of connections it stopped the loop for 4 ms every second, the 99th percentile of devices'
    waiting times. Python 3.12 breaks the cycle when a transport is closed, not when it is aborted.
    """
    vars(transport).pop("_read_ready_cb", None)
