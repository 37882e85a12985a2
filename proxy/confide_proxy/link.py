"""The link to the daemon: connect, attach, serve, and again after any break.

The link is down, connecting or up, and says since when and why; nobody waits on it without a deadline. What happens once it is up
(replaying the client's `initialize`, comparing files) belongs to those who registered for it.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confide_crypto.errors import ConfideError, ConnectionLost, HandshakeError, ProtocolViolation, UnreachableError
from confide_proxy import joined, ondemand
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import NotJoinedError, StateError
from confide_proxy.paths import Paths

if TYPE_CHECKING:
    from confide_crypto.connection import Connection

log = logging.getLogger(__name__)

CONNECT_DEADLINE_S = 10.0
ATTACH_DEADLINE_S = 10.0
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 30.0
STEADY_S = 10.0
"""A link that has held for so long is tried again at once; one that keeps breaking is not."""
_IMPATIENT_S = 0.25
"""A waiting call may cut a back-off short, but not more often than this."""


class LinkState(enum.Enum):
    """Where the link stands."""

    CONNECTING = "connecting"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Whom the link tells.

    Attributes:
        on_up: attached; awaited before messages are passed on.
        on_message: a JSON-RPC message of the daemon's.
        on_request: a request of the daemon's (`apply`, `scan`).
        on_down: the link broke or could not be made; the reason is for people.
    """

    on_up: Callable[[dict[str, Any]], Awaitable[None]]
    on_message: Callable[[bytes], Awaitable[None]]
    on_request: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
    on_down: Callable[[ConfideError], None]


class Link:
    """One connection at a time to the one daemon of this machine, for one project (and the global one)."""

    def __init__(self, paths: Paths, config: ProxyConfig, attach: dict[str, Any], callbacks: Callbacks) -> None:
        self._paths = paths
        self._config = config
        self._attach = attach
        self._callbacks = callbacks
        self._connection: Connection | None = None
        self._poked = asyncio.Event()
        self.state = LinkState.CONNECTING
        self.since = time.time()
        self.reason: ConfideError | None = None
        self.attached: dict[str, Any] = {}

    @property
    def is_up(self) -> bool:
        """Whether messages pass."""
        return self.state is LinkState.UP

    async def run(self) -> None:
        """Keep the link for as long as the task lives."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            started = time.monotonic()
            try:
                await self._once()
                reason: ConfideError = ConnectionLost(truncated=False)
            except ConfideError as error:
                reason = error
            except TimeoutError:
                reason = UnreachableError("the daemon", "it does not answer in time")
            except OSError as error:
                reason = StateError(self._paths.state, error)
            except (KeyError, TypeError, ValueError, AttributeError):
                # Whatever a daemon sends, it must not take the agent's session down with it.
                reason = ProtocolViolation("the daemon's answer is not of the agreed form; do the versions fit?")
            if self.is_up and time.time() - self.since > STEADY_S:
                backoff_s = FIRST_BACKOFF_S
            self._connection = None
            self._enter(LinkState.DOWN, reason)
            self._callbacks.on_down(reason)
            log.info("link down after %.1f s: %s", time.monotonic() - started, type(reason).__name__)
            await self._pause(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)

    def poke(self) -> None:
        """Somebody is waiting: try again now rather than when the back-off ends."""
        self._poked.set()

    async def send_message(self, data: bytes) -> None:
        """Pass a JSON-RPC message up.

        Raises:
            ConnectionLost: the link is down.
        """
        if self._connection is None:
            raise ConnectionLost(truncated=False)
        await self._connection.send_message(data)

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        """Ask the daemon (PROTOCOL.md 9).

        Raises:
            RequestError: its answer is an error.
            ConnectionLost: the link is or went down.
            TimeoutError: no answer in time.
        """
        if self._connection is None:
            raise ConnectionLost(truncated=False)
        answer: dict[str, Any] = await self._connection.request(op, body, timeout_s=timeout_s, bulk=bulk)
        return answer

    async def close(self) -> None:
        """Say goodbye to the daemon, so that it knows that nothing is missing."""
        if self._connection is not None:
            await self._connection.close()

    async def _once(self) -> None:
        connection = await open_connection(self._paths, self._config)
        try:
            async with asyncio.TaskGroup() as group:
                # The reader runs beside the attach, since its answer comes through the reader.
                up = group.create_task(self._come_up(connection))
                await connection.serve(on_message=self._callbacks.on_message, on_request=self._callbacks.on_request)
                up.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await connection.close()

    async def _come_up(self, connection: Connection) -> None:
        self.attached = await connection.request("attach", self._attach, timeout_s=ATTACH_DEADLINE_S)
        self._connection = connection
        await self._callbacks.on_up(self.attached)
        self._enter(LinkState.UP, None)

    async def _pause(self, seconds: float) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            return
        finally:
            self._poked.clear()
        early = min(seconds, _IMPATIENT_S) - (time.monotonic() - started)
        if early > 0:
            await asyncio.sleep(early)

    def _enter(self, state: LinkState, reason: ConfideError | None) -> None:
        if state is not self.state:
            self.since = time.time()
        self.state, self.reason = state, reason


async def open_connection(paths: Paths, config: ProxyConfig) -> Connection:
    """One connection to the daemon this machine has joined, or else to its own, started if need be.

    Raises:
        NotJoinedError, DaemonStartError: there is no daemon to connect to.
        KeyFileError: the identity or the pin may not be used as it is.
        UnreachableError, HandshakeError, DeniedError: from the connection attempt.
    """
    # Imported here: websockets and the handshake cost more than a start-up may, and the first answers do not need them.
    from confide_crypto.connection import connect

    identity = await asyncio.to_thread(joined.identity, paths.identity)
    pinned = await asyncio.to_thread(joined.load, paths.link)
    if pinned is not None:
        connection = await connect(
            pinned.url, identity, pinned.daemon_static, daemon_key=pinned.daemon_key, timeout_s=CONNECT_DEADLINE_S
        )
        try:
            # Before anything else is done: whoever misses the time of the old key is shut out (PROTOCOL.md 7.11).
            await asyncio.to_thread(joined.follow, paths.link, pinned, connection)
        except BaseException:
            await connection.close()
            raise
        return connection
    if not config.on_demand:
        raise NotJoinedError
    data = paths.daemon_data
    await asyncio.to_thread(ondemand.authorize, data, identity)
    address = await ondemand.ensure(data, idle_exit_s=config.idle_exit_s)
    try:
        return await connect(address.url, identity, address.daemon_static, timeout_s=CONNECT_DEADLINE_S)
    except (UnreachableError, HandshakeError):
        # After a kill -9 the address file is still there, and another program may listen on its port by now. The daemon's own lock
        # decides whether there is one: a second daemon ends at once. A daemon whose key was rotated has written another address.
        if ondemand.read_address(data) == address:
            (data / ondemand.ADDRESS_FILE).unlink(missing_ok=True)
        address = await ondemand.ensure(data, idle_exit_s=config.idle_exit_s)
        return await connect(address.url, identity, address.daemon_static, timeout_s=CONNECT_DEADLINE_S)
