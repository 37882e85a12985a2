"""Forwards sessions of callers to the nodes that hold their spaces (PROTOCOL.md 12). Loaded if
`[node]` is set.

The node that holds a space is looked up for each channel. The heartbeat then watches it: the
channel is closed once that node no longer holds the space, or counts as dead. A channel to it
carries one session, so messages are not interpreted. Input from one side is sent to the other, and
the end of one ends the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confide_cluster.daemon.spaces.leases import Holder, SpaceLeases
from confide_cluster.shared.speaking import Speaker
from confide_crypto.errors import ConfideError, ConnectionLost, DeniedError, ProtocolViolation, UnreachableError
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.inbox import Body, RateLimit
from confide_crypto.transport.open_channel import Connection, connect
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon import figures
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.addons import PeersHost
from confide_daemon.config import parse_listen
from confide_daemon.errors import EngineError
from confide_daemon.server.mcp.tool_calls import may_be_asked_again

log = logging.getLogger(__name__)

DIAL_S: Final = 3.0
PATIENCE_S: Final = 6.0
"""Time to wait for a holder that ends or does not answer; the caller's requests have a deadline of
10 s.
"""
LOOK_S: Final = 0.05
"""Interval of looking up the holder of a space that is about to be free."""
REFUSALS: Final = 3
REFUSED_FOR_S: Final = 0.5
"""A holder's address must refuse connections repeatedly over this time before its space is taken: a
single refusal may be a restart.
"""
PASSED_ON: Final = frozenset({"revoked", "expired", "busy", "disabled"})
"""Denials that are forwarded to the caller."""


@dataclass(frozen=True, slots=True, eq=False)
class HolderChannel:
    """A channel to the node that holds a space, for one caller."""

    connection: Connection
    space_id: str
    node: int


class Holders:
    """Opens and keeps the channels of a daemon to other nodes. Runs on the event loop."""

    def __init__(self, leases: SpaceLeases, daemon: PeersHost) -> None:
        self._leases = leases
        self._daemon = daemon
        self._identity = Identity.generate()  # of this run, and in memory alone
        self._in_use: set[HolderChannel] = set()
        leases.spaces_in_use = lambda: {one.space_id: one.node for one in self._in_use}
        leases.on_moved = self._on_moved

    async def reach(
        self, space_id: str, speaker: Callable[[int], Speaker], *, is_begun: bool = False
    ) -> HolderChannel | None:
        """Return a channel to the node that holds the space, or None if this node must serve it.

        Args:
            speaker: returns the statement for which caller the session is forwarded; called with
                this node's number.
            is_begun: True if the request was accepted already, so that it is answered even if this
                node is stopping.

        Raises:
            EngineError: if it is unknown which node holds the space, or it accepts no forwarded
                sessions.
            DeniedError: if that node refuses the caller, with a reason for the caller
                (`PASSED_ON`).
            ConnectionLost: if that node could not be reached for as long as the caller can wait.
        """
        until = time.monotonic() + PATIENCE_S
        while (holder := await self._leases.holder(space_id)) is not None:
            if not holder.address:
                raise EngineError(
                    f"cannot use the space: node {holder.node} holds it, and takes no sessions of other nodes",
                    hint="set [node] in the daemon.toml of that node, or connect to it",
                )
            try:
                far = await self._dial(holder, speaker)
            except DeniedError as denied:
                if denied.reason in PASSED_ON:
                    raise
                if denied.reason != "restart":
                    log.warning("node %d takes no sessions of this one: are the clocks of both right?", holder.node)
            except UnreachableError:
                raise_if_cancelled()
                if await refuses(holder.address) and await self._leases.free(space_id, holder):
                    continue
            except ConfideError as error:
                raise_if_cancelled()
                log.warning("node %d cannot be reached: %s", holder.node, type(error).__name__)
            else:
                if is_begun or not self._daemon.is_stopping:
                    return HolderChannel(far, space_id, holder.node)
                far.abort()
            if (self._daemon.is_stopping and not is_begun) or time.monotonic() >= until:
                raise ConnectionLost(truncated=False, problem="the node that holds the space cannot be reached")
            await asyncio.sleep(LOOK_S)
        return None

    async def reach_by_http(self, caller: Caller, session_id: str) -> HolderChannel | None:
        """Return a channel to the node that holds an HTTP caller's space, or None if this node must
        serve it. The request was accepted already, so it is answered even if this node is stopping.

        Raises EngineError if it is unknown which node holds the space; DeniedError if that node
        refuses the caller; ConnectionLost if it could not be reached in time.
        """
        return await self.reach(
            caller.space_id,
            lambda node: Speaker(node, caller.public_key, session_id, is_by_http=True),
            is_begun=True,
        )

    @contextmanager
    def relying_on(self, far: HolderChannel) -> Iterator[None]:
        """Close the channel at the end of the block, or as soon as its node no longer holds the
        space.
        """
        self._in_use.add(far)
        try:
            yield
        finally:
            self._in_use.discard(far)
            far.connection.abort()

    async def _dial(self, holder: Holder, speaker: Callable[[int], Speaker]) -> Connection:
        keys = self._daemon.keys()
        said = speaker(await self._leases.node())
        return await connect(
            f"ws://{holder.address}",
            self._identity,
            keys.current.static_key,
            daemon_key=keys.current.public_key,
            hello=said.hello(keys.current, self._identity.public_key, now=int(time.time())),
            timeout_s=DIAL_S,
            timers=self._daemon.timers,
        )

    def _on_moved(self, space_id: str) -> None:
        for one in list(self._in_use):
            if one.space_id == space_id:
                one.connection.abort()


async def refuses(address: str) -> bool:
    """Return True if an address refuses several connections in a row. A timeout does not count,
    since the node may only be cut off from this one, and serve others.
    """
    host, port = parse_listen(address)
    for look in range(REFUSALS):
        if look:
            await asyncio.sleep(REFUSED_FOR_S / (REFUSALS - 1))
        try:
            async with asyncio.timeout(REFUSED_FOR_S):
                _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            continue
        except (OSError, TimeoutError):
            return False
        writer.close()
        return False
    return True


LONGEST_S: Final = 3600.0
"""Limit for a forwarded response; the caller has a deadline of its own."""
DRAIN_S: Final = 5.0


@dataclass(eq=False)
class _Passed:
    """A forwarded session."""

    near: Connection
    far: Connection
    calls: int = 0  # of the caller's messages, those that are not answered yet
    is_leaving: bool = False  # what comes from now on is asked again elsewhere

    @property
    def is_in_use(self) -> bool:
        return self.near.is_in_use or self.far.is_in_use or self.calls > 0


class Relays:
    """The sessions that a daemon forwards to other nodes. Runs on the event loop."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self._forwarded: set[_Passed] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._forwarded)

    @property
    def callers(self) -> set[bytes]:
        """The keys of the callers whose sessions are forwarded."""
        return {one.near.peer_key for one in self._forwarded}

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Return True if a session with this id, of the caller with this key, is being forwarded."""
        return any(one.near.session_id == session_id and one.near.peer_key == public_key for one in self._forwarded)

    async def serve(self, connection: Connection, space_id: str, toll: RateLimit) -> bool:
        """Forward a caller's session to the node that holds its space, until it ends. Return False
        if this node must serve it.

        Raises EngineError if it is unknown which node holds the space, or that node accepts no
        forwarded sessions.
        """
        replaces = connection.hello.get("replaces")
        key, session_id = connection.peer_key, connection.session_id
        replaced = replaces if isinstance(replaces, str) else None
        try:
            far = await self._holders.reach(space_id, lambda node: Speaker(node, key, session_id, replaced))
        except DeniedError as denied:
            await connection.close(denied.reason)
            return True
        except ConnectionLost:
            await connection.close("restart")
            return True
        if far is None:
            return False
        with self._holders.relying_on(far):
            await self._pass(connection, far, toll)
        return True

    def shut_out(self, key: bytes, word: str) -> None:
        """End the forwarded sessions of the caller with this key, for the reason `word`."""
        for one in self._forwarded:
            if one.near.peer_key == key:
                log.info("session %s: its caller is shut out: %s", one.near.session_id, word)
                task = asyncio.create_task(one.near.close(word))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """End all forwarded sessions, each once it has no request in progress, or after some
        seconds.
        """
        await asyncio.gather(*(self._drain(one) for one in list(self._forwarded)), return_exceptions=True)

    async def _pass(self, near: Connection, to: HolderChannel, toll: RateLimit) -> None:
        """Copy messages in both directions until one side ends; then end the other side the same
        way.
        """
        far = to.connection
        passed = _Passed(near, far)
        self._forwarded.add(passed)
        figures.RELAYED.inc()
        log.info("session %s is passed on to node %d", near.session_id, to.node, extra={"space": to.space_id})

        async def up(data: bytes) -> None:
            if passed.is_leaving and may_be_asked_again(data):
                return
            passed.calls += _is_call(data)
            await far.send_message(data)

        async def down(data: bytes) -> None:
            passed.calls -= passed.calls > 0 and b'"method"' not in data
            await near.send_message(data)

        ends = (
            asyncio.create_task(_serve(near, far, up, toll=toll)),
            asyncio.create_task(_serve(far, near, down)),
        )
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if ends[0].done() and not ends[1].done():
                # A connection that ended without a goodbye may be incomplete; the other side must
                # end the same way.
                if ends[0].exception() is None:
                    await far.close(near.close_code or "done")
                else:
                    far.abort()
            else:
                await near.close((far.close_code if ends[1].exception() is None else None) or "restart")
        finally:
            self._forwarded.discard(passed)
            far.abort()
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        for task in ends:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, ProtocolViolation):
                log.info("session %s: the protocol was broken", near.session_id)
            elif error is not None and not isinstance(error, ConnectionLost):
                # The error's text may quote anything.
                log.error("session %s: passing it on broke: %s", near.session_id, type(error).__name__)

    async def _drain(self, passed: _Passed) -> None:
        passed.is_leaving = True
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await passed.near.go_away("restart")
                while passed.is_in_use:  # noqa: ASYNC110 - of two connections and what they pass, once in a run
                    await asyncio.sleep(LOOK_S)
        await passed.near.close("restart")


async def _serve(one: Connection, other: Connection, on_message: Any, *, toll: Any = None) -> None:
    async def ask(op: str, body: dict[str, object]) -> dict[str, object]:
        return await other.request(op, body, timeout_s=LONGEST_S)

    async def send(op: str, params: dict[str, object], body: Body) -> dict[str, object]:
        return await other.upload(op, params, body, timeout_s=LONGEST_S)

    more = {} if toll is None else {"toll": toll}
    await one.serve(on_message=on_message, on_request=ask, on_stream=send, **more)


def _is_call(data: bytes) -> bool:
    """Return True if a message requires a response, as far as visible without parsing it."""
    return b'"method"' in data and b'"id"' in data
