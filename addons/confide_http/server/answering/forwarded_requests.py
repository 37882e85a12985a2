"""Answers HTTP requests that another node has authenticated and forwarded, since this node holds
the space (PROTOCOL.md 12.5).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.types import Message, Scope

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection
from confide_http.door.refusals import refusal_of
from confide_http.door.request_limits import MAX_BODY_BYTES
from confide_http.server.answering.forwarding import LONGEST_S
from confide_http.server.answering.http_codec import ANSWER, LEFT, REQUEST, answer_of, number_of, scope_of
from confide_http.server.answering.sdk_endpoint import SdkEndpoint

log = logging.getLogger(__name__)

HEARD_S: Final = 2.0
"""Time for a node to close the channel after it was asked to use another node."""
LINGER_S: Final = 5.0
"""Time for a response to end after its client has left."""
_AHEAD: Final = 8
"""Pieces of a response that may be queued for the channel; the producer then waits."""


class ForwardedRequest:
    """Answers the forwarded requests of one HTTP client, which arrive on one channel from another
    node.
    """

    def __init__(self, connection: Connection, endpoint: SdkEndpoint) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._exchanges: dict[int, _Exchange] = {}
        self._has_ended = asyncio.Event()

    async def serve(self) -> None:
        """Answer requests until the channel ends, then drop the unfinished ones."""
        try:
            await self._connection.serve(on_request=self._ask, on_stream=self._answer)
        except ConnectionLost as error:
            log.info("gateway: the channel of a node ended: %s", error)
        finally:
            self._has_ended.set()

    async def leave(self) -> None:
        """Ask the other node to forward its requests elsewhere from now on; return when the
        requests in progress are answered and the channel has ended.
        """
        with contextlib.suppress(ConnectionLost, TimeoutError):
            await self._connection.go_away("restart")
            # The node closes the channel after this notice; requests that cross it are answered as
            # well.
            async with asyncio.timeout(HEARD_S):
                await self._has_ended.wait()
        while self._exchanges:
            await asyncio.wait([one.has_ended for one in self._exchanges.values()])
        await self._connection.close("restart")

    async def _ask(self, op: str, said: dict[str, Any]) -> dict[str, Any]:
        if op != LEFT:
            raise RequestError("invalid", "no such request is passed on")
        if (exchange := self._exchanges.get(number_of(said))) is not None:
            exchange.has_left.set()
        return {}

    async def _answer(self, op: str, said: dict[str, object], body: Body) -> dict[str, object]:
        number = number_of(said)
        if op != REQUEST or number in self._exchanges:
            raise RequestError("invalid", "no such request is passed on")
        scope = scope_of(said)
        exchange = _Exchange(self._connection, number, await body.read(MAX_BODY_BYTES))
        self._exchanges[number] = exchange
        try:
            await exchange.run(self._endpoint, self._connection.peer_key, scope)
        finally:
            del self._exchanges[number]
            exchange.has_ended.set_result(None)
        return {}


class _Exchange:
    """A forwarded request as an ASGI application sees it."""

    def __init__(self, connection: Connection, number: int, body: bytes) -> None:
        self.has_left = asyncio.Event()
        """Set when the client has left."""
        self.has_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._number = number
        self._body: bytes | None = body
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._sending: asyncio.Task[dict[str, object]] | None = None

    async def run(self, endpoint: SdkEndpoint, key: bytes, scope: Scope) -> None:
        """Answer the request. Raises RequestError, ConnectionLost: the node did not receive the
        whole response.
        """
        working = asyncio.create_task(self._work(endpoint, key, scope))
        leaving = asyncio.create_task(self.has_left.wait())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if self.has_left.is_set():
                # The handler is informed (`_receive`) and ends by itself: clients often leave once
                # they have read a response, and the SDK drops a session whose first request was
                # cancelled.
                await asyncio.wait({working}, timeout=LINGER_S)
            else:
                working.result()
        finally:
            leaving.cancel()
            working.cancel()
            if self._sending is not None:
                self._sending.cancel()
            await asyncio.gather(working, leaving, *filter(None, [self._sending]), return_exceptions=True)

    async def _work(self, endpoint: SdkEndpoint, key: bytes, scope: Scope) -> None:
        try:
            await endpoint.answer_forwarded(key, scope, self._receive, self._send)
        except ConfideError as error:
            if self._sending is not None:
                raise
            await refusal_of(error).response()(scope, self._receive, self._send)
        if self._sending is not None:
            await self._sending

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            said = {"number": self._number, **answer_of(message["status"], message.get("headers", ()))}
            sending = self._connection.upload(ANSWER, said, self._answer(), timeout_s=LONGEST_S)
            self._sending = asyncio.create_task(sending)
            return
        assert self._sending is not None
        for piece in (message.get("body", b""), None if not message.get("more_body", False) else b""):
            if piece != b"":
                await self._put(piece)

    async def _put(self, piece: bytes | None) -> None:
        """Queue a piece. Raises ConnectionLost, RequestError: the node accepts no more."""
        assert self._sending is not None
        putting = asyncio.create_task(self._pieces.put(piece))
        await asyncio.wait({putting, self._sending}, return_when=asyncio.FIRST_COMPLETED)
        if not putting.done():
            putting.cancel()
            self._sending.result()

    async def _answer(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece
