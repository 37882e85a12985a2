"""The link to the daemon: connect, attach, serve, and again after any break.

The link is down, connecting or up, and says since when and why; nobody waits on it without a deadline. What happens once it is up
(replaying the client's `initialize`, comparing files) belongs to those who registered for it.

Once an hour it moves to a connection with fresh keys (PROTOCOL.md 7.9): the new one is made and attached first, what was asked on the old
one is answered there, and then the old one is closed.
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
"""A link that has held for so long is tried again at once; one that keeps breaking is not."""
_IMPATIENT_S = 0.25
"""A waiting call may cut a back-off short, but not more often than this."""
RENEW_AGAIN_S = 60.0
"""After a fresh connection could not be made: the old one is good for another hour."""
_RETIRE_POLL_S = 0.1
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Between tries of what a busy daemon has put off: half a minute together. One that is busy for longer has another trouble than us."""
_UNLOCKS = 2
"""A space may lock itself again, for having been idle, between two requests; hardly twice."""


class Callbacks(NamedTuple):
    """Whom the link tells.

    Attributes:
        on_up: attached; awaited before messages are passed on.
        on_message: a JSON-RPC message of the daemon's.
        on_request: a request of the daemon's (`apply`, `scan`).
        on_stream: the same with a body.
        on_down: the link broke or could not be made; the reason is for people.
        on_renewed: from now on everything goes over a fresh connection; awaited.
        on_locked: a connection to a space that is locked; awaited, and then it is tried again.
        is_waiting: whether calls that were sent on a connection, by its session id, still wait for their answers.
        on_retired: that connection is gone; the reason is None if all its calls were answered.
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
    """A connection that is served and attached."""

    connection: Connection
    serving: asyncio.Task[None]
    attached: Attached


class Link:
    """The way to the one daemon of this machine, for one project and the global one."""

    def __init__(
        self,
        paths: ProxyPaths,
        config: ProxyConfig,
        attach: list[AttachRequest],
        callbacks: Callbacks,
        machine: MachineKeys | None = None,
    ) -> None:
        """
        Args:
            attach: the bodies of the attach requests; what the first one answers is `attached`.
            machine: the keys to connect with, where the caller wants to know them.
        """
        self._machine = machine or MachineKeys(paths)
        self._paths = paths
        self._config = config
        self._attach = attach
        self._more: dict[str, AttachRequest] = {}
        self._callbacks = callbacks
        self.receipts = DaemonReceipts(paths)
        self.passed = 0
        """Messages and requests, either way."""
        self._connection: Connection | None = None
        self._retiring: dict[str, Connection] = {}
        self._poked = asyncio.Event()
        self.is_up: bool | None = None
        """None during the first attempt."""
        self.since = time.time()
        self.reason: ConfideError | None = None
        self.daemon_static = b""
        """The X25519 key of the daemon that answers, or that `reason` is of, though this machine may have joined another one since."""
        self.attached: Attached | None = None

    @property
    def session_id(self) -> str:
        """Of the connection that everything new goes over; "" while there is none."""
        return self._connection.session_id if self._connection else ""

    async def run(self) -> None:
        """Keep the link for as long as the task lives."""
        # The back-off is as long again as was waited since the link last held, so that calls which cut it short do not make it long.
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
        """Somebody is waiting: try again now rather than when the back-off ends."""
        self._poked.set()

    def abandon(self) -> None:
        """Nobody is at the other end any more, although the connection stands: give it up without a goodbye, and make another."""
        if self._connection is not None:
            self._connection.abort()

    async def send_message(self, data: bytes, session_id: str = "") -> None:
        """Pass a JSON-RPC message up; one that is about a call on an older connection names its session.

        Raises ConnectionLost: the link is down, or that connection is gone.
        """
        connection = self._connection
        if session_id and session_id != self.session_id:
            connection = self._retiring.get(session_id)
        if connection is None:
            raise ConnectionLost(truncated=False)
        self.passed += 1
        await connection.send_message(data)

    async def request(
        self, op: str, body: dict[str, object], *, timeout_s: float, bulk: bool = False
    ) -> dict[str, object]:
        """Ask the daemon (PROTOCOL.md 9).

        Raises:
            RequestError: its answer is an error.
            ConnectionLost: the link is or went down.
            TimeoutError: no answer in time.
        """
        return await self._asked(lambda connection: connection.request(op, body, timeout_s=timeout_s, bulk=bulk))

    async def upload(self, op: str, body: dict[str, object], data: bytes, *, timeout_s: float) -> dict[str, object]:
        """Ask the daemon with a body (PROTOCOL.md 7.4). Raises as `request`."""
        return await self._asked(lambda connection: connection.upload(op, body, data, timeout_s=timeout_s))

    async def _asked(self, ask: Callable[[Connection], Awaitable[Any]]) -> dict[str, Any]:
        connection = self._connection
        if connection is None:
            raise ConnectionLost(truncated=False)
        self.passed += 1
        try:
            answer: dict[str, object] = await ask(connection)
        except RequestError as error:
            # A space locks itself when nothing was asked of it for long enough.
            if error.code != "locked":
                raise
            await self._callbacks.on_locked(connection)
            answer = await ask(connection)
        return answer

    @property
    def space(self) -> str:
        """The space that the daemon said last; "" while it has said none."""
        return self.attached["space"] if self.attached is not None else ""

    async def also_attach(self, body: AttachRequest) -> None:
        """Attach one more project now, and on each connection to come. Raises as `request`."""
        if self._connection is None:
            raise ConnectionLost(truncated=False)
        await attach(self._connection, body, self._callbacks.on_locked)
        self._more[body["project"]] = body

    async def close(self) -> None:
        """Say goodbye to the daemon, so that it knows that nothing is missing."""
        open_ones = [*self._retiring.values(), *([self._connection] if self._connection else [])]
        await asyncio.gather(*(connection.close() for connection in open_ones))

    async def _connect(self, hello: dict[str, object]) -> _Leg:
        connection = await open_connection(self._paths, self._config, hello, keys=self._machine)
        if self._connection is None:
            self.daemon_static = connection.peer_static
        callbacks = self._callbacks
        # Served beside the attach, since its answer comes through the reader.
        serving = asyncio.create_task(
            connection.serve(on_message=callbacks.on_message, on_request=self._on_request, on_stream=self._on_stream)
        )
        try:
            first, *others = self._attach
            first = {**first, "receipt": await asyncio.to_thread(self.receipts.shown)}
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
        self.passed += 1
        return await self._callbacks.on_request(op, body)

    async def _on_stream(self, op: str, params: dict[str, object], body: Body) -> dict[str, Any]:
        self.passed += 1
        return await self._callbacks.on_stream(op, params, body)

    async def _hold(self, leg: _Leg) -> None:
        """Serve until the daemon closes or the connection breaks, moving to a fresh one when it is time."""
        retiring: set[asyncio.Task[None]] = set()
        try:
            self._connection, self.attached = leg.connection, leg.attached
            await self._callbacks.on_up(leg.attached)
            self._enter(is_up=True, reason=None)
            wait_s = self._renew_after_s()
            while not (await asyncio.wait({leg.serving}, timeout=wait_s))[0]:
                fresh = await self._renewed(leg)
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

    async def _renewed(self, leg: _Leg) -> _Leg | None:
        """A fresh connection in place of `leg`'s, already the one that is used; None if none can be had now.

        Raises ConnectionLost: it leads to another space: this machine has joined another daemon meanwhile.
        """
        try:
            fresh = await self._connect({"replaces": leg.connection.session_id})
        except Exception as error:
            raise_if_cancelled()
            log.info("kept the connection: a fresh one failed with %s", type(self._reason(error)).__name__)
            return None
        if fresh.attached["space"] != leg.attached["space"]:
            # What was confirmed here counts for nothing there, so all of it begins anew: files would be overwritten unmerged else.
            await end(fresh.connection, fresh.serving)
            raise ConnectionLost(truncated=False, problem="this device has joined another space")
        # In one step, so that no request is ever between two connections.
        self._retiring[leg.connection.session_id] = leg.connection
        self._connection, self.attached = fresh.connection, fresh.attached
        self.daemon_static = fresh.connection.peer_static
        log.info("moved to a fresh connection, session %s", fresh.connection.session_id)
        return fresh

    async def _retire(self, leg: _Leg) -> None:
        """Close an old connection once everything asked there is answered."""
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
        # Jitter, so that the machines of one daemon do not all come in the same second.
        return self._config.renew_s * random.uniform(0.9, 1.0)  # noqa: S311

    def _reason(self, error: BaseException) -> ConfideError:
        """What a person is told. Re-raises what ends the program."""
        if isinstance(error, ConfideError):
            return error
        if isinstance(error, TimeoutError):
            return UnreachableError("the daemon", "it does not answer in time")
        if isinstance(error, OSError):
            return StateError(self._paths.state, error)
        if isinstance(error, Exception):
            # No thread or memory is to be had, or a fault of ours; what a daemon sends is read by its form, and refused by name. The next
            # attempt may do better, and calls are answered without it.
            log.error("the link failed: %s", where(error))
            return ConnectionLost(truncated=False, problem=f"this device could not make it ({where(error)})")
        raise error

    async def _pause(self, seconds: float) -> float:
        """Wait so long, or until somebody is impatient; the seconds that it was."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            pass
        finally:
            self._poked.clear()
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
    """One connection to the daemon this machine has joined, or else to its own, started if need be.

    Args:
        hello: what to say to the daemon (PROTOCOL.md 4.3).
        keys: this machine's, where the caller has opened or locked them.
        tell: is told what is being done, for people.
        patience_s: for a daemon that is there, from the first byte to the open channel.

    Raises:
        NotSetUpError, NotJoinedError, DaemonStartError: there is no daemon to connect to.
        KeyFileError, KeyLockedError, KeyringError: the identity or the pin may not be used as it is.
        UnreachableError, HandshakeError, DeniedError: from the connection attempt.
    """
    # Before the key, which is made at the first need.
    await asyncio.to_thread(founding.require, paths, config)
    return await (keys or MachineKeys(paths)).connect(partial(_dial, paths, config, hello, tell or _ignore, patience_s))


