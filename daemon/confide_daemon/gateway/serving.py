"""The gateway beside a running daemon: a socket of its own, uvicorn, and the routes behind the guard."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from confide_crypto.errors import ConfideError
from confide_crypto.keys.files import read_private_file
from confide_daemon.config import GatewayConfig, parse_listen
from confide_daemon.errors import ListenError
from confide_daemon.gateway import health
from confide_daemon.gateway.admission import Bearer
from confide_daemon.gateway.clients import Clients
from confide_daemon.gateway.endpoint import PATH, Endpoint
from confide_daemon.gateway.guard import Guard, hosts_of, origin_of
from confide_daemon.gateway.limits import MAX_CONNECTIONS
from confide_daemon.gateway.refusals import RefusalError
from confide_daemon.server.replicas import Change
from confide_daemon.server.server import Daemon

log = logging.getLogger(__name__)

BACKLOG: Final = 128
HEAD_S: Final = 10.0
"""Within which the head of a request has come."""
IDLE_S: Final = 30
"""After which a connection that asks nothing is closed."""
MAX_HEAD_BYTES: Final = 32 * 1024
GOODBYE_S: Final = 2.0
_WHERE: Final = "for the gateway"
_HINT: Final = "choose another listen of [gateway] in daemon.toml"


class Gateway:
    """What a daemon with `[gateway]` serves beside its machines (`server/beside.py`)."""

    def __init__(self, config: GatewayConfig, daemon: Daemon) -> None:
        self._config = config
        self._daemon = daemon
        self._clients: Clients | None = None
        self._server: _Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    def beside(cls, config: GatewayConfig) -> Callable[[Daemon], Gateway]:
        """Makes it for a daemon."""
        return partial(cls, config)

    async def open(self) -> None:
        """Listen. Raises ListenError: the address, or the certificate, cannot be used; KeyFileError: its key is open to others."""
        if self._config.key:
            await asyncio.to_thread(read_private_file, Path(self._config.key).expanduser())
        listening = _listen(self._config.listen)
        try:
            port = int(listening.getsockname()[1])
            origin, hosts = origin_of(self._config, port), hosts_of(self._config, port)
            by_token = Bearer(self._daemon.registry, origin)
            self._clients = Clients(self._daemon, by_token)
            mcp = Route(PATH, Endpoint(self._clients, by_token), methods=["GET", "POST", "DELETE"], name="mcp")
            handlers = {HTTPException: _not_found, ConfideError: _refused}
            application = Starlette(routes=[*health.routes(origin), mcp], exception_handlers=handlers)
            application.router.redirect_slashes = False
            self._server = _Server(_settings(Guard(application, hosts), self._config))
        except BaseException:
            listening.close()
            raise
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[listening])),
            asyncio.create_task(self._clients.watch()),
        ]
        log.info("the gateway listens on %s port %d", listening.getsockname()[0], port)

    async def close(self) -> None:
        """End streams, let what was begun end, and take no more."""
        if self._clients is None or self._server is None:
            return
        serving, watching = self._tasks
        self._server.should_exit = True
        watching.cancel()
        await self._clients.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await asyncio.shield(serving)
        serving.cancel()
        await asyncio.gather(serving, watching, return_exceptions=True)

    def changed(self, space_id: str, change: Change) -> None:
        if self._clients is not None:
            self._clients.changed(space_id, change)

    async def settle(self, space_id: str) -> None:
        if self._clients is not None:
            await self._clients.settle(space_id)


def _listen(where: str) -> socket.socket:
    host, port = parse_listen(where)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, or asyncio leaves Nagle's algorithm on: an answer would wait 40 ms for the head's acknowledgement.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)
        found.setblocking(False)
    except OSError as error:
        found.close()
        why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or type(error).__name__
        raise ListenError(f"{host}:{port} {_WHERE}", why, hint=_HINT) from error
    return found


def _settings(application: Any, config: GatewayConfig) -> uvicorn.Config:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "sse_starlette", "mcp"):
        quiet = logging.getLogger(name)
        # They would write addresses with what stands in them, and errors with their texts.
        quiet.propagate, quiet.handlers = False, [logging.NullHandler()]
        quiet.setLevel(logging.CRITICAL)
    cert, key = (str(Path(name).expanduser()) if name else None for name in (config.cert, config.key))
    settings = uvicorn.Config(
        application,
        http=_Patient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    try:
        settings.load()
    except (OSError, ssl.SSLError) as error:
        why = f"its certificate or the key of it cannot be used: {error.strerror or type(error).__name__}"
        raise ListenError(f"{config.listen} {_WHERE}", why, hint="cert and key of [gateway] name PEM files") from error
    return settings


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the daemon's."""
        yield


class _Patient(H11Protocol):
    """A connection whose requests' heads have to come within `HEAD_S`: uvicorn waits for one for ever."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._head is None and self.timeout_keep_alive_task is None:
            self._head = self.loop.call_later(HEAD_S, self._close_slow)

    def _unwatch(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _close_slow(self) -> None:
        self._head = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ConfideError)
    return RefusalError.of(error).response()


async def _not_found(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: ("not_found", "there is nothing here"), 405: ("invalid", "this takes another method")}
    code, message = words.get(error.status_code, ("invalid", "the request is not one that is answered here"))
    return RefusalError(error.status_code, code, message, headers=error.headers).response()
