"""The process of `confide http serve`: loopback sockets, uvicorn, and the session with the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final

from confide_crypto import portable
from confide_crypto.errors import ConfideError, KeyFileError, where
from confide_crypto.keys.private_files import make_private_dir, write_private_file
from confide_crypto.transport.task_group import TaskGroup
from confide_http.door import serving
from confide_http.errors import GatewayError
from confide_http.local.gateway_app import GatewayShared, RouteGroup, create
from confide_http.local.rest import health_route, openapi, route_table
from confide_http.local.running_gateway import RUNNING
from confide_http.local.streamable import endpoint
from confide_http.local.upstream import UpstreamSession
from confide_proxy import VERSION, addons
from confide_proxy.config import ProxyConfig
from confide_proxy.link import services
from confide_proxy.locks import Seat
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project

log = logging.getLogger(__name__)

ROUTE_GROUPS: Final[Sequence[Callable[[GatewayShared], RouteGroup]]] = (
    health_route.routes,
    endpoint.routes,
    openapi.routes,
    route_table.routes,
)
"""The gateway's own routes, before those of add-ons (`Addon.rooms`)."""
MAX_CONNECTIONS: Final = 256
GOODBYE_S: Final = 1.0
END_S: Final = 3.0
_LOCALHOST: Final = ("127.0.0.1", "::1")
_NOT_HERE: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
"""Errors of a computer without IPv6, or without IPv4; other users cannot bind these addresses
either.
"""
_TRIES: Final = 16
"""Tries to find a free port that is also free at the other address."""


def loopback(host: str) -> str:
    """Return the address to listen on. Raises GatewayError if the host is not a loopback address."""
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        is_loopback = ip_address(name).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise GatewayError(
            "the gateway listens on this device only, since anyone who reaches it with a token reads in clear",
            hint="leave --host out, or give 127.0.0.1 or ::1; for other devices there is the gateway of confided",
        )
    return name


def listen(host: str, port: int, *, any_port: bool = False) -> list[socket.socket]:
    """Return the listening sockets, that of `host` first, one for each address of `localhost`. If
    `port` is 0, or is taken and `any_port` is true, they have a free port.

    If one address were left free, another user of the computer could take it, and would receive the
    tokens of clients that use the name. Raises GatewayError if the port is taken or not available.
    """
    for wanted in [port, *([0] * _TRIES if port == 0 or any_port else [])]:
        found: list[socket.socket] = []
        try:
            for address in dict.fromkeys((host, *_LOCALHOST)):
                try:
                    found.append(serving.listen(address, found[0].getsockname()[1] if found else wanted))
                except OSError as error:
                    if not found or error.errno not in _NOT_HERE:
                        raise
        except OSError as error:
            for each in found:
                each.close()
            if error.errno != errno.EADDRINUSE:
                raise GatewayError(f"cannot listen on port {port}: {error.strerror}") from error
        else:
            return found
    raise GatewayError(
        f"port {port} is taken", hint="is confide http serve running already? else choose another with --port"
    )


async def serve(
    paths: ProxyPaths,
    config: ProxyConfig,
    project: Project,
    listening: Sequence[socket.socket],
    *,
    on_ready: Callable[[GatewayShared], object] = lambda _gateway: None,
    idle_exit_s: float | None = None,
) -> None:
    """Serve on these sockets, which have the same port, until SIGTERM or SIGINT, or until no client
    has used the gateway for `idle_exit_s` seconds.
    """
    make_private_dir(paths.gateway)
    gateway = GatewayShared(paths, config, UpstreamSession(paths, config, project))
    gateway.port = listening[0].getsockname()[1]
    rooms = [*ROUTE_GROUPS, *await asyncio.to_thread(addons.each, "rooms")]
    server = serving.EmbeddedServer(serving.settings(create(gateway, rooms), most_connections=MAX_CONNECTIONS))
    stop = asyncio.Event()
    portable.call_on_signals(asyncio.get_running_loop(), portable.ending_signals(), stop.set)
    try:
        async with _publish(gateway):
            work = {"following tokens": gateway.watch, **gateway.work}
            async with TaskGroup() as group:
                tasks = [group.create_task(gateway.exchange.run())]
                keep = gateway.exchange.session.services.keep
                tasks += [group.create_task(keep(name, each)) for name, each in work.items()]
                running_server = group.create_task(server.serve(sockets=list(listening)))
                on_ready(gateway)
                waiting: list[asyncio.Task[Any]] = [group.create_task(stop.wait())]
                if idle_exit_s is not None:
                    waiting.append(group.create_task(gateway.idle(idle_exit_s)))
                await asyncio.wait({running_server, *waiting}, return_when=asyncio.FIRST_COMPLETED)
                await _end(gateway, server, running_server)
                for task in (*tasks, running_server, *waiting):
                    task.cancel()
    except Exception as error:
        raise _error_to_show(error) from None
    finally:
        for each in listening:
            each.close()


@contextlib.asynccontextmanager
async def _publish(gateway: GatewayShared) -> AsyncIterator[None]:
    """Publish this gateway for `confide panel`, which uses the first of several."""
    seat, running = Seat(gateway.paths.seats, "gateway"), gateway.paths.gateway / RUNNING
    try:
        if seat.try_take():
            said = {"pid": os.getpid(), "port": gateway.port, "version": VERSION}
            await asyncio.to_thread(write_private_file, running, json.dumps(said).encode(), replace=True)
    except (KeyFileError, OSError) as error:
        log.warning("confide panel does not find this gateway: %s", services.reason(error))
    try:
        yield
    finally:
        if seat.is_taken:
            with contextlib.suppress(OSError):
                running.unlink(missing_ok=True)
        seat.leave()


async def _end(gateway: GatewayShared, server: serving.EmbeddedServer, running_server: asyncio.Task[None]) -> None:
    """Close clients and the session with the daemon, within `END_S`: a thread that waits for a disk
    must not keep this process.
    """
    timer = threading.Timer(END_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    gateway.end()
    server.should_exit = True
    for leaving in (asyncio.shield(running_server), gateway.exchange.link.close()):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await leaving
    await asyncio.to_thread(gateway.tokens.save_uses)
    timer.cancel()


def _error_to_show(error: Exception) -> ConfideError:
    """Return the error to show for what ended the gateway; for a bug of ours, only its place."""
    return error if isinstance(error, ConfideError) else GatewayError(f"the gateway failed: {where(error)}")
