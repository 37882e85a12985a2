"""A session on an open channel over one websocket: messages, requests, keepalive, closing
(PROTOCOL.md 7).

Client and daemon use the same class. `serve` owns every task of the connection, and all have ended
when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterable, Callable, Coroutine
from typing import Any, Final

from websockets.asyncio.connection import Connection as WebSocket

from confide_crypto.channel.protocol import MAX_PAYLOAD, Channel, FrameType
from confide_crypto.channel.request_codec import decode_answer, encode_request
from confide_crypto.errors import ConnectionLost, ProtocolViolation, RequestError
from confide_crypto.handshake.rotation import KeySuccession
from confide_crypto.limits import CLOSE_TIMEOUT_S, CLOSE_VIOLATION, DEFAULT_TIMERS, MAX_REQUESTS, WRITE_LIMIT, Timers
from confide_crypto.transport.inbox import FREE, Body, Inbox, OnMessage, OnRequest, OnStream, RateLimit
from confide_crypto.transport.outbox import FrameOutbox
from confide_crypto.transport.task_group import TaskGroup, raise_if_cancelled

LOOK_S: Final = 2.0
"""Seconds between checks of the clock, so that a reconnect begins at most so long after a computer
wakes.
"""
SLEPT_S: Final = 10.0
"""A wait that takes this many seconds longer than planned counts as sleep: more than a delay on a
busy computer, less than the 30 s after which some NATs forget a connection.
"""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Connection:
    """An authenticated session. Only `connect` and `accept` create it.

    Attributes:
        session_id: the channel binding in hex, the same on both sides, safe to log.
        peer_key: the peer's proven Ed25519 public key. After `stand_for`, the key of the caller for
            which a node forwards requests.
        hello: the client's description of itself.
        welcome: the daemon's answer to the hello.
        peer_static: at a client, the daemon's X25519 key used for the connection; b"" at a daemon.
        successor: at a client, the daemon's verified new keys if the connection used its old one
            (PROTOCOL.md 7.11); else None.
    """

    def __init__(
        self,
        ws: WebSocket,
        channel: Channel,
        *,
        peer_key: bytes,
        hello: dict[str, object],
        welcome: dict[str, object],
        timers: Timers = DEFAULT_TIMERS,
    ) -> None:
        self.session_id = channel.session_id
        self.peer_key = peer_key
        self.hello = hello
        self.welcome = welcome
        self.peer_static = b""
        self.successor: KeySuccession | None = None
        self._ws = ws
        self._channel = channel
        self._timers = timers
        self._outbox = FrameOutbox(channel, ws)
        self._inbox = Inbox(ws, channel, self._outbox, self._receive_answer)
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._pending: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._was_served = False
        self._is_serving = False
        self._end_error: ConnectionLost | None = None
        _keep_unsent_short(ws)

    @property
    def is_going_away(self) -> bool:
        """True if the peer has announced that it accepts no new requests."""
        return self._inbox.is_going_away

    @property
    def close_code(self) -> str | None:
        """The code in the CLOSE that the peer sent; None before that."""
        return self._inbox.close_code

    @property
    def is_in_use(self) -> bool:
        """True while a request is in progress, in either direction."""
        return bool(self._pending) or self._inbox.is_handling

    def stand_for(self, key: bytes, session_id: str, hello: dict[str, Any]) -> None:
        """Use this channel as the session of another caller: a node opened the channel to forward
        that caller, which has proven its key to the node (PROTOCOL.md 12.3).
        """
        self.peer_key, self.session_id, self.hello = key, session_id, hello

    def send_message(self, data: bytes) -> Coroutine[Any, Any, None]:
        """Send one MCP message, and return when the socket has accepted it. If the socket cannot
        take it at once, `serve` must be running.

        Raises ConnectionLost if the connection ends first; ValueError if the message is over 16
        MiB.
        """
        return self._outbox.send(FrameType.MSG, 0, data)

    async def request(
        self, op: str, body: dict[str, object], *, timeout_s: float = 10.0, bulk: bool = False
    ) -> dict[str, object]:
        """Send a request and return its answer; `serve` must be running to receive it.

        Args:
            op: the operation.
            body: its parameters.
            timeout_s: limit for sending and answer together.
            bulk: send it after all interactive data.

        Raises:
            RequestError: the answer is an error.
            ConnectionLost: the connection ended first, or the peer is going away.
            TimeoutError: no answer in time; the peer may still have carried it out.
        """
        payload = encode_request(op, body)
        async with asyncio.timeout(timeout_s):
            await self._slots.acquire()
            stream, answer = self._open_request()
            try:
                await self._outbox.send(FrameType.REQ, stream, payload, bulk=bulk)
                return await answer
            finally:
                self._leave(stream, answer)

    async def upload(
        self, op: str, body: dict[str, object], data: bytes | AsyncIterable[bytes], *, timeout_s: float
    ) -> dict[str, object]:
        """Send a request with a body, which follows as a stream after all interactive data
        (PROTOCOL.md 7.4).

        Args:
            op: the operation.
            body: its parameters, at most 16376 bytes of JSON.
            data: the body, whole or in parts; a part stays in memory until it is sent.
            timeout_s: limit for everything together.

        Raises:
            RequestError: the answer is an error; it may arrive before the body is sent.
            ConnectionLost: the connection ended first, or the peer is going away.
            TimeoutError: no answer in time; unless all of the body was sent, the peer has done nothing.
            Exception: an error raised by iterating `data`; the peer has done nothing.
        """
        payload = encode_request(op, body)
        if len(payload) > MAX_PAYLOAD:
            raise RequestError("too_large", f"the parameters of a stream have {len(payload)} bytes, {MAX_PAYLOAD} fit")
        async with asyncio.timeout(timeout_s):
            await self._slots.acquire()
            stream, answer = self._open_request()
            try:
                await self._outbox.send(FrameType.OPEN, stream, payload)
                await self._send_body(stream, data)
                return await answer
            finally:
                self._outbox.reset(stream, "cancelled")
                self._leave(stream, answer)

    async def _send_body(self, stream: int, data: bytes | AsyncIterable[bytes]) -> None:
        if isinstance(data, bytes):
            await self._outbox.send_part(stream, data, is_last=True)
            return
        async for part in data:
            if part and not await self._outbox.send_part(stream, part, is_last=False):
                return
        await self._outbox.send_part(stream, b"", is_last=True)

    async def go_away(self, code: str = "restart") -> None:
        """Ask the peer to send no new requests. The session continues until either end closes it."""
        await self._outbox.send(FrameType.GOAWAY, 0, code.encode("ascii"))

    async def serve(
        self,
        *,
        on_request: OnRequest,
        on_message: OnMessage | None = None,
        on_stream: OnStream | None = None,
        toll: RateLimit = FREE,
    ) -> None:
        """Run the session until the peer closes it, or `close` was called; then return.

        Args:
            on_message: handles each MCP message, one at a time, in order. It may send requests.
                Without it, messages are ignored.
            on_request: answers a request, in a task of its own. A `RequestError` is sent to the
                peer, any other error as "internal".
            on_stream: answers a request with a body. Without it, such requests are refused as
                `invalid`.
            toll: rate limit of the peer, applied before anything is parsed.

        Raises:
            ConnectionLost: the session ended without the peer's CLOSE, or the peer fell silent.
            ProtocolViolation: the peer broke the protocol.
            Exception: an error raised by `on_message`.
        """
        if self._was_served:
            raise RuntimeError("a connection is served once")
        self._was_served = True
        if self._inbox.is_closing:
            return  # closed before it was served
        self._is_serving = True
        problem = None
        try:
            await self._serve(on_message or _pass_over, on_request, on_stream or _refuse_stream, toll)
        except ProtocolViolation as error:
            problem = str(error)
            await self._close_websocket(CLOSE_VIOLATION)
            raise
        except ConnectionLost as error:
            problem = error.problem
            self._ws.transport.abort()
            raise
        finally:
            self._is_serving = False
            is_whole = self._channel.is_complete or self._inbox.is_closing
            self._end(ConnectionLost(truncated=not is_whole, problem=problem))
        await self.close()

    async def close(self, code: str = "done") -> None:
        """Send queued data, then CLOSE, then close the websocket. A second call waits for the
        first.

        If a message that was begun cannot be completed in time, no CLOSE is sent, so that the peer
        knows that data is missing.
        """
        if self._inbox.is_closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                    await self._ws.wait_closed()
            return
        self._inbox.is_closing = True
        for stream in self._channel.outgoing.open_streams:
            self._outbox.reset(stream, code)
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await (self._outbox.wait_empty() if self._is_serving else self._outbox.pump())
                await self._outbox.send_close(code)
        self._end(ConnectionLost(truncated=False))
        await self._close_websocket(1000)

    def abort(self) -> None:
        """Cut the connection without a CLOSE, for a peer that does not read."""
        self._ws.transport.abort()

    # -- tasks of serve -------------------------------------------------------------------------------------------

    async def _serve(self, on_message: OnMessage, on_request: OnRequest, on_stream: OnStream, toll: RateLimit) -> None:
        async with TaskGroup() as group:
            helpers = [group.create_task(self._outbox.run()), group.create_task(self._keep_alive())]
            try:
                await self._inbox.run(group, on_message, on_request, on_stream, toll)
            finally:
                for task in helpers:
                    task.cancel()

    async def _keep_alive(self) -> None:
        tick_s = self._timers.keepalive_s / 2  # so that silence never lasts longer than keepalive_s
        idle_ticks = max(1, round(self._timers.idle_s / tick_s))
        silent = stuck = 0
        received, sent = self._inbox.records_received, self._outbox.records_sent
        while True:
            # Only the client, which can reconnect, checks for sleep: a daemon that was stopped for
            # a while has harmed no session.
            if not self._channel.is_initiator:
                await asyncio.sleep(tick_s)
            elif slept_s := await wait_awake(tick_s):
                raise ConnectionLost(truncated=True, problem=f"this machine slept for {slept_s:.0f} s")
            silent = silent + 1 if received == self._inbox.records_received else 0
            is_quiet = sent == self._outbox.records_sent
            stuck = stuck + 1 if is_quiet and self._outbox.is_busy else 0
            if silent >= idle_ticks or stuck >= idle_ticks:
                raise ConnectionLost(truncated=True, problem=f"no sign of life for {self._timers.idle_s:.0f} s")
            received, sent = self._inbox.records_received, self._outbox.records_sent
            if is_quiet and not self._outbox.is_busy:
                try:
                    await self._outbox.send(FrameType.KEEPALIVE, 0, b"")
                except ConnectionLost:
                    raise_if_cancelled()

    # -- bookkeeping ----------------------------------------------------------------------------------------------

    def _open_request(self) -> tuple[int, asyncio.Future[dict[str, object]]]:
        if self._end_error or self.is_going_away:
            self._slots.release()
            raise self._end_error or ConnectionLost(truncated=False, problem="the peer is going away")
        stream = self._channel.open_request()
        answer: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
        self._pending[stream] = answer
        return stream, answer

    def _leave(self, stream: int, answer: asyncio.Future[dict[str, object]]) -> None:
        """Stop waiting for an answer; its slot stays in use until the peer has finished the
        request.
        """
        if not self._channel.is_in_use(stream):
            self._settle(stream)
        if not answer.cancel() and not answer.cancelled():
            answer.exception()  # marks the exception as retrieved if sending failed first

    def _settle(self, stream: int) -> asyncio.Future[dict[str, Any]] | None:
        answer = self._pending.pop(stream, None)
        if answer is not None:
            self._slots.release()
        return answer

    def _receive_answer(self, stream: int, data: bytes) -> None:
        outcome = decode_answer(data)
        if self._channel.outgoing.is_unfinished(stream):
            if not isinstance(outcome, RequestError):
                raise ProtocolViolation("the peer broke the protocol: an ok before the body was whole")
            self._outbox.reset(stream, "answered")
        answer = self._settle(stream)
        if answer is None or answer.done():
            return  # the answer came after its deadline
        if isinstance(outcome, RequestError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _end(self, reason: ConnectionLost) -> None:
        if self._end_error:
            return
        self._end_error = reason
        self._outbox.fail(reason)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(truncated=reason.truncated, problem=reason.problem))
            self._slots.release()  # a request that waits for a slot wakes and raises the error
        self._pending.clear()

    async def _close_websocket(self, code: int) -> None:
        try:
            async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                await self._ws.close(code)
        except TimeoutError:
            self._ws.transport.abort()


def _keep_unsent_short(ws: WebSocket) -> None:
    """Limit the unsent data in the kernel: megabytes of a body there would delay every message
    (PROTOCOL.md 6.5).
    """
    sock = ws.transport.get_extra_info("socket")
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if sock is not None and option is not None:
        with contextlib.suppress(OSError):  # not supported on this platform: large uploads delay calls more
            sock.setsockopt(socket.IPPROTO_TCP, option, WRITE_LIMIT)


async def _pass_over(_message: bytes) -> None:
    return


async def _refuse_stream(_op: str, _body: dict[str, object], _data: Body) -> dict[str, object]:
    raise RequestError("invalid", "no request with a body is taken here")


def boot_clock() -> float:
    """Return the seconds of a clock that also runs while the computer sleeps and that no user can
    set.

    `time.monotonic` stops during sleep, on Linux and on macOS. Comparing it with the wall clock
    would show the gap too, but also every change of the wall clock.
    """
    return time.clock_gettime(_CLOCK)


async def wait_awake(seconds: float, *, clock: Callable[[], float] = boot_clock) -> float:
    """Wait for `seconds`, or until the clock shows that this computer or process was asleep
    meanwhile (PROTOCOL.md 7.7).

    A laptop that wakes still has its websocket, but proxies and NATs on the way have forgotten it
    without notice: without this check the session would seem alive until its idle limit. The same
    is true of a process that was stopped.

    Returns:
        The seconds of sleep; 0 if there was none.
    """
    left_s = seconds
    while left_s > 0:
        piece_s = min(LOOK_S, left_s)
        left_s -= piece_s
        began = clock()
        await asyncio.sleep(piece_s)
        if (late_s := clock() - began - piece_s) > SLEPT_S:
            return late_s
    return 0.0
