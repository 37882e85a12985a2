"""Runs the HTTP gateway of a daemon: its socket, uvicorn, and the routes behind the request guard."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from pathlib import Path
from typing import Final

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from confide_crypto.keys.private_files import read_private_file
from confide_crypto.transport.open_channel import Connection
from confide_daemon import __version__
from confide_daemon.addons import DaemonHost, Service
from confide_daemon.config import parse_listen
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.errors import ListenError
from confide_http.door.bearer_auth import PATH, Bearer, resource_of
from confide_http.door.certificates import CertificateError, Renewal, validity_of
from confide_http.door.guard import GatewayNames, Guard, application
from confide_http.door.pacing import Pace
from confide_http.door.serving import MOST_HANDSHAKES, EmbeddedServer, listen, settings
from confide_http.server.access.applications import Applications
from confide_http.server.access.sign_ins import SignIns
from confide_http.server.answering.clients import Clients
from confide_http.server.answering.forwarded_requests import ForwardedRequest
from confide_http.server.answering.gateway_client import FINISH_S
from confide_http.server.answering.sdk_endpoint import SdkEndpoint
from confide_http.server.names import hosts_of, origin_of
from confide_http.server.oauth.client_metadata import ClientMetadata
from confide_http.server.oauth.routes import OPEN_TO_LINKS, SignInRoutes
from confide_http.server.process_share import MOST_FILES
from confide_http.server.token_callers import HINT, SCOPES, TokenCallers
from confide_http.settings import GatewayConfig

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = MOST_FILES - MOST_HANDSHAKES
"""More than the places for streams and requests: the rest is for connections without a request."""
GOODBYE_S: Final = 2.0
CERTIFICATE_ENDS: Final = "gateway_certificate_end_timestamp_seconds"
_LOG: Final = "the daemon's operator finds it in its log"
_WHERE: Final = "for the gateway"
_HINT: Final = "choose another listen of [gateway] in daemon.toml"


class GatewayService(Service):
    """The HTTP service of a daemon with `[gateway]` (`confide_daemon.addons.Service`)."""

    answers_callers = True

    def __init__(self, config: GatewayConfig, daemon: DaemonHost) -> None:
        self._config = config
        self._daemon = daemon
        self._clients: Clients | None = None
        self._endpoint: SdkEndpoint | None = None
        self._from_nodes: set[ForwardedRequest] = set()
        self._server: EmbeddedServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Listen for clients. Raises ListenError if the address or the certificate cannot be used;
        KeyFileError if other users can read the key of the certificate.
        """
        if self._config.key:
            await asyncio.to_thread(read_private_file, Path(self._config.key).expanduser())
        listening = _listen(self._config.listen)
        try:
            port = int(listening.getsockname()[1])
            origin, hosts = origin_of(self._config, port), hosts_of(self._config, port)
            registry, resource = self._daemon.registry, resource_of(origin)
            callers = TokenCallers(registry, resource)
            by_token = Bearer(callers.admit, lambda: origin, SCOPES, hint=HINT, seek=callers.sought)
            self._clients = Clients(self._daemon, callers)
            self._endpoint = SdkEndpoint(self._daemon, self._clients, callers, by_token)
            mcp = Route(PATH, self._endpoint, methods=["GET", "POST", "DELETE"], name="mcp")
            applications = Applications(registry)
            documents = ClientMetadata(applications, self._config.client_hosts, self._config.client_space)
            signing_in = SignInRoutes(applications, SignIns(registry), documents, origin=origin, resource=resource)
            alive = Route("/health", _health, methods=["GET"])
            routes = [alive, *by_token.metadata_routes(servers=[origin]), *signing_in.routes(), mcp]
            guarded = application(routes, GatewayNames(hosts, open_to_links=OPEN_TO_LINKS), hint=_LOG)
            settings, renewal = await asyncio.to_thread(_settings, guarded, self._config)
            self._server = EmbeddedServer(settings, pace=Pace())
        except BaseException:
            listening.close()
            raise
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[listening])),
            asyncio.create_task(self._clients.watch()),
        ]
        if renewal is not None:
            self._tasks.append(asyncio.create_task(renewal.run()))
            says = "When the certificate of the gateway ends."
            self._daemon.gauges.add(CERTIFICATE_ENDS, says, lambda: renewal.validity.ends)
        if (space := self._config.client_space) and space not in registry.spaces():
            log.warning(
                "client_space of [gateway]: there is no space of that name, so no described program can sign in"
            )
        log.info("the gateway listens on %s port %d", listening.getsockname()[0], port)

    async def close(self) -> None:
        """End all streams, answer the requests in progress, and accept no more."""
        if self._clients is None or self._server is None:
            return
        serving, *watching = self._tasks
        self._server.should_exit = True
        for task in watching:
            task.cancel()
        self._clients.end_streams()
        leaving = [asyncio.create_task(node.leave()) for node in self._from_nodes]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S + GOODBYE_S):
                await asyncio.gather(asyncio.shield(serving), *map(asyncio.shield, leaving))
        await self._clients.close()
        for task in (serving, *leaving):
            task.cancel()
        await asyncio.gather(serving, *watching, *leaving, return_exceptions=True)

    def on_change(self, space_id: str, change: DocumentChange) -> None:
        if self._clients is not None:
            self._clients.on_change(space_id, change)

    def on_space_lost(self, space_id: str) -> None:
        if self._clients is not None:
            self._clients.on_space_lost(space_id)

    async def serve(self, connection: Connection) -> None:
        if self._endpoint is None:  # it is about to listen
            await connection.close("restart")
            return
        node = ForwardedRequest(connection, self._endpoint)
        self._from_nodes.add(node)
        try:
            await node.serve()
        finally:
            self._from_nodes.discard(node)

    async def settle(self, space_id: str) -> None:
        if self._clients is not None:
            await self._clients.settle(space_id)


async def _health(_request: Request) -> Response:
    """Report without authentication that the server is alive, and its version."""
    return JSONResponse({"status": "ok", "version": __version__})


def _listen(where: str) -> socket.socket:
    host, port = parse_listen(where)
    try:
        return listen(host, port)
    except OSError as error:
        why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or type(error).__name__
        raise ListenError(f"{host}:{port} {_WHERE}", why, hint=_HINT) from error


def _settings(guarded: Guard, config: GatewayConfig) -> tuple[uvicorn.Config, Renewal | None]:
    """Return uvicorn's configuration, and the task that reloads the certificate."""
    cert, key = (Path(name).expanduser() if name else None for name in (config.cert, config.key))
    try:
        if cert is not None and key is not None:
            validity_of(cert, key)
        found = settings(guarded, most_connections=MAX_CONNECTIONS, finish_s=int(FINISH_S), cert=cert, key=key)
        if cert is None or key is None or found.ssl is None:
            return found, None
        return found, Renewal(found.ssl, cert, key, require=read_private_file)
    except (CertificateError, OSError, ssl.SSLError) as error:
        why = str(error) if isinstance(error, CertificateError) else error.strerror or type(error).__name__
        hint = "cert and key of [gateway] name PEM files that the daemon's own user can read"
        problem = f"its certificate or the key of it cannot be used: {why}"
        raise ListenError(f"{config.listen} {_WHERE}", problem, hint=hint) from error
