"""Serves metrics over TCP to a Prometheus server: `GET /metrics` with a token, on a separate port.

It is not on the port for devices: through a tunnel or reverse proxy every unknown client there
seems local. A connection here has the limits of an unauthenticated one there, and gets nothing but
the metrics.
"""

from __future__ import annotations

import errno
import hmac
import http
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file
from confide_daemon.config import MetricsConfig, parse_listen
from confide_daemon.datadir.credentials import MAX_KEY, credential
from confide_daemon.errors import ListenError
from confide_daemon.server.listening.listener import listen_arguments, quiet_logger
from confide_daemon.server.listening.refused_connections import Refusals
from confide_daemon.server.listening.strangers import HTTP_DEADLINE_S, Strangers

CREDENTIAL: Final = "confide-metrics-token"
"""Name of the credential that systemd passes."""
LEAST_TOKEN: Final = 16
MOST_SCRAPERS: Final = 16
_HINT: Final = "make one with: openssl rand -hex 32 > FILE && chmod 600 FILE, and name it as token_file of [metrics]"


class Exposition:
    """Serves the metrics, from `open` to `close`."""

    def __init__(self, listen: str, token: str) -> None:
        self._listen = listen
        self._token = token.encode()
        self._server: Server | None = None
        self._strangers = Strangers(Refusals(), most=MOST_SCRAPERS)
        self._text: Callable[[], Awaitable[str]] | None = None

    @classmethod
    def from_config(cls, config: MetricsConfig) -> Self | None:
        """Return the server that `[metrics]` configures, or None if it is not configured. Raises
        KeyFileError if the token cannot be used.
        """
        return cls(config.listen, token(config.token_file)) if config.listen else None

    async def open(self, text: Callable[[], Awaitable[str]]) -> None:
        """Listen for requests; `text` returns the metrics. Raises ListenError if the address cannot
        be bound.
        """
        self._text = text
        host, port = parse_listen(self._listen)
        try:
            self._server = await serve(
                _no_websocket,
                **listen_arguments(host, port),
                process_request=self._answer,
                open_timeout=HTTP_DEADLINE_S,
                server_header=None,
                create_connection=self._strangers.connection_class(),
                logger=quiet_logger(),
            )
        except OSError as error:
            why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or type(error).__name__
            hint = "choose another one as listen of [metrics] in daemon.toml, or take it out: confided status --watch needs none"
            raise ListenError(f"{host}:{port} for metrics", why, hint=hint) from error

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        assert self._server is not None
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close(close_connections=False)
            self._strangers.cut_all()
            await self._server.wait_closed()
            self._server = None

    async def _answer(self, _connection: ServerConnection, request: Request) -> Response:
        is_get = getattr(request, "method", "GET") in ("GET", "HEAD")
        if not is_get or request.path.partition("?")[0] != "/metrics":
            return _response(http.HTTPStatus.NOT_FOUND, "not found\n")
        said = request.headers.get_all("Authorization")
        if len(said) != 1 or not hmac.compare_digest(said[0].encode(errors="replace"), b"Bearer " + self._token):
            return _response(http.HTTPStatus.UNAUTHORIZED, "a token is needed\n")
        assert self._text is not None
        return _response(http.HTTPStatus.OK, await self._text(), CONTENT_TYPE_PLAIN_0_0_4)


def token(file: str) -> str:
    """Return the token in this file. If `file` is empty, return the token that systemd passes as a
    credential.

    Raises KeyFileError if the file is missing, readable by others, owned by another user, or
    malformed.
    """
    path = Path(file).expanduser() if file else credential(CREDENTIAL)
    if path is None:
        raise KeyFileError(Path(CREDENTIAL), "is not handed over, and there is no token_file", hint=_HINT)
    try:
        data = read_private_file(path) if file else path.read_bytes()
    except OSError as error:
        raise KeyFileError(path, f"cannot be read: {error.strerror or type(error).__name__}") from None
    found = data[: MAX_KEY + 1].decode("ascii", errors="replace").strip()
    if not LEAST_TOKEN <= len(found) <= MAX_KEY or not found.isascii() or not found.isprintable() or " " in found:
        raise KeyFileError(path, f"holds no token: that is one word of {LEAST_TOKEN} letters at least", hint=_HINT)
    return found


async def _no_websocket(_connection: ServerConnection) -> None:
    """Do nothing: every request is answered before it could become a websocket."""


def _response(status: http.HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> Response:
    data = text.encode()
    headers = Headers({"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close"})
    headers["Cache-Control"] = "no-store"
    if status is http.HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(status, status.phrase, headers, data)
