"""The listening socket. It limits unauthenticated connections, answers plain HTTP and passes on
connections that complete the handshake.

Unauthenticated clients get `GET /health` and `/ready` only. Everything else is a websocket that
begins with the handshake.
"""

from __future__ import annotations

import errno
import http
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from confide_crypto.limits import Timers, websocket_options
from confide_crypto.transport.open_channel import Authorize, Connection, accept
from confide_daemon import figures
from confide_daemon.datadir.daemon_keys import Keys
from confide_daemon.errors import ListenError
from confide_daemon.server.listening.health_endpoint import Answers, response
from confide_daemon.server.listening.refused_connections import Refusals, result_of
from confide_daemon.server.listening.strangers import HTTP_DEADLINE_S, GuardedConnection, Strangers, limit_http

ACCEPTED_AT_ONCE: Final = 8
"""Connections accepted before other events are handled: each costs about 0.1 ms, and a flood never
ends.
"""
MAX_WAITING_CONNECTIONS: Final = 1024
"""Length of the kernel's accept queue. When it is full a client retries after a second, and after a
restart all callers reconnect at once.
"""


def listen_arguments(host: str, port: int) -> dict[str, Any]:
    """Return the keyword arguments with which `serve` listens on this address. Raises OSError if
    the address cannot be bound.

    `::` means every address of IPv6 and IPv4, as in other servers; asyncio would listen on IPv6
    only.
    """
    try:
        is_everywhere = ipaddress.IPv6Address(host).is_unspecified
    except ValueError:
        is_everywhere = False
    if not is_everywhere:
        return {"host": host, "port": port}
    return {
        "sock": socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=socket.has_dualstack_ipv6())
    }


class SocketOwner(Protocol):
    """The daemon's attributes that its sockets use."""

    @property
    def timers(self) -> Timers:
        """When a channel of this socket sends a keepalive, and when it regards a silent peer as lost."""

    @property
    def refusals(self) -> Refusals:
        """The counters of refused connections."""

    def keys(self) -> Keys:
        """Return the daemon keys that are valid now."""


class SocketListener:
    """A socket that accepts connections from `open` to `stop_accepting`. Its owner closes the
    channels that it opened.
    """

    def __init__(
        self,
        daemon: SocketOwner,
        authorize: Authorize,
        on_open: Callable[[Connection], Awaitable[None]],
        answers: Answers | None = None,
    ) -> None:
        """Args:
        authorize: decides which keys are accepted.
        on_open: called for each opened channel, with no await in between; it serves the channel until its end.
        answers: the plain HTTP handler; None answers every path with not found.
        """
        self._daemon = daemon
        self._authorize = authorize
        self._on_open = on_open
        self._answers = answers or Answers()
        # One per socket, so that a flood at one address does not lock out clients of another.
        self.strangers = Strangers(daemon.refusals)
        self._server: Server | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen on the address; port 0 selects a free port. Raises ListenError if the address
        cannot be bound.
        """
        limit_http()
        try:
            self._server = await serve(
                self._handle,
                **listen_arguments(host, port),
                process_request=self._answer,
                open_timeout=HTTP_DEADLINE_S,
                server_header=None,
                create_connection=self.strangers.connection_class(),
                backlog=ACCEPTED_AT_ONCE,
                logger=quiet_logger(),
                **websocket_options(),
            )
        except OSError as error:
            where = f"{host}:{port}"
            if error.errno == errno.EADDRINUSE:
                hint = "is another confided running? choose another port with --listen"
                raise ListenError(where, "the port is in use", hint=hint) from error
            raise ListenError(
                where, error.strerror or type(error).__name__, hint="is the host one of this machine?"
            ) from error
        for listener in self._server.sockets:
            with socket.fromfd(listener.fileno(), listener.family, listener.type) as same:
                same.listen(MAX_WAITING_CONNECTIONS)  # asyncio has one number for both

    @property
    def address(self) -> tuple[str, int]:
        """The IP address and port on which the socket listens."""
        assert self._server is not None
        host, port = next(iter(self._server.sockets)).getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """The URL by which clients on this computer reach the socket."""
        host, port = self.address
        if host in ("0.0.0.0", "::"):  # noqa: S104 - what was bound, to be replaced by what can be reached
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
        return f"confide://[{host}]:{port}" if ":" in host else f"confide://{host}:{port}"

    def stop_accepting(self) -> None:
        """Stop accepting connections; existing ones continue."""
        if self._server is not None:
            self._server.close(close_connections=False)

    async def close(self) -> None:
        """Close the socket and all unauthenticated connections."""
        if self._server is not None:
            self._server.close()
            self.strangers.cut_all()
            await self._server.wait_closed()

    def _answer(self, _connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP; return None for a websocket, which goes on to its handshake."""
        if "websocket" not in request.headers.get("Upgrade", "").lower():
            return self._answers(request)
        # Every browser sends `Origin` and no client of ours does. A web page could connect even to
        # a loopback address, so refuse it.
        if not request.headers.get_all("Origin"):
            return None
        self.strangers.refuse_page()
        return response(http.HTTPStatus.FORBIDDEN, {"error": "web pages are not served here"})

    async def _handle(self, ws: ServerConnection) -> None:
        assert isinstance(ws, GuardedConnection)
        keys = self._daemon.keys()
        try:
            connection = await accept(
                ws,
                keys.current,
                self._authorize,
                previous=keys.rotation,
                slot=self.strangers.handshake(ws),
                timers=self._daemon.timers,
            )
        except Exception as error:
            figures.HANDSHAKES.labels(result_of(error)).inc()
            self._daemon.refusals.note(error)
            return
        figures.HANDSHAKES.labels("ok").inc()
        ws.let_in()
        await self._on_open(connection)


def quiet_logger() -> logging.Logger:
    """Return a logger that logs only critical errors, for the websockets library.

    The library logs tracebacks of failed handshakes and whole frames, with which unauthenticated
    peers could fill the log.
    """
    quiet = logging.getLogger("confide_daemon.websockets")
    quiet.setLevel(logging.CRITICAL)
    return quiet
