"""A socket on which channels are opened: strangers on it are bounded, HTTP is answered, and each handshake that ends well is passed on.

`GET /health` and `/ready` are all that strangers are told. Everything else is a websocket that begins with the handshake.
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
"""Connections taken in before calls are looked at again: each costs some 0.1 ms, and a flood brings them without end."""
MAX_WAITING_CONNECTIONS: Final = 1024
"""In the kernel's queue: whoever finds it full tries again after a second, and after a restart all callers come at once."""


def where_of(host: str, port: int) -> dict[str, Any]:
    """Where `serve` is to listen. Raises OSError: the address cannot be bound.

    `::` is every address of both families, as it is where others listen. asyncio would take IPv6 alone there.
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
    """The daemon, as its sockets see it."""

    @property
    def timers(self) -> Timers:
        """Of its channels."""

    @property
    def refusals(self) -> Refusals:
        """Where it is counted why some became no session."""

    def keys(self) -> Keys:
        """Return those that are answered to now."""


class SocketListener:
    """Takes connections from `open` until `shut`; what was let in by then is its owner's to end."""

    def __init__(
        self,
        daemon: SocketOwner,
        authorize: Authorize,
        on_open: Callable[[Connection], Awaitable[None]],
        answers: Answers | None = None,
    ) -> None:
        """
        Args:
            authorize: says who may come in.
            on_open: called, without a pause, with each channel that was opened; it serves it until its end.
            answers: to plain HTTP; None: there is nothing to be found.
        """
        self._daemon = daemon
        self._authorize = authorize
        self._on_open = on_open
        self._answers = answers or Answers()
        # Of its own for each socket: a flood at one address must not keep those of another one out.
        self.strangers = Strangers(daemon.refusals)
        self._server: Server | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen there; 0 takes a free port. Raises ListenError: the address cannot be bound."""
        limit_http()
        try:
            self._server = await serve(
                self._handle,
                **where_of(host, port),
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
    def bound(self) -> tuple[str, int]:
        """The address and the port that were taken."""
        assert self._server is not None
        host, port = next(iter(self._server.sockets)).getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Where it can be reached from this machine."""
        host, port = self.bound
        if host in ("0.0.0.0", "::"):  # noqa: S104 - what was bound, to be replaced by what can be reached
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
        return f"confide://[{host}]:{port}" if ":" in host else f"confide://{host}:{port}"

    def shut(self) -> None:
        """Take no more connections; those that there are stay."""
        if self._server is not None:
            self._server.close(close_connections=False)

    async def close(self) -> None:
        """End, with all whom nobody knows."""
        if self._server is not None:
            self._server.close()
            self.strangers.cut_all()
            await self._server.wait_closed()

    def _answer(self, _connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP; None lets a websocket pass on to its handshake."""
        if "websocket" not in request.headers.get("Upgrade", "").lower():
            return self._answers(request)
        # Every browser sends `Origin` and no client of ours does: what any page could open, also to this machine, is not opened at all.
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
    """websockets logs tracebacks of failed handshakes and whole frames; strangers must not be able to fill the log."""
    quiet = logging.getLogger("confide_daemon.websockets")
    quiet.setLevel(logging.CRITICAL)
    return quiet
