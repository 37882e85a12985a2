"""An open channel over one websocket, the same for both ends: messages, requests, keepalive, the end (PROTOCOL.md 7).

`serve` owns every task of the connection: it reads, hands MSGs to one task in order and REQs to a task each, and ends them all before it
returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from websockets.exceptions import ConnectionClosed

from confide_crypto.channel import Answer, Channel, Closed, Event, FrameType, GoAway, Message, Request
from confide_crypto.errors import ConnectionLost, ProtocolViolation, RequestError
from confide_crypto.limits import (
    CLOSE_TIMEOUT_S,
    CLOSE_VIOLATION,
    DEFAULT_TIMERS,
    MAX_HELD,
    MAX_REQUESTS,
    MAX_WAITING_MESSAGES,
    Timers,
)
from confide_crypto.outbox import Outbox

if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection as WebSocket

OnMessage = Callable[[bytes], Awaitable[None]]
OnRequest = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

log = logging.getLogger(__name__)

_INTERNAL: Final = RequestError("internal", "the request failed on the other side", "its log says why")


class Connection:
    """One authenticated session. Made by `connect` and `accept` only.

    Attributes:
        session_id: the channel binding in hex, the same on both sides, safe to log.
        peer_key: the peer's Ed25519 public key, proven.
        hello: what the client said about itself.
        welcome: what the daemon answered.
        is_going_away: the peer takes no new requests.
        close_code: the word in the peer's CLOSE, once it has come.
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
        self.is_going_away = False
        self.close_code: str | None = None
        self._ws = ws
        self._channel = channel
        self._timers = timers
        self._outbox = Outbox(channel, ws)
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue(MAX_WAITING_MESSAGES)
        self._handlers: set[asyncio.Task[None]] = set()
        self._held_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._records_received = 0
        self._is_serving = False
        self._is_closing = False
        self._ended: ConnectionLost | None = None

    async def send_message(self, data: bytes) -> None:
        """Send one MCP message (MSG); returns when it is with the socket. One longer than a record needs `serve` to run.

        Raises:
            ConnectionLost: the connection ended first.
            ValueError: it is over 16 MiB.
        """
        await self._outbox.send(FrameType.MSG, 0, data)

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
        payload = _encode({"op": op, **body})
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
        if self._is_serving or self._ended:
            raise RuntimeError("a connection is served once")
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
            self._end(ConnectionLost(truncated=not (self._channel.is_complete or self._is_closing)))
        await self.close()

    async def close(self, code: str = "done") -> None:
        """Send what waits, then CLOSE, then close the websocket. A second call waits for the first.

        Without time to send a started message there is no CLOSE either, so the peer knows that something is missing.
        """
        if self._is_closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                    await self._ws.wait_closed()
            return
        self._is_closing = True
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
                helpers = [
                    group.create_task(self._outbox.run()),
                    group.create_task(self._keep_alive()),
                    group.create_task(self._deliver(on_message)),
                ]
                try:
                    await self._read(group, on_request)
                    await self._finish_handlers()
                finally:
                    for task in [*helpers, *self._handlers]:
                        task.cancel()
        except BaseExceptionGroup as failures:
            raise _first(failures) from None

    async def _read(self, group: asyncio.TaskGroup, on_request: OnRequest) -> None:
        while True:
            try:
                record = await self._ws.recv()
            except ConnectionClosed as end:
                if self._is_closing:
                    return
                code = end.rcvd.code if end.rcvd else None
                problem = "it broke off without a goodbye" + (f" (websocket code {code})" if code else "")
                raise ConnectionLost(truncated=True, problem=problem) from None
            if isinstance(record, str):
                raise ProtocolViolation("the peer broke the protocol: a text frame")
            self._records_received += 1
            event = self._channel.receive(record)
            if type(event) is Message:
                self._hold(event.data)
                await self._inbox.put(event.data)
            elif type(event) is Closed:
                self.close_code = event.code
                return
            elif event is not None:
                self._take(event, group, on_request)
            if self._held_bytes > MAX_HELD:
                self._has_room.clear()
                await self._has_room.wait()

    def _take(self, event: Event, group: asyncio.TaskGroup, on_request: OnRequest) -> None:
        if isinstance(event, Request):
            self._hold(event.data)
            task = group.create_task(self._handle(event, on_request))
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)
        elif isinstance(event, Answer):
            outcome = _outcome(event.data)
            answer = self._settle(event.stream)
            if answer is None or answer.done():
                return
            if isinstance(outcome, RequestError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
        elif isinstance(event, GoAway):
            self.is_going_away = True

    async def _deliver(self, on_message: OnMessage) -> None:
        while True:
            data = await self._inbox.get()
            try:
                await on_message(data)
            except ConnectionLost:
                log.debug(
                    "session %s: a message's handler found the connection gone", self.session_id
                )  # the reader reports it
            finally:
                self._release(data)
                self._inbox.task_done()

    async def _handle(self, request: Request, on_request: OnRequest) -> None:
        try:
            response = await self._respond(request.data, on_request)
            await self._outbox.send(FrameType.RES, request.stream, response)
        except ConnectionLost:
            log.debug("session %s: no way left for an answer", self.session_id)  # the reader reports it
        finally:
            self._release(request.data)

    async def _respond(self, data: bytes, on_request: OnRequest) -> bytes:
        body = _decode(data)
        op = body.pop("op", None)
        if not isinstance(op, str):
            raise ProtocolViolation("the peer broke the protocol: a request without op")
        try:
            return _encode({"ok": await on_request(op, body)})
        except RequestError as error:
            return _encode_error(error)
        except ConnectionLost:
            raise
        except Exception as error:
            # By class name only: the text may quote content. The peer gets a code, never the cause.
            log.error("session %s: a request failed with %s", self.session_id, type(error).__name__)
            return _encode_error(_INTERNAL)

    async def _keep_alive(self) -> None:
        tick_s = self._timers.keepalive_s / 2  # so that silence never lasts longer than keepalive_s
        idle_ticks = max(1, round(self._timers.idle_s / tick_s))
        silent = stuck = 0
        received, sent = self._records_received, self._outbox.records_sent
        while True:
            await asyncio.sleep(tick_s)
            silent = silent + 1 if received == self._records_received else 0
            is_quiet = sent == self._outbox.records_sent
            stuck = stuck + 1 if is_quiet and self._outbox.is_busy else 0
            if silent >= idle_ticks or stuck >= idle_ticks:
                raise ConnectionLost(truncated=True, problem=f"no sign of life for {self._timers.idle_s:.0f} s")
            received, sent = self._records_received, self._outbox.records_sent
            if is_quiet and not self._outbox.is_busy:
                with contextlib.suppress(ConnectionLost):
                    await self._outbox.send(FrameType.KEEPALIVE, 0, b"")

    async def _finish_handlers(self) -> None:
        """The peer has said goodbye: what it sent before still counts."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._inbox.join()
                while self._handlers:
                    await asyncio.wait(self._handlers)

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

    def _hold(self, data: bytes) -> None:
        self._held_bytes += len(data)

    def _release(self, data: bytes) -> None:
        self._held_bytes -= len(data)
        if self._held_bytes <= MAX_HELD:
            self._has_room.set()

    def _end(self, reason: ConnectionLost) -> None:
        if self._ended:
            return
        self._ended = reason
        self._outbox.fail(reason)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(truncated=reason.truncated))
        self._pending.clear()

    async def _close_websocket(self, code: int) -> None:
        try:
            async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                await self._ws.close(code)
        except TimeoutError:
            self._ws.transport.abort()


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _encode_error(error: RequestError) -> bytes:
    return _encode({"error": {"code": error.code, "message": error.message, "hint": error.hint}})


def _decode(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise ProtocolViolation("the peer broke the protocol: not JSON") from None
    if not isinstance(body, dict):
        raise ProtocolViolation("the peer broke the protocol: not a JSON object")
    return body


def _outcome(data: bytes) -> dict[str, Any] | RequestError:
    match _decode(data):
        case {"ok": dict(result)}:
            return result
        case {"error": {"code": str(code), "message": str(message), **rest}}:
            hint = rest.get("hint")
            return RequestError(code, message, hint if isinstance(hint, str) else None)
    raise ProtocolViolation("the peer broke the protocol: an answer that is neither ok nor error")


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one that explains the others: a bug or a broken rule before a lost connection."""
    leaves = [leaf for leaf in failures.exceptions if not isinstance(leaf, ConnectionLost)]
    return leaves[0] if leaves else failures.exceptions[0]
