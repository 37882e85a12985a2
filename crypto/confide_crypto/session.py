"""An open channel over one websocket, the same for both ends: messages, requests, keepalive, the end (PROTOCOL.md 7).

`serve` owns every task of the connection and ends them all before it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from confide_crypto.channel import Channel, FrameType
from confide_crypto.errors import ConnectionLost, ProtocolViolation, RequestError
from confide_crypto.inbox import Inbox, OnMessage, OnRequest
from confide_crypto.limits import CLOSE_TIMEOUT_S, CLOSE_VIOLATION, DEFAULT_TIMERS, MAX_REQUESTS, Timers
from confide_crypto.outbox import Outbox
from confide_crypto.requests import decode_answer, encode_request

if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection as WebSocket

    from confide_crypto.succession import Succession


class Connection:
    """One authenticated session. Made by `connect` and `accept` only.

    Attributes:
        session_id: the channel binding in hex, the same on both sides, safe to log.
        peer_key: the peer's Ed25519 public key, proven.
        hello: what the client said about itself.
        welcome: what the daemon answered.
        successor: at a client, the daemon's verified new keys, where it was reached by its old one (PROTOCOL.md 7.11).
    """

    def __init__(
        self,
        ws: WebSocket,
        channel: Channel,
        *,
        peer_key: bytes,
        hello: dict[str, Any],
        welcome: dict[str, Any],
        timers: Timers = DEFAULT_TIMERS,
    ) -> None:
        self.session_id = channel.session_id
        self.peer_key = peer_key
        self.hello = hello
        self.welcome = welcome
        self.successor: Succession | None = None
        self._ws = ws
        self._channel = channel
        self._timers = timers
        self._outbox = Outbox(channel, ws)
        self._inbox = Inbox(ws, channel, self._outbox, self._answered)
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._was_served = False
        self._is_serving = False
        self._ended: ConnectionLost | None = None

    @property
    def is_going_away(self) -> bool:
        """Whether the peer takes no new requests."""
        return self._inbox.is_going_away

    @property
    def close_code(self) -> str | None:
        """The word in the peer's CLOSE, once it has come."""
        return self._inbox.close_code

    def send_message(self, data: bytes) -> Coroutine[Any, Any, None]:
        """Send one MCP message (MSG); returns when it is with the socket. One longer than a record needs `serve` to run.

        Raises:
            ConnectionLost: the connection ended first.
            ValueError: it is over 16 MiB.
        """
        return self._outbox.send(FrameType.MSG, 0, data)

    async def request(
        self, op: str, body: dict[str, Any], *, timeout_s: float = 10.0, bulk: bool = False
    ) -> dict[str, Any]:
        """Ask the peer and return its answer. Answers come while `serve` runs.

        Args:
            op: the operation.
            body: its parameters.
            timeout_s: for sending and answer together.
            bulk: let everything interactive go first.

        Raises:
            RequestError: the answer is an error.
            ConnectionLost: the connection ended first, or the peer is going away.
            TimeoutError: no answer in time; the peer may still have done it.
            ValueError: the request is over 16 MiB.
        """
        payload = encode_request(op, body)
        async with asyncio.timeout(timeout_s):
            await self._slots.acquire()
            stream, answer = self._open_request()
            try:
                await self._outbox.send(FrameType.REQ, stream, payload, bulk=bulk)
                return await answer
            finally:
                if not self._channel.awaits(stream):
                    self._settle(stream)  # nothing was sent; else the slot stays taken until the answer comes
                if answer.done() and not answer.cancelled():
                    answer.exception()  # marks it as seen when sending failed first

    async def go_away(self, code: str = "restart") -> None:
        """Tell the peer to send no new requests; the session goes on until somebody closes it."""
        await self._outbox.send(FrameType.GOAWAY, 0, code.encode("ascii"))

    async def serve(self, *, on_message: OnMessage, on_request: OnRequest) -> None:
        """Run the session until the peer closes it, or `close` was called; then return.

        Args:
            on_message: takes each MCP message, one at a time, in order. It may send requests itself.
            on_request: answers a request, in a task of its own. A `RequestError` is sent as it is, anything else as "internal".

        Raises:
            ConnectionLost: it broke without the peer's goodbye, or the peer fell silent.
            ProtocolViolation: the peer broke the protocol.
            Exception: whatever `on_message` raised.
        """
        if self._was_served:
            raise RuntimeError("a connection is served once")
        self._was_served = True
        if self._inbox.is_closing:
            return  # closed between its opening and now
        self._is_serving = True
        try:
            await self._serve(on_message, on_request)
        except ProtocolViolation:
            await self._close_websocket(CLOSE_VIOLATION)
            raise
        except ConnectionLost:
            self._ws.transport.abort()
            raise
        finally:
            self._is_serving = False
            self._end(ConnectionLost(truncated=not (self._channel.is_complete or self._inbox.is_closing)))
        await self.close()

    async def close(self, code: str = "done") -> None:
        """Send what waits, then CLOSE, then close the websocket. A second call waits for the first.

        Without time to send a started message there is no CLOSE either, so the peer knows that something is missing.
        """
        if self._inbox.is_closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                    await self._ws.wait_closed()
            return
        self._inbox.is_closing = True
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await (self._outbox.wait_empty() if self._is_serving else self._outbox.pump())
                await self._outbox.send_close(code)
        self._end(ConnectionLost(truncated=False))
        await self._close_websocket(1000)

    # -- tasks of serve -------------------------------------------------------------------------------------------

    async def _serve(self, on_message: OnMessage, on_request: OnRequest) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._outbox.run()), group.create_task(self._keep_alive())]
                try:
                    await self._inbox.run(group, on_message, on_request)
                finally:
                    for task in helpers:
                        task.cancel()
        except BaseExceptionGroup as failures:
            raise _first(failures) from None

    async def _keep_alive(self) -> None:
        tick_s = self._timers.keepalive_s / 2  # so that silence never lasts longer than keepalive_s
        idle_ticks = max(1, round(self._timers.idle_s / tick_s))
        silent = stuck = 0
        received, sent = self._inbox.records_received, self._outbox.records_sent
        while True:
            await asyncio.sleep(tick_s)
            silent = silent + 1 if received == self._inbox.records_received else 0
            is_quiet = sent == self._outbox.records_sent
            stuck = stuck + 1 if is_quiet and self._outbox.is_busy else 0
            if silent >= idle_ticks or stuck >= idle_ticks:
                raise ConnectionLost(truncated=True, problem=f"no sign of life for {self._timers.idle_s:.0f} s")
            received, sent = self._inbox.records_received, self._outbox.records_sent
            if is_quiet and not self._outbox.is_busy:
                with contextlib.suppress(ConnectionLost):
                    await self._outbox.send(FrameType.KEEPALIVE, 0, b"")

    # -- bookkeeping ----------------------------------------------------------------------------------------------

    def _open_request(self) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        if self._ended or self.is_going_away:
            self._slots.release()
            raise self._ended or ConnectionLost(truncated=False, problem="the peer is going away")
        stream = self._channel.open_request()
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[stream] = answer
        return stream, answer

    def _settle(self, stream: int) -> asyncio.Future[dict[str, Any]] | None:
        answer = self._pending.pop(stream, None)
        if answer is not None:
            self._slots.release()
        return answer

    def _answered(self, stream: int, data: bytes) -> None:
        outcome = decode_answer(data)
        answer = self._settle(stream)
        if answer is None or answer.done():
            return  # it came after its deadline
        if isinstance(outcome, RequestError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _end(self, reason: ConnectionLost) -> None:
        if self._ended:
            return
        self._ended = reason
        self._outbox.fail(reason)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(truncated=reason.truncated))
            self._slots.release()  # who waits for one wakes, finds the end, and passes it on
        self._pending.clear()

    async def _close_websocket(self, code: int) -> None:
        try:
            async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                await self._ws.close(code)
        except TimeoutError:
            self._ws.transport.abort()


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one that explains the others: a bug or a broken rule before a lost connection."""
    leaves = [leaf for leaf in failures.exceptions if not isinstance(leaf, ConnectionLost)]
    return leaves[0] if leaves else failures.exceptions[0]
