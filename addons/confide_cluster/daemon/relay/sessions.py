"""Sessions of callers whose spaces other nodes hold, passed on to these (PROTOCOL.md 12). Loaded where `[node]` is set.

A channel to the holder is one session, so nothing is told apart here: what comes on one goes out on the other, and the end of one is the
end of the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from confide_cluster.daemon.relay.holders import LOOK_S, Far, Holders
from confide_cluster.shared.speaking import Speaker
from confide_crypto.errors import ConnectionLost, DeniedError, ProtocolViolation
from confide_crypto.transport.inbox import Body, Toll
from confide_crypto.transport.open import Connection
from confide_daemon import figures
from confide_daemon.server.mcp.tool_calls import may_be_asked_again

log = logging.getLogger(__name__)

LONGEST_S: Final = 3600.0
"""For an answer that is passed on: whoever has asked has a deadline of its own."""
DRAIN_S: Final = 5.0


@dataclass(eq=False)
class _Passed:
    """A session that is passed on."""

    near: Connection
    far: Connection
    calls: int = 0  # of the caller's messages, those that are not answered yet
    is_leaving: bool = False  # what comes from now on is asked again elsewhere

    @property
    def is_in_use(self) -> bool:
        return self.near.is_in_use or self.far.is_in_use or self.calls > 0


class Relays:
    """One for a daemon; on the event loop."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self._passed: set[_Passed] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._passed)

    @property
    def callers(self) -> set[bytes]:
        """The keys of those whose sessions are passed on."""
        return {one.near.peer_key for one in self._passed}

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Whether a session of a caller with this id is passed on."""
        return any(one.near.session_id == session_id and one.near.peer_key == public_key for one in self._passed)

    async def serve(self, connection: Connection, space_id: str, toll: Toll) -> bool:
        """Pass a caller's session on to whoever holds its space, until it ends; False: this node is to serve it.

        Raises EngineError: nobody can be asked who that is, or that node takes no sessions of others.
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
        """End the sessions of a caller."""
        for one in self._passed:
            if one.near.peer_key == key:
                log.info("session %s: its caller is shut out: %s", one.near.session_id, word)
                task = asyncio.create_task(one.near.close(word))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """End all, each as soon as nothing of it is under way, or after some seconds."""
        await asyncio.gather(*(self._drain(one) for one in list(self._passed)), return_exceptions=True)

    async def _pass(self, near: Connection, to: Far, toll: Toll) -> None:
        """Pass on what comes on either, until one of them ends; then the other one ends as it did."""
        far = to.connection
        passed = _Passed(near, far)
        self._passed.add(passed)
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
                # A caller that has gone without a goodbye has not said that this was everything: neither does this.
                if ends[0].exception() is None:
                    await far.close(near.close_code or "done")
                else:
                    far.abort()
            else:
                await near.close((far.close_code if ends[1].exception() is None else None) or "restart")
        finally:
            self._passed.discard(passed)
            far.abort()
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        for task in ends:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, ProtocolViolation):
                log.info("session %s: the protocol was broken", near.session_id)
            elif error is not None and not isinstance(error, ConnectionLost):
                # Its text may quote anything.
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
    async def ask(op: str, body: dict[str, Any]) -> dict[str, Any]:
        return await other.request(op, body, timeout_s=LONGEST_S)

    async def send(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        return await other.upload(op, params, body, timeout_s=LONGEST_S)

    more = {} if toll is None else {"toll": toll}
    await one.serve(on_message=on_message, on_request=ask, on_stream=send, **more)


def _is_call(data: bytes) -> bool:
    """Whether a message will be answered, as far as can be told without reading it."""
    return b'"method"' in data and b'"id"' in data
