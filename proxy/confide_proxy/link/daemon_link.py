"""The link to the daemon: it connects, attaches, serves, and reconnects after a break.

The link is down, connecting or up, and records since when and why. Every wait for it has a
deadline. Callbacks do the work that follows a connection: to replay the client's `initialize`, and
to compare files.

Once an hour the link moves to a connection with fresh keys (PROTOCOL.md 7.9). It makes and attaches
the new connection first, lets pending requests finish on the old one, and then closes that.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from confide_crypto.errors import (
    ConfideError,
    ConnectionLost,
    HandshakeError,
    RequestError,
    UnreachableError,
    where,
)
from confide_crypto.keys.identity import Identity
from confide_crypto.limits import Timers
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection, connect
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_memory.documents import RequestChannel
from confide_memory.wire.session import ATTACH, Attached, AttachRequest
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import NotJoinedError, StateError
from confide_proxy.link import daemon, founding
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.link.restore_detection import DaemonReceipts
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

CONNECT_DEADLINE_S = 10.0
ATTACH_DEADLINE_S = 10.0
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 30.0
STEADY_S = 10.0
"""Seconds after which a link that breaks is retried with the shortest back-off; a link that broke
sooner is not.
"""
_IMPATIENT_S = 0.25
"""Shortest back-off in seconds, even if a call waits."""
RENEW_AGAIN_S = 60.0
"""Seconds until the next attempt if a fresh connection could not be made: the old one is good for
another hour.
"""
_RETIRE_POLL_S = 0.1
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Pauses in seconds between retries of requests that a busy daemon refused: half a minute together.
A daemon that is busy for longer has another problem.
"""
_UNLOCKS = 2
"""Most unlocks per attach request: an idle space may lock itself again between two requests, but
hardly twice.
"""


class Callbacks(NamedTuple):
    """The functions that a link calls on its events.

    Attributes:
        on_up: the link is attached. It is awaited before messages are passed on.
        on_message: a JSON-RPC message from the daemon has arrived.
        on_request: a request from the daemon has arrived (`apply`, `scan`).
        on_stream: a request from the daemon with a body has arrived.
        on_down: the link broke or could not be made. The argument is the reason, for users.
        on_renewed: everything goes over a fresh connection from now on. It is awaited.
        on_locked: the daemon cannot open the space's database until a device sends the key. It is
            awaited; then the refused request is sent again.
        is_waiting: returns True if calls that were sent on the connection with this session id
            still wait for responses.
        on_retired: a replaced connection has ended. The arguments are its session id and the
            reason; no reason (None) if all its calls were answered.
    """

    on_up: Callable[[Attached], Awaitable[None]]
    on_request: Callable[[str, dict[str, object]], Awaitable[dict[str, object]]]
    on_stream: Callable[[str, dict[str, object], Body], Awaitable[dict[str, object]]]
    on_down: Callable[[ConfideError], None]
    on_renewed: Callable[[Attached], Awaitable[None]]
    on_locked: Callable[[Connection], Awaitable[None]]
    on_message: Callable[[bytes], Awaitable[None]] | None = None
    is_waiting: Callable[[str], bool] = lambda _session_id: False
    on_retired: Callable[[str, ConfideError | None], None] = lambda _session_id, _reason: None


@dataclass(frozen=True, slots=True, eq=False)
class _Leg:
    """An attached connection, with the task that serves it."""

    connection: Connection
    serving: asyncio.Task[None]
    attached: Attached


