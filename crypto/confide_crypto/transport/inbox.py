"""The receiving half of a session: reading, handling, and limits on work in progress (PROTOCOL.md
6.6 and 7).

The task that read a MSG handles it, without a queue: a wake-up would take a third of a small
message's whole time. If its handler has to wait, another task takes over reading, so that the
handler can wait for answers itself; later MSGs are then queued behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import types
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Final, Protocol

from websockets.asyncio.connection import Connection as WebSocket
from websockets.exceptions import ConnectionClosed

from confide_crypto.channel.protocol import (
    AnswerReceived,
    BodyEnded,
    BodyOpened,
    Channel,
    Closed,
    CreditGranted,
    Data,
    Event,
    FrameType,
    GoAway,
    MessageReceived,
    RequestReceived,
    WasReset,
)
from confide_crypto.channel.request_codec import decode_request, encode_error, encode_result
from confide_crypto.errors import ConnectionLost, ProtocolViolation, RequestError
from confide_crypto.limits import (
    BODY_STALL_S,
    CLOSE_TIMEOUT_S,
    CONNECTION_CREDIT,
    MAX_HELD,
    MAX_WAITING_MESSAGES,
    PARSED_ASIDE,
    STREAM_CREDIT,
)
from confide_crypto.transport.outbox import FrameOutbox
from confide_crypto.transport.task_group import TaskGroup

log = logging.getLogger(__name__)

_GONE: Final = RequestError(
    "unavailable",
    "this needed another server or device, and the connection to it broke; it may have been done there all the same",
    "look whether it was done, and try again in a moment",
)
_JOINED: Final = 16 * 1024
"""Waiting pieces are joined up to this many bytes: each costs some 40 bytes itself, so tiny pieces
would take twenty times their credit in memory.
"""
_PRICES: Final[Mapping[type, float]] = {Data: 0.25, MessageReceived: 0.0, RequestReceived: 0.0, BodyOpened: 0.0}
"""Price of a record by its event, in small requests; 1 for others (a part of a message, a
keepalive, credit). A body costs most when the operation stores it; a message is charged by its
handler, and a request by `RateLimit.request`.
"""


class Body:
    """The body of a request that is being received. Reading it grants the peer credit to send more
    (PROTOCOL.md 7.4, 7.5).

    Each piece is authentic, but only the end of the iteration shows that the body is complete. Do
    not act on any piece before.
    """

    def __init__(self, give_credit: Callable[[int], None]) -> None:
        """Create a body; `give_credit` is called with each number of bytes that were read or
        dropped, in total all that were received.
        """
        self._give_credit = give_credit
        self._pieces: deque[bytes] = deque()
        self._has_news = asyncio.Event()
        self._is_whole = False
        self._is_unwanted = False
        self._failure: ConnectionLost | RequestError | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces in order, until the body is complete.

        Raises RequestError with the code `cancelled` if the sender gave it up or sent nothing for a
        minute; ConnectionLost if the connection ends first.
        """
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._give_credit(len(piece))
                yield piece
            if self._failure is not None:
                raise self._failure
            if self._is_whole:
                return
            self._has_news.clear()
            try:
                async with asyncio.timeout(BODY_STALL_S):
                    await self._has_news.wait()
            except TimeoutError:
                raise RequestError("cancelled", f"nothing of the body came for {BODY_STALL_S:.0f} s") from None

    async def read(self, limit: int) -> bytes:
        """Read the whole body.

        Raises RequestError with the code `too_large` if it has more than `limit` bytes, or
        `cancelled` if the peer gave it up or sent nothing for a minute; ConnectionLost if the
        connection ends first.
        """
        pieces: list[bytes] = []
        length = 0
        async for piece in self:
            length += len(piece)
            if length > limit:
                raise RequestError("too_large", f"the body has more than {limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    # -- from the connection --------------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """Add a received piece to the body, for the code that reads it."""
        if self._is_unwanted:
            self._give_credit(len(piece))
            return
        if self._pieces and len(self._pieces[-1]) + len(piece) <= _JOINED:
            self._pieces[-1] += piece
        else:
            self._pieces.append(piece)
        self._has_news.set()

    def complete(self) -> None:
        """Mark the body as complete, since a valid END was received."""
        self._is_whole = True
        self._has_news.set()

    def fail(self, failure: ConnectionLost | RequestError) -> None:
        """Make reading the body raise `failure`, since the rest will not arrive."""
        self._failure = failure
        self._drop()
        self._has_news.set()

    def discard(self) -> None:
        """Stop reading. Pieces that still arrive are dropped, and their credit is granted to the
        peer again.
        """
        self._is_unwanted = True
        self._drop()

    def _drop(self) -> None:
        while self._pieces:
            self._give_credit(len(self._pieces.popleft()))


OnMessage = Callable[[bytes], Awaitable[None]]
OnRequest = Callable[[str, dict[str, object]], Awaitable[dict[str, object]]]
OnStream = Callable[[str, dict[str, object], Body], Awaitable[dict[str, object]]]


class RateLimit(Protocol):
    """The limit on a peer's requests and records. It is applied before they are parsed (PROTOCOL.md
    8.2).
    """

    def record(self, price: float) -> float:
        """Charge the peer for a record; return the number of seconds for which nothing more may be
        read.

        `price` is measured in small requests. Complete messages are not charged here but by the
        code that handles them.
        """

    async def request(self, data: bytes) -> None:
        """Charge the peer for a complete request (REQ or OPEN), and return when it may be parsed.
        Raises RequestError if it is refused.
        """

    def charge(self, length: int) -> None:
        """Charge the peer for an answer of `length` bytes."""


class Unlimited:
    """A rate limit that allows everything."""

    def record(self, _price: float) -> float:
        return 0.0

    async def request(self, _data: bytes) -> None: ...

    def charge(self, _length: int) -> None: ...


FREE: Final[RateLimit] = Unlimited()


class Inbox:
    """The receiving half of a session. `run` returns when the peer has closed and everything that
    it sent is handled.
    """

    def __init__(
        self, ws: WebSocket, channel: Channel, outbox: FrameOutbox, on_answer: Callable[[int, bytes], None]
    ) -> None:
        self._ws = ws
        self._channel = channel
        self._outbox = outbox
        self._on_answer = on_answer
        self._waiting: deque[bytes] = deque()
        self._is_delivering = False
        self._handlers: set[asyncio.Task[None]] = set()
        self._bodies: dict[int, Body] = {}
        self._consumed: dict[int, int] = {}
        self._consumed_total = 0
        self._held_bytes = 0
        self._has_room = asyncio.Event()
        self._is_over = asyncio.Event()
        self._toll = FREE
        self.records_received = 0
        self.is_closing = False
        """True once this end has begun to close, so that the end of the websocket is not an error.
        """
        self.is_going_away = False
        self.close_code: str | None = None

    @property
    def is_handling(self) -> bool:
        """True while a request, a stream, or a message that had to wait is being handled."""
        return bool(self._handlers) or self._is_delivering

    async def run(
        self, group: TaskGroup, on_message: OnMessage, on_request: OnRequest, on_stream: OnStream, toll: RateLimit
    ) -> None:
        """Read until the peer's CLOSE, or until the websocket ends after this end has started to
        close.

        Makes `group` raise ConnectionLost, ProtocolViolation, and the errors of `on_message`.
        """
        self._group, self._on_message, self._on_request, self._on_stream = group, on_message, on_request, on_stream
        self._toll = toll
        self._reader = group.create_task(self._read())
        try:
            await self._is_over.wait()
            for body in self._bodies.values():
                body.fail(ConnectionLost(truncated=True))
            await self._finish_handlers()
        finally:
            for task in (self._reader, *self._handlers):
                task.cancel()

    async def _read(self) -> None:
        me, receive_record, receive = self._reader, self._ws.recv, self._channel.receive
        while self._reader is me:
            try:
                record = await receive_record()
            except ConnectionClosed as end:
                self._end(end)
                return
            if isinstance(record, str):
                raise ProtocolViolation("the peer broke the protocol: a text frame")
            self.records_received += 1
            event = receive(record)
            if type(event) is MessageReceived and not self._is_delivering:
                await self._deliver(event.data)
                continue
            if type(event) is Data:
                self._bodies[event.stream].feed(event.data)
            elif event is not None:
                self._take(event)
                if self._is_full():
                    self._has_room.clear()
                    await self._has_room.wait()
            wait_s = self._toll.record(_PRICES.get(type(event), 1.0))
            if wait_s:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await (
                            self._ws.wait_closed()
                        )  # a peer that has disconnected needs no limit, and its slot is free

    async def _deliver(self, data: bytes) -> None:
        """Handle a message, and those that arrive meanwhile, in order."""
        self._is_delivering = True
        try:
            await _call_on_wait(self._handle_message(data), self._replace_reader)
            while self._waiting:
                data = self._waiting.popleft()
                self._release(data)
                await self._handle_message(data)
        finally:
            self._is_delivering = False

    def _end(self, end: ConnectionClosed) -> None:
        if not self.is_closing and not self._channel.is_complete:
            code = f" (websocket code {end.rcvd.code})" if end.rcvd else ""
            raise ConnectionLost(truncated=True, problem=f"it broke off without a goodbye{code}") from None
        self._is_over.set()

    def _take(self, event: Event) -> None:
        match event:
            case MessageReceived(data):
                self._held_bytes += len(data)
                self._waiting.append(data)
            case RequestReceived(data=data):
                self._held_bytes += len(data)
                self._keep(self._group.create_task(self._answer(event, self._on_request)))
            case AnswerReceived(stream, data):
                self._on_answer(stream, data)
            case BodyOpened(stream, data=data):
                self._held_bytes += len(data)
                body = self._bodies[stream] = Body(functools.partial(self._give_credit, stream))
                self._keep(self._group.create_task(self._handle_stream(event, body)))
            case BodyEnded(stream):
                self._forget_body(stream).complete()
            case WasReset(stream):
                self._forget_body(stream).fail(RequestError("cancelled", "the sender gave the body up"))
            case CreditGranted():
                self._outbox.take_credit()
            case GoAway():
                self.is_going_away = True
            case Closed(code):
                self.close_code = code
                self._is_over.set()

    def _replace_reader(self) -> None:
        self._keep(self._reader)
        self._reader = self._group.create_task(self._read())

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    async def _handle_message(self, data: bytes) -> None:
        try:
            await self._on_message(data)
        except ConnectionLost:
            log.debug(
                "session %s: a message's handler found the connection gone", self._channel.session_id
            )  # the reader reports it

    def _give_credit(self, stream: int, amount: int) -> None:
        """Grant the credit of read bytes again, half a window at a time: a WINDOW for every piece
        would double the number of records.
        """
        self._consumed_total += amount
        if self._consumed_total >= CONNECTION_CREDIT // 2:
            self._outbox.grant(0, self._consumed_total)
            self._consumed_total = 0
        if stream in self._bodies:
            taken = self._consumed.get(stream, 0) + amount
            if taken >= STREAM_CREDIT // 2:
                self._outbox.grant(stream, taken)
                taken = 0
            self._consumed[stream] = taken

    def _forget_body(self, stream: int) -> Body:
        self._consumed.pop(stream, None)
        return self._bodies.pop(stream)

    async def _handle_stream(self, opened: BodyOpened, body: Body) -> None:
        async def use(op: str, params: dict[str, object]) -> dict[str, object]:
            try:
                result = await self._on_stream(op, params, body)
                async for _ in body:  # send `ok` only after the end, also of data that the handler did not read
                    pass
            finally:
                body.discard()
            return result

        await self._answer(RequestReceived(opened.stream, opened.data), use)

    async def _answer(self, request: RequestReceived, on_request: OnRequest) -> None:
        try:
            answer = await self._respond(request.data, on_request)
            self._toll.charge(len(answer))
            await self._outbox.send(FrameType.RES, request.stream, answer, bulk=request.is_bulk)
        except ConnectionLost:
            log.debug("session %s: no way left for an answer", self._channel.session_id)  # the reader reports it
        finally:
            self._release(request.data)

    async def _respond(self, data: bytes, on_request: OnRequest) -> bytes:
        try:
            await self._toll.request(data)
        except RequestError as error:
            return encode_error(error)
        aside = len(data) > PARSED_ASIDE
        op, body = await asyncio.to_thread(decode_request, data) if aside else decode_request(data)
        try:
            return encode_result(await on_request(op, body))
        except RequestError as error:
            return encode_error(error)
        except ConnectionLost:  # a connection that the handler needed; if this one, the answer is lost too
            return encode_error(_GONE)
        except Exception as error:
            # Log the class name only, since the text may quote content. The peer gets a code, never
            # the cause.
            log.error("session %s: a request failed with %s", self._channel.session_id, type(error).__name__)
            return encode_error(None)

    async def _finish_handlers(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._handlers:
                    await asyncio.wait(self._handlers)

    def _is_full(self) -> bool:
        return self._held_bytes > MAX_HELD or len(self._waiting) >= MAX_WAITING_MESSAGES

    def _release(self, data: bytes) -> None:
        self._held_bytes -= len(data)
        if not self._is_full():
            self._has_room.set()


@types.coroutine
def _call_on_wait(work: Coroutine[Any, Any, None], on_wait: Callable[[], None]) -> Generator[Any, Any, None]:
    """Await `work` in this task, and call `on_wait` if it suspends, at its first suspension (PEP
    380's expansion of `yield from`).
    """
    try:
        waited_for = work.send(None)
    except StopIteration:
        return
    on_wait()
    while True:
        try:
            sent = yield waited_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:
            resume = functools.partial(work.throw, thrown)
        else:
            resume = functools.partial(work.send, sent)
        try:
            waited_for = resume()
        except StopIteration:
            return
