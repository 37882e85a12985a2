"""An open channel at either end: PROTOCOL.md 6.5, 7.1 to 7.7."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.interop.bodies import (
    CONNECTION_CREDIT,
    GIVE_BACK_AT,
    STREAM_CREDIT,
    Account,
    GivenUpError,
    Incoming,
    Tally,
    credit_in,
    window,
)
from tests.interop.frames import BULK, MAX_PAYLOAD, MORE, BrokenError, Frame, Records, Type
from tests.interop.requests import RefusedError, read_answer, read_request
from tests.interop.sending import Sender
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed

MAX_MESSAGE = 16 << 20
MAX_UNFINISHED = 32 << 20
MAX_STREAMS = 64
SILENCE_S = 90.0
CLOSE_BROKEN, CLOSE_DONE = 4401, 1000
DEADLINE_S = 30.0

Body = Incoming
Answer = Callable[[str, dict[str, Any], "Incoming | None"], Awaitable[dict[str, Any]]]


class EndedError(Exception):
    """The connection is over; `word` is that of the peer's CLOSE, or None if it was cut (7.6)."""

    def __init__(self, word: str | None, code: int | None) -> None:
        super().__init__(f"CLOSE {word}" if word is not None else f"truncated, websocket code {code}")
        self.word, self.code = word, code


@dataclass(slots=True)
class _Asked:
    """A request of this end."""

    answer: asyncio.Future[dict[str, Any]]
    credit: Account | None = None
    body_over: bool = True


@dataclass(slots=True)
class _Joined:
    """A message whose last frame has not come yet."""

    flags: int
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0