class Link:
    """The link of one process to this device's daemon, for a project and the global one. `run`
    keeps it up.
    """

    def __init__(
        self,
        paths: ProxyPaths,
        config: ProxyConfig,
        attach: list[AttachRequest],
        callbacks: Callbacks,
        machine: MachineKeys | None = None,
    ) -> None:
        """Args:
        attach: the bodies of the attach requests; the response to the first one becomes `attached`.
        machine: the keys to connect with, if the caller needs to know them.
        """
        self._machine = machine or MachineKeys(paths)
        self._paths = paths
        self._config = config
        self._attach = attach
        self._more: dict[str, AttachRequest] = {}
        self._callbacks = callbacks
        self.receipts = DaemonReceipts(paths)
        self.message_count = 0
        """Number of messages and requests, in both directions."""
        self._connection: Connection | None = None
        self._retiring: dict[str, Connection] = {}
        self._poke = asyncio.Event()
        self.is_up: bool | None = None
        """True if the link is up; None during the first attempt."""
        self.since = time.time()
        self.reason: ConfideError | None = None
        self.daemon_static = b""
        """The X25519 key of the daemon that answers, or that `reason` is about; this device may
        have joined another one since.
        """
        self.attached: Attached | None = None

    @property
    def session_id(self) -> str:
        """Return the session id of the current connection, on which new messages are sent; ""
        without a connection.
        """
        return self._connection.session_id if self._connection else ""

    async def run(self) -> None:
        """Connect to the daemon, and reconnect after every break, until cancelled."""
        # The back-off equals the time waited since the link last held, so that calls which cut it
        # short do not lengthen it.
        waited_s = 0.0
        while True:
            started = came_up = time.monotonic()
            try:
                leg = await self._connect({})
                came_up = time.monotonic()
                await self._hold(leg)
                reason: ConfideError = ConnectionLost(truncated=False)
            except BaseException as error:
                raise_if_cancelled()
                reason = self._reason(error)
            if self.is_up and time.monotonic() - came_up > STEADY_S:
                waited_s = 0.0
            self._connection = None
            self._enter(is_up=False, reason=reason)
            self._callbacks.on_down(reason)
            log.info("link down after %.1f s: %s", time.monotonic() - started, type(reason).__name__)
            backoff_s = min(max(waited_s, FIRST_BACKOFF_S), LONGEST_BACKOFF_S)
            waited_s += await self._pause(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret

    def poke(self) -> None:
        """Try to connect now, without waiting for the end of the back-off, since a call waits."""
        self._poke.set()

    def abandon(self) -> None:
        """Abort a connection on which the daemon does not answer; `run` then reconnects."""
        if self._connection is not None:
            self._connection.abort()

    async def send_message(self, data: bytes, session_id: str = "") -> None:
        """Send a JSON-RPC message.

        Args:
            session_id: the connection of the call that the message is about; "" for the current
                one.

        Raises ConnectionLost if the link is down, or if that connection has ended.
        """
        connection = self._connection
        if session_id and session_id != self.session_id:
            connection = self._retiring.get(session_id)
        if connection is None:
            raise ConnectionLost(truncated=False)
        self.message_count += 1
        await connection.send_message(data)

    async def request(
        self, op: str, body: dict[str, object], *, timeout_s: float, bulk: bool = False
    ) -> dict[str, object]:
        """Send a request to the daemon and return the response (PROTOCOL.md 9).

        Raises:
            RequestError: the response is an error.
            ConnectionLost: the link is down, or breaks before the response.
            TimeoutError: no response arrives within `timeout_s`.
        """
        return await self._send(lambda connection: connection.request(op, body, timeout_s=timeout_s, bulk=bulk))

    async def upload(self, op: str, body: dict[str, object], data: bytes, *, timeout_s: float) -> dict[str, object]:
        """Send a request with a body of bytes, and return the response (PROTOCOL.md 7.4).

        Raises RequestError, ConnectionLost or TimeoutError, as `request` does.
        """
        return await self._send(lambda connection: connection.upload(op, body, data, timeout_s=timeout_s))

    async def _send(self, ask: Callable[[Connection], Awaitable[Any]]) -> dict[str, object]:
        connection = self._connection
        if connection is None:
            raise ConnectionLost(truncated=False)
        self.message_count += 1
        try:
            answer: dict[str, object] = await ask(connection)
        except RequestError as error:
            # An idle space locks itself.
            if error.code != "locked":
                raise
            await self._callbacks.on_locked(connection)
            answer = await ask(connection)
        return answer

    @property
    def space(self) -> str:
        """Return the id of the space that the link last led to; "" before the first connection."""
        return self.attached["space"] if self.attached is not None else ""

    async def also_attach(self, body: AttachRequest) -> None:
        """Attach another project, on this connection and on each later one.

        Raises RequestError, ConnectionLost or TimeoutError, as `request` does.
        """
        if self._connection is None:
            raise ConnectionLost(truncated=False)
        await attach(self._connection, body, self._callbacks.on_locked)
        self._more[body["project"]] = body

    async def close(self) -> None:
        """Close all connections with a closing message, by which the daemon knows that nothing is
        missing.
        """
        open_ones = [*self._retiring.values(), *([self._connection] if self._connection else [])]
        await asyncio.gather(*(connection.close() for connection in open_ones))

    async def _connect(self, hello: dict[str, object]) -> _Leg:
        connection = await open_connection(self._paths, self._config, hello, keys=self._machine)
        if self._connection is None:
            self.daemon_static = connection.peer_static
        callbacks = self._callbacks
        # Served while attaching, since the responses come through this task.
        serving = asyncio.create_task(
            connection.serve(on_message=callbacks.on_message, on_request=self._on_request, on_stream=self._on_stream)
        )
        try:
            first, *others = self._attach
            first = {**first, "receipt": await asyncio.to_thread(self.receipts.newest)}
            answers = [await attach(connection, body, callbacks.on_locked) for body in (first, *others)]
            for body in self._more.values():
                with suppress(RequestError):  # not accessible any more; the link stays up without it
                    await attach(connection, body, callbacks.on_locked)
            await asyncio.to_thread(self.receipts.take, answers[0])
        except BaseException:
            await end(connection, serving)
            raise
        return _Leg(connection, serving, answers[0])

    async def _on_request(self, op: str, body: dict[str, object]) -> dict[str, object]:
        self.message_count += 1
        return await self._callbacks.on_request(op, body)

    async def _on_stream(self, op: str, params: dict[str, object], body: Body) -> dict[str, object]:
        self.message_count += 1
        return await self._callbacks.on_stream(op, params, body)

    async def _hold(self, leg: _Leg) -> None:
        """Serve until the daemon closes or the connection breaks; move to a fresh connection when
        it is time.
        """
        retiring: set[asyncio.Task[None]] = set()
        try:
            self._connection, self.attached = leg.connection, leg.attached
            await self._callbacks.on_up(leg.attached)
            self._enter(is_up=True, reason=None)
            wait_s = self._renew_after_s()
            while not (await asyncio.wait({leg.serving}, timeout=wait_s))[0]:
                fresh = await self._renew_leg(leg)
                wait_s = self._renew_after_s() if fresh else min(RENEW_AGAIN_S, self._config.renew_s)
                if fresh is not None:
                    task = asyncio.create_task(self._retire(leg))
                    retiring.add(task)
                    task.add_done_callback(retiring.discard)
                    leg = fresh
                    await self._callbacks.on_renewed(fresh.attached)
            await leg.serving
        finally:
            for task in retiring:
                task.cancel()
            await asyncio.gather(end(leg.connection, leg.serving), *retiring, return_exceptions=True)

    async def _renew_leg(self, leg: _Leg) -> _Leg | None:
        """Replace the connection of `leg` by a fresh one and return that; None if it cannot be made
        now.

        Raises ConnectionLost: it leads to another space, since this device has joined another
        daemon meanwhile.
        """
        try:
            fresh = await self._connect({"replaces": leg.connection.session_id})
        except Exception as error:
            raise_if_cancelled()
            log.info("kept the connection: a fresh one failed with %s", type(self._reason(error)).__name__)
            return None
        if fresh.attached["space"] != leg.attached["space"]:
            # Revisions confirmed in one space mean nothing in the other, so the sync starts again;
            # otherwise files would be overwritten without a merge.
            await end(fresh.connection, fresh.serving)
            raise ConnectionLost(truncated=False, problem="this device has joined another space")
        # Without an await, so that each request finds a connection.
        self._retiring[leg.connection.session_id] = leg.connection
        self._connection, self.attached = fresh.connection, fresh.attached
        self.daemon_static = fresh.connection.peer_static
        log.info("moved to a fresh connection, session %s", fresh.connection.session_id)
        return fresh

    async def _retire(self, leg: _Leg) -> None:
        """Close an old connection once all its requests have their responses."""
        session_id = leg.connection.session_id
        reason: ConfideError | None = ConnectionLost(truncated=True)
        try:
            while leg.connection.is_in_use or self._callbacks.is_waiting(session_id):
                if (await asyncio.wait({leg.serving}, timeout=_RETIRE_POLL_S))[0]:
                    await leg.serving
                    return
            reason = None
        except Exception as error:
            reason = self._reason(error)
        finally:
            await end(leg.connection, leg.serving)
            self._retiring.pop(session_id, None)
            self._callbacks.on_retired(session_id, reason)

    def _renew_after_s(self) -> float:
        # Jitter, so that the devices of one daemon do not all reconnect in the same second.
        return self._config.renew_s * random.uniform(0.9, 1.0)  # noqa: S311

    def _reason(self, error: BaseException) -> ConfideError:
        """Return an error for users. Re-raises exceptions that end the program."""
        if isinstance(error, ConfideError):
            return error
        if isinstance(error, TimeoutError):
            return UnreachableError("the daemon", "it does not answer in time")
        if isinstance(error, OSError):
            return StateError(self._paths.state, error)
        if isinstance(error, Exception):
            # Threads or memory are exhausted, or it is a bug; invalid messages from the daemon
            # raise errors of their own. The next attempt may succeed, and calls are answered
            # without the link.
            log.error("the link failed: %s", where(error))
            return ConnectionLost(truncated=False, problem=f"this device could not make it ({where(error)})")
        raise error

    async def _pause(self, seconds: float) -> float:
        """Wait for so long, or until a call waits for the link; return the seconds waited."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                await self._poke.wait()
        except TimeoutError:
            pass
        finally:
            self._poke.clear()
        early = min(seconds, _IMPATIENT_S) - (time.monotonic() - started)
        if early > 0:
            await asyncio.sleep(early)
        return time.monotonic() - started

    def _enter(self, *, is_up: bool, reason: ConfideError | None) -> None:
        if is_up is not self.is_up:
            self.since = time.time()
        self.is_up, self.reason = is_up, reason


async def open_connection(
    paths: ProxyPaths,
    config: ProxyConfig,
    hello: dict[str, object] | None = None,
    *,
    keys: MachineKeys | None = None,
    tell: Callable[[str], None] | None = None,
    patience_s: float = CONNECT_DEADLINE_S,
) -> Connection:
    """Open a connection to the daemon that this device has joined, or else to its own, which is
    started if necessary.

    Args:
        hello: the fields of the hello message (PROTOCOL.md 4.3).
        keys: this device's keys, if the caller has opened or locked them.
        tell: prints the progress for the user.
        patience_s: seconds that the handshake with a daemon may take, from the first byte on.

    Raises:
        NotSetUpError, NotJoinedError, DaemonStartError: there is no daemon to connect to.
        KeyFileError, KeyLockedError, KeyringError: the identity or the pin cannot be used.
        UnreachableError, HandshakeError, DeniedError: the daemon cannot be reached, fails the
            handshake, or refuses this device.
    """
    # Before the key, which is created at first need.
    await asyncio.to_thread(founding.require, paths, config)
    return await (keys or MachineKeys(paths)).connect(partial(_dial, paths, config, hello, tell or _ignore, patience_s))


def _ignore(_text: str) -> None:
    """Discard the progress of a connection that is made in the background."""


async def _dial(
    paths: ProxyPaths,
    config: ProxyConfig,
    hello: dict[str, object] | None,
    tell: Callable[[str], None],
    patience_s: float,
    identity: Identity,
    is_settled: bool,
) -> Connection:
    # Imported here: websockets and the handshake slow down a start, and the first answers do not
    # need them.

    async def reach(joined: daemon.KnownDaemon) -> Connection:
        tell(f"connecting to {urlsplit(joined.url).netloc.rpartition('@')[2]}")
        return await connect(
            joined.url,
            identity,
            joined.daemon_static,
            daemon_key=joined.daemon_key,
            timeout_s=patience_s,
            hello=hello,
            timers=Timers.every(config.keepalive_s),
        )

    pinned = await asyncio.to_thread(daemon.load_pin, paths.link)
    if pinned is not None:
        connection = await reach(pinned)
        try:
            # Before all else: a device that does not follow while the old key is valid is locked
            # out (PROTOCOL.md 7.11).
            await asyncio.to_thread(daemon.follow, paths.link, pinned, connection)
        except BaseException:
            await connection.close()
            raise
        return connection
    if not config.on_demand:
        raise NotJoinedError
    data = paths.daemon_data
    if is_settled:  # a key that the daemon does not know yet must not be enrolled as another device's
        await asyncio.to_thread(daemon.authorize, data, identity)
    address = await daemon.ensure(data, idle_exit_s=config.idle_exit_s, tell=tell)
    began = time.monotonic()
    try:
        return await reach(address)
    except (UnreachableError, HandshakeError):
        if time.monotonic() - began >= patience_s and await asyncio.to_thread(daemon.is_served, data):
            # The daemon is stopped or overloaded: another one could not start in its place, and
            # without the address file it could not be found when it continues.
            raise
        # After a kill -9 the address file remains, and another program may listen on its port by
        # now. The daemon's lock decides if one runs: a second daemon ends at once. A daemon with a
        # rotated key has written another address.
        if daemon.read_address(data) == address:
            (data / daemon.ADDRESS_FILE).unlink(missing_ok=True)
        return await reach(await daemon.ensure(data, idle_exit_s=config.idle_exit_s, tell=tell))


async def attach(
    connection: Connection, body: AttachRequest, on_locked: Callable[[Connection], Awaitable[None]]
) -> Attached:
    """Send an attach request and return the response; unlock the space first if it is locked.

    Raises RequestError if the daemon refuses, and all that `on_locked` raises.
    """
    for _ in range(_UNLOCKS):
        try:
            return await ATTACH.ask(connection, body, timeout_s=ATTACH_DEADLINE_S)
        except RequestError as error:
            if error.code != "locked":
                raise
            await on_locked(connection)
    return await ATTACH.ask(connection, body, timeout_s=ATTACH_DEADLINE_S)


async def end(connection: Connection, serving: asyncio.Task[None]) -> None:
    """Close a connection, and wait for the end of the task that serves it."""
    await connection.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)  # its holder gets the error


class RetryingLink:
    """A link that repeats a request a limited number of times if the daemon answers `busy`
    (PROTOCOL.md 8.2). So a long sync slows down instead of failing. Repeating is harmless, since
    all requests of a sync are idempotent.
    """

    def __init__(self, link: RequestChannel, *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._link = link
        self._pauses_s = pauses_s

    async def request(
        self, op: str, body: dict[str, object], *, timeout_s: float, bulk: bool = False
    ) -> dict[str, object]:
        """Send a request and return its response; `timeout_s` applies to each attempt."""
        return await self._insist(lambda: self._link.request(op, body, timeout_s=timeout_s, bulk=bulk))

    async def upload(self, op: str, body: dict[str, object], data: bytes, *, timeout_s: float) -> dict[str, object]:
        """Send a request with a body of bytes and return its response; `timeout_s` applies to each
        attempt.
        """
        return await self._insist(lambda: self._link.upload(op, body, data, timeout_s=timeout_s))

    async def _insist(self, ask: Callable[[], Awaitable[dict[str, object]]]) -> dict[str, object]:
        for pause_s in self._pauses_s:
            try:
                return await ask()
            except RequestError as error:
                if error.code != "busy":
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that many files do not come back together
        return await ask()
