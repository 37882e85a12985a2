"""Channels to the nodes that hold spaces of callers who come to this one (PROTOCOL.md 12.2). Loaded where `[node]` is set.

Who holds a space is asked for each channel, and watched by the heartbeat while it lasts: one to a node that does not hold the space any
more, or is dead, is cut.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confide_cluster.daemon.spaces.leases import Holder, Leases
from confide_cluster.shared.speaking import Speaker
from confide_crypto.errors import ConfideError, ConnectionLost, DeniedError, UnreachableError
from confide_crypto.keys.identity import Identity
from confide_crypto.limits import Timers
from confide_crypto.transport.open import Connection, connect
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.access.callers import Caller
from confide_daemon.config import parse_listen
from confide_daemon.datadir.identity import Keys
from confide_daemon.errors import EngineError

log = logging.getLogger(__name__)

DIAL_S: Final = 3.0
PATIENCE_S: Final = 6.0
"""For a holder that ends, or does not answer: the caller's requests wait meanwhile, and have 10 s."""
LOOK_S: Final = 0.05
"""Between two looks at who holds a space that is about to be free."""
REFUSALS: Final = 3
REFUSED_FOR_S: Final = 0.5
"""A holder's address has to refuse so often, over so long, until its space is taken from it: one refusal may be a restart."""
PASSED_ON: Final = frozenset({"revoked", "expired", "busy", "disabled"})
"""Denials that are the caller's to hear."""


@dataclass(frozen=True, slots=True, eq=False)
class Far:
    """A channel to the holder of a space, for one caller."""

    connection: Connection
    space_id: str
    node: int


class Holders:
    """One for a daemon; on the event loop."""

    def __init__(
        self, leases: Leases, keys: Callable[[], Keys], timers: Timers, *, is_stopping: Callable[[], bool]
    ) -> None:
        """`is_stopping`: whether nothing is to be begun any more."""
        self._is_stopping = is_stopping
        self._leases = leases
        self._keys = keys
        self._timers = timers
        self._identity = Identity.generate()  # of this run, and in memory alone
        self._in_use: set[Far] = set()
        leases.relied_on = lambda: {one.space_id: one.node for one in self._in_use}
        leases.on_moved = self._moved

    async def reach(self, space_id: str, speaker: Callable[[int], Speaker], *, is_begun: bool = False) -> Far | None:
        """A channel to whoever holds the space; None: this node is to serve it.

        Args:
            speaker: whom it is for, as said by the node of this number.
            is_begun: what is to be passed on was taken in already, so it is answered also where this node is to stop.

        Raises:
            EngineError: nobody can be asked who that is, or that node takes no sessions of others.
            DeniedError: the holder does not let the caller in, and the caller is to hear it (`PASSED_ON`).
            ConnectionLost: there was none for as long as the caller can wait.
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
                if is_begun or not self._is_stopping():
                    return Far(far, space_id, holder.node)
                far.abort()
            if (self._is_stopping() and not is_begun) or time.monotonic() >= until:
                raise ConnectionLost(truncated=False, problem="the node that holds the space cannot be reached")
            await asyncio.sleep(LOOK_S)
        return None

    async def reach_by_http(self, caller: Caller, session_id: str) -> Far | None:
        """As `reach`, for a caller who comes by HTTP, whose request was taken in already."""
        return await self.reach(
            caller.space_id,
            lambda node: Speaker(node, caller.public_key, session_id, is_by_http=True),
            is_begun=True,
        )

    @contextmanager
    def relying_on(self, far: Far) -> Iterator[None]:
        """Within this the channel is cut where its node does not hold the space any more; behind it in any case."""
        self._in_use.add(far)
        try:
            yield
        finally:
            self._in_use.discard(far)
            far.connection.abort()

    async def _dial(self, holder: Holder, speaker: Callable[[int], Speaker]) -> Connection:
        keys = self._keys()
        said = speaker(await self._leases.node())
        return await connect(
            f"ws://{holder.address}",
            self._identity,
            keys.current.static_key,
            daemon_key=keys.current.public_key,
            hello=said.hello(keys.current, self._identity.public_key, now=int(time.time())),
            timeout_s=DIAL_S,
            timers=self._timers,
        )

    def _moved(self, space_id: str) -> None:
        for one in list(self._in_use):
            if one.space_id == space_id:
                one.connection.abort()


async def refuses(address: str) -> bool:
    """Whether nobody listens at an address, at several looks. Silence is no refusal: the machine may be cut off, and serve others."""
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