def _ignore(_text: str) -> None:
    """Of a link that is made beside other work."""


async def _dial(
    paths: ProxyPaths,
    config: ProxyConfig,
    hello: dict[str, object] | None,
    tell: Callable[[str], None],
    patience_s: float,
    identity: Identity,
    is_settled: bool,
) -> Connection:
    # Imported here: websockets and the handshake cost more than a start-up may, and the first answers do not need them.

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
            # Before anything else is done: whoever misses the time of the old key is shut out (PROTOCOL.md 7.11).
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
            # A daemon that is stopped or overloaded: another could not take its place, and without its address nobody would find it when
            # it goes on.
            raise
        # After a kill -9 the address file is still there, and another program may listen on its port by now. The daemon's own lock
        # decides whether there is one: a second daemon ends at once. A daemon whose key was rotated has written another address.
        if daemon.read_address(data) == address:
            (data / daemon.ADDRESS_FILE).unlink(missing_ok=True)
        return await reach(await daemon.ensure(data, idle_exit_s=config.idle_exit_s, tell=tell))


async def attach(
    connection: Connection, body: AttachRequest, on_locked: Callable[[Connection], Awaitable[None]]
) -> Attached:
    """The answer to an attach request; a space that is locked is unlocked first.

    Raises:
        RequestError: the daemon refuses.
        Whatever `on_locked` raises.
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
    """Close a connection, and wait until nothing of it runs."""
    await connection.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)  # its holder gets the error


class RetryingLink:
    """A link whose requests wait and try again on `busy` (PROTOCOL.md 8.2), a bounded number of times: a long sync goes on more slowly, it
    does not fail. All that a replica asks is idempotent.
    """

    def __init__(self, link: RequestChannel, *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._link = link
        self._pauses_s = pauses_s

    async def request(
        self, op: str, body: dict[str, object], *, timeout_s: float, bulk: bool = False
    ) -> dict[str, object]:
        """As `Connection.request`; `timeout_s` is for each try."""
        return await self._insist(lambda: self._link.request(op, body, timeout_s=timeout_s, bulk=bulk))

    async def upload(self, op: str, body: dict[str, object], data: bytes, *, timeout_s: float) -> dict[str, object]:
        """As `Connection.upload`; `timeout_s` is for each try."""
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