class Session:
    """One end of an open channel. `run()` reads until the end; everything else may be called meanwhile."""

    def __init__(self, socket: Connection, records: Records, *, client: bool, answer: Answer) -> None:
        self.records = records
        self.messages: asyncio.Queue[bytes] = asyncio.Queue(256)
        self.ended: asyncio.Future[EndedError] = asyncio.get_running_loop().create_future()
        self.going_away: str | None = None
        self.seen: dict[Type, int] = dict.fromkeys(Type, 0)
        self._socket, self._answer = socket, answer
        self._sender = Sender(socket, records)
        self._own_parity = 1 if client else 0
        self._next_stream = 1 if client else 2
        self._asked: dict[int, _Asked] = {}
        self._serving: dict[int, Incoming | None] = {}
        self._joining: dict[tuple[Type, int], _Joined] = {}
        self._credit = Account(CONNECTION_CREDIT)
        self._credit_came = asyncio.Event()
        self._peer_credit = CONNECTION_CREDIT
        self._unreturned = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def _new_stream(self, asked: _Asked) -> int:
        assert len(self._asked) < MAX_STREAMS
        stream = self._next_stream
        self._next_stream += 2
        self._asked[stream] = asked
        return stream

    async def request(self, op: str, *, bulk: bool = False, **parameters: Any) -> dict[str, Any]:
        """A REQ and what its RES says. Raises RefusedError, EndedError."""
        asked = _Asked(asyncio.get_running_loop().create_future())
        stream = self._new_stream(asked)
        await self._sender.write_json(Type.REQ, stream, {"op": op, **parameters}, bulk=bulk)
        async with asyncio.timeout(DEADLINE_S):
            return await asked.answer

    async def upload(self, op: str, body: bytes, *, give_up_at: int | None = None, **parameters: Any) -> dict[str, Any]:
        """An OPEN with its body; `give_up_at` sends RESET after that many bytes. Raises RefusedError, EndedError."""
        asked = _Asked(asyncio.get_running_loop().create_future(), Account(STREAM_CREDIT), body_over=False)
        stream = self._new_stream(asked)
        await self._sender.write(Frame(Type.OPEN, stream, json.dumps({"op": op, **parameters}).encode()))
        last = await self._send_body(stream, asked, body if give_up_at is None else body[:give_up_at])
        if give_up_at is not None or last is None:
            await self._sender.write(Frame(Type.RESET, stream, b"cancelled"))
        else:
            await self._sender.write(Frame(Type.END, stream, last), bulk=True)
        asked.body_over = True
        self._forget(stream, asked)
        async with asyncio.timeout(DEADLINE_S):
            return await asked.answer

    async def _send_body(self, stream: int, asked: _Asked, body: bytes) -> bytes | None:
        """The DATA; returns the payload of END, or None if the peer has answered before."""
        assert asked.credit is not None
        tally = Tally()
        while tally.length < len(body):
            if asked.answer.done():
                return None
            if not (size := min(MAX_PAYLOAD, len(body) - tally.length, asked.credit.left, self._credit.left)):
                self._credit_came.clear()
                async with asyncio.timeout(DEADLINE_S):
                    await self._credit_came.wait()
                continue
            asked.credit.left -= size
            self._credit.left -= size
            piece = body[tally.length : tally.length + size]
            record = await self._sender.write(Frame(Type.DATA, stream, piece), bulk=True)
            tally.add(size, record[-16:])
        return tally.end()

    def _forget(self, stream: int, asked: _Asked) -> None:
        if asked.body_over and asked.answer.done():
            self._asked.pop(stream, None)

    async def send_message(self, raw: bytes) -> None:
        """One MSG."""
        await self._sender.write_message(raw)

    async def keepalive(self) -> None:
        """KEEPALIVE."""
        await self._sender.write(Frame(Type.KEEPALIVE, 0))

    async def go_away(self, word: str) -> None:
        """GOAWAY."""
        await self._sender.write(Frame(Type.GOAWAY, 0, word.encode()))

    async def close(self, word: str = "done") -> EndedError:
        """CLOSE, and wait for the peer's; inside a body, which CLOSE must not cut, the websocket alone."""
        if not all(asked.body_over for asked in self._asked.values()):
            await self._socket.close(CLOSE_DONE)
        with contextlib.suppress(ConnectionError, ConnectionClosed):
            await self._sender.write(Frame(Type.CLOSE, 0, word.encode()))
        return await asyncio.wait_for(asyncio.shield(self.ended), DEADLINE_S)

    # Reading

    async def run(self) -> EndedError:
        """Read until the end, whatever it is."""
        alive = asyncio.create_task(self._sender.stay_alive())
        word: str | None = None
        try:
            while word is None:
                record = await asyncio.wait_for(self._socket.recv(), SILENCE_S)
                word = await self._take(self.records.open(record))
            if not self._sender.is_closed:
                await self._drained()
                await self.close_unread()
            await self._socket.close(CLOSE_DONE)
        except BrokenError:
            await self._socket.close(CLOSE_BROKEN)
            raise
        except (ConnectionClosed, TimeoutError):
            await self._socket.close(CLOSE_DONE)
        finally:
            alive.cancel()
            self._finish(EndedError(word, self._socket.close_code))
        return self.ended.result()

    async def close_unread(self) -> None:
        """Send CLOSE without waiting for an answer."""
        with contextlib.suppress(ConnectionError, ConnectionClosed):
            await self._sender.write(Frame(Type.CLOSE, 0, b"done"))

    async def _drained(self) -> None:
        """What was asked before the peer's CLOSE is still answered."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=DEADLINE_S)

    def _finish(self, ended: EndedError) -> None:
        self.ended.set_result(ended)
        self._sender.is_closed = True
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(ended)
                asked.answer.exception()
        for body in self._serving.values():
            if body is not None and not body.over:
                body.reset()
        self._credit_came.set()

    async def _take(self, frame: Frame) -> str | None:
        """Handle one frame; returns the word of a CLOSE."""
        self.seen[frame.type] += 1
        match frame.type:
            case Type.KEEPALIVE if frame.stream == 0 and not frame.payload:
                pass
            case Type.GOAWAY if frame.stream == 0:
                self.going_away = _word(frame)
            case Type.CLOSE if frame.stream == 0:
                if self._joining or any(body and not body.over for body in self._serving.values()):
                    raise BrokenError("CLOSE inside a message or a body")
                return _word(frame)
            case Type.MSG if frame.stream == 0:
                if (message := self._join(frame)) is not None:
                    await self.messages.put(message)
            case Type.REQ | Type.OPEN:
                self._asked_by_peer(frame)
            case Type.RES:
                self._answered(frame)
            case Type.DATA | Type.END | Type.RESET:
                self._body(frame)
            case Type.WINDOW:
                self._window(frame)
            case _:
                raise BrokenError("a frame that may not come here")
        return None

    def _join(self, frame: Frame) -> bytes | None:
        """The message that this frame completes, if it does (6.3)."""
        key = (frame.type, frame.stream)
        joined = self._joining.setdefault(key, _Joined(frame.flags & BULK))
        if joined.flags != frame.flags & BULK:
            raise BrokenError("BULK in some frames only")
        joined.pieces.append(frame.payload)
        joined.size += len(frame.payload)
        if joined.size > MAX_MESSAGE or sum(each.size for each in self._joining.values()) > MAX_UNFINISHED:
            raise BrokenError("a message over the limit")
        if frame.flags & MORE:
            return None
        del self._joining[key]
        return b"".join(joined.pieces)

    def _asked_by_peer(self, frame: Frame) -> None:
        stream, going_on = frame.stream, (Type.REQ, frame.stream) in self._joining
        if going_on and frame.type is Type.OPEN:
            raise BrokenError("OPEN inside a REQ")
        if not going_on:
            if stream == 0 or stream % 2 == self._own_parity or stream in self._serving:
                raise BrokenError("a stream that may not be opened")
            if len(self._serving) >= MAX_STREAMS:
                raise BrokenError("too many requests")
            self._serving[stream] = None
            if frame.type is Type.OPEN:
                self._serving[stream] = Incoming(lambda size: self._consumed(stream, size))
        raw = frame.payload if frame.type is Type.OPEN else self._join(frame)
        if raw is None:
            return
        op, request = read_request(raw)
        task = asyncio.create_task(self._serve(stream, op, request, bulk=bool(frame.flags & BULK)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream: int, op: str, request: dict[str, Any], *, bulk: bool) -> None:
        body = self._serving[stream]
        try:
            answer: dict[str, Any] = {"ok": await self._answer(op, request, body)}
        except RefusedError as error:
            answer = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except GivenUpError:
            answer = {"error": {"code": "cancelled", "message": "given up", "hint": None}}
        with contextlib.suppress(ConnectionError, ConnectionClosed):
            if body is not None:
                body.discard()
            await self._sender.write_json(Type.RES, stream, answer, bulk=bulk, sealed=lambda: self._free(stream, body))

    def _free(self, stream: int, body: Incoming | None) -> None:
        """The answer is out: the peer may use the stream again once its body is over too."""
        if body is not None:
            body.answered = True
            body.discard()
        if body is None or body.over:
            del self._serving[stream]

    def _answered(self, frame: Frame) -> None:
        asked = self._asked.get(frame.stream)
        if asked is None or asked.answer.done():
            raise BrokenError("an answer to nothing")
        if (message := self._join(frame)) is None:
            return
        try:
            result = read_answer(message)
        except RefusedError as error:
            asked.answer.set_exception(error)
            asked.answer.exception()
        else:
            if not asked.body_over:
                raise BrokenError("ok before END")
            asked.answer.set_result(result)
        self._credit_came.set()
        self._forget(frame.stream, asked)

    # Bodies

    def _body(self, frame: Frame) -> None:
        body = self._serving.get(frame.stream)
        if body is None:
            raise BrokenError("a body that nobody opened")
        if frame.type is Type.DATA:
            self._peer_credit -= len(frame.payload)
            if self._peer_credit < 0:
                raise BrokenError("DATA beyond the credit of the connection")
            body.data(frame)
            return
        if frame.type is Type.END:
            body.end(frame)
        else:
            _word(frame)
            body.reset()
        if body.answered:
            del self._serving[frame.stream]

    def _consumed(self, stream: int, size: int) -> None:
        """Give credit back, in portions."""
        body = self._serving.get(stream)
        self._unreturned += size
        if self._unreturned >= GIVE_BACK_AT:
            self._peer_credit += self._unreturned
            self._give(0, self._unreturned)
            self._unreturned = 0
        if body is not None and not body.over and not body.answered:
            body.unreturned += size
            if body.unreturned >= GIVE_BACK_AT:
                body.credit += body.unreturned
                self._give(stream, body.unreturned)
                body.unreturned = 0

    def _give(self, stream: int, size: int) -> None:
        async def give() -> None:
            with contextlib.suppress(ConnectionError, ConnectionClosed):
                body = self._serving.get(stream)
                if stream and (body is None or body.answered or body.over):
                    return
                await self._sender.write(Frame(Type.WINDOW, stream, window(size)))

        task = asyncio.create_task(give())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _window(self, frame: Frame) -> None:
        size = credit_in(frame)
        if frame.stream == 0:
            self._credit.add(size)
        else:
            asked = self._asked.get(frame.stream)
            if asked is None or asked.credit is None:
                raise BrokenError("WINDOW for a stream that is not in use")
            asked.credit.add(size)
        self._credit_came.set()


def _word(frame: Frame) -> str:
    if len(frame.payload) > 64 or not frame.payload.isascii():
        raise BrokenError("form of a word")
    return frame.payload.decode()
