"""Forwards a client's requests to the node that holds its space, and returns the responses
(PROTOCOL.md 12.5).

That node keeps the sessions and the streams of notifications, so the client finds them through any
node.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from confide_crypto.errors import ConfideError, ConnectionLost, DeniedError, RequestError
from confide_crypto.transport.inbox import Body
from confide_daemon import figures
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.addons import RemoteSpace, Ways
from confide_daemon.server.mcp.tool_calls import may_be_asked_again
from confide_http.door.refusals import RefusalError
from confide_http.server.answering.http_codec import ANSWER, LEFT, REQUEST, headers_of, number_of, request_of, status_of

log = logging.getLogger(__name__)

LONGEST_S: Final = 3600.0
"""Limit of one exchange, and age at which a channel takes no new ones: its keys then are as old as
those of a session may be (PROTOCOL.md 7.9).
"""
IDLE_S: Final = 60.0
"""Time after which an unused channel is closed."""
TRIES: Final = 3
"""Tries of a request; a holder may end between two of them."""
GOODBYE_S: Final = 5.0


class Forwarder:
    """Forwards one client's requests to the node that holds its space; opens channels to that node
    as needed.
    """

    def __init__(self, ways: Ways, caller: Callable[[], Caller]) -> None:
        self._ways = ways
        self._caller = caller
        self._channel: _Channel | None = None
        self._opening = asyncio.Lock()
        self._former: set[asyncio.Task[None]] = set()

    async def answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> bool:
        """Forward a request. Return True if another node holds the space and has answered, or False
        if this node must answer.

        A request that is safe to repeat is sent again if that node ends meanwhile. Raises
        RefusalError with status 503 if the node cannot be reached, or 502 if it is unknown whether
        it executed the request; EngineError if PostgreSQL is unavailable.
        """
        may_repeat = scope["method"] != "POST" or may_be_asked_again(body, has_operation=False)
        for _ in range(TRIES):
            channel = await self._reach()
            if channel is None:
                return False
            answering = _Answering(send)
            try:
                await channel.ask(scope, body, receive, answering)
            except (ConnectionLost, RequestError, TimeoutError) as error:
                if answering.has_begun:
                    raise _interruption() from error
                if not channel.is_lost and isinstance(error, RequestError):
                    raise
                if answering.is_asked and not may_repeat:
                    # Not 503, on which a load balancer may retry with the next node: it means that
                    # nothing was done.
                    raise RefusalError(
                        502,
                        "unavailable",
                        "the node that holds the space has ended meanwhile, and it is not known whether it did what was asked",
                        hint="look before you ask again",
                    ) from error
            else:
                return True
        raise _unreachable()

    def tidy(self) -> None:
        """Close the channel if it was unused for a while, or if the other node wants it closed."""
        channel = self._channel
        if channel is not None and (channel.is_idle or not channel.is_good):
            self._channel = None
            self._let_go(channel)

    async def close(self) -> None:
        """Close all channels."""
        if self._channel is not None:
            self._let_go(self._channel)
            self._channel = None
        await asyncio.gather(*self._former, return_exceptions=True)

    async def _reach(self) -> _Channel | None:
        """Return a channel to the holder. Raises RefusalError, EngineError."""
        async with self._opening:
            channel = self._channel
            if channel is not None and channel.is_good:
                return channel
            self._channel = None
            if channel is not None:
                self._let_go(channel)
            caller = self._caller()
            session_id = secrets.token_hex(16)
            try:
                far = await self._ways.reach_by_http(caller, session_id)
            except (DeniedError, ConnectionLost) as error:
                log.warning("gateway: the holder of space %s takes no request: %s", caller.space_id, _why(error))
                raise _unreachable() from error
            if far is None:
                return None
            figures.RELAYED.inc()
            self._channel = _Channel(far, self._ways)
            return self._channel

    def _let_go(self, channel: _Channel) -> None:
        """Close a channel once its requests have ended."""
        task = asyncio.create_task(channel.leave())
        self._former.add(task)
        task.add_done_callback(self._former.discard)


class _Answering:
    """The receiver of the response to one request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_asked = False
        """True if the holder may have received the body; without it nothing is executed
        (PROTOCOL.md 7.4).
        """

    async def asking(self, body: bytes) -> AsyncIterator[bytes]:
        """Yield the body of the request as it is sent."""
        self.is_asked = True
        yield body

    async def take(self, said: dict[str, object], body: Body) -> None:
        status, headers = status_of(said), headers_of(said)
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        async for piece in body:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class _Channel:
    """An open channel with its requests."""

    def __init__(self, far: RemoteSpace, ways: Ways) -> None:
        self._far = far
        self._ways = ways
        self._numbers = itertools.count(1)
        self._answers: dict[int, _Answering] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._has_ended = asyncio.Event()
        self._opened_at = self._used_at = time.monotonic()
        self._serving = asyncio.create_task(self._serve())

    @property
    def is_lost(self) -> bool:
        return self._serving.done()

    @property
    def is_good(self) -> bool:
        """True if it accepts another request."""
        is_young = time.monotonic() - self._opened_at < LONGEST_S
        return is_young and not self.is_lost and not self._far.connection.is_going_away

    @property
    def is_idle(self) -> bool:
        return not self._answers and time.monotonic() - self._used_at > IDLE_S

    async def ask(self, scope: Scope, body: bytes, receive: Receive, answering: _Answering) -> None:
        """Forward a request until it is answered or its client leaves. Raises ConnectionLost,
        RequestError, TimeoutError: no whole response.
        """
        number = next(self._numbers)
        self._answers[number] = answering
        said = {"number": number, **request_of(scope)}
        asking = asyncio.create_task(
            self._far.connection.upload(REQUEST, said, answering.asking(body), timeout_s=LONGEST_S)
        )
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
        finally:
            if not asking.done():
                telling = asyncio.create_task(self._notify_left(number))
                self._telling.add(telling)
                telling.add_done_callback(self._telling.discard)
            asking.cancel()
            leaving.cancel()
            await asyncio.gather(asking, leaving, return_exceptions=True)
            del self._answers[number]
            self._used_at = time.monotonic()
            if not self._answers:
                self._has_ended.set()

    async def leave(self) -> None:
        """Close the channel once its requests are answered."""
        while self._answers and not self.is_lost:
            self._has_ended.clear()
            ended = asyncio.create_task(self._has_ended.wait())
            await asyncio.wait({ended, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        await self._far.connection.close()
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    async def _serve(self) -> None:
        with self._ways.relying_on(self._far):
            try:
                await self._far.connection.serve(on_request=_refuse, on_stream=self._answer)
            except ConfideError as error:
                log.info("gateway: the channel to node %d ended: %s", self._far.node, type(error).__name__)

    async def _answer(self, op: str, said: dict[str, object], body: Body) -> dict[str, Any]:
        answering = self._answers.get(number_of(said)) if op == ANSWER else None
        if answering is None or answering.has_begun:
            raise RequestError("cancelled", "no client waits for this")
        await answering.take(said, body)
        return {}

    async def _notify_left(self, number: int) -> None:
        with contextlib.suppress(ConfideError, TimeoutError):
            await self._far.connection.request(LEFT, {"number": number}, timeout_s=GOODBYE_S)


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return once the client has left; its body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(_op: str, _body: dict[str, object]) -> dict[str, object]:
    raise RequestError("invalid", "a forwarding node cannot be asked for anything")


def _unreachable() -> RefusalError:
    return RefusalError(
        503,
        "unavailable",
        "the node that holds the space cannot be asked",
        hint="every node needs [gateway] in its daemon.toml; the daemon's operator sees why in its log",
    )


def _interruption() -> RefusalError:
    """Build a refusal after the response has begun: it is not sent, and the connection is closed,
    so that a partial response does not look whole.
    """
    why, hint = "the node that holds the space has ended in the middle of its answer", "ask again in a moment"
    return RefusalError(503, "unavailable", why, hint=hint)


def _why(error: ConfideError) -> str:
    return error.reason if isinstance(error, DeniedError) else str(error)
