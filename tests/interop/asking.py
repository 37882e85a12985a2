"""What an end asks: its REQ and OPEN, their bodies, and the answers that come (PROTOCOL.md 7.2, 7.4, 7.5)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tests.interop.bodies import CONNECTION_CREDIT, STREAM_CREDIT, Account, Tally, credit_in
from tests.interop.frames import MAX_PAYLOAD, BrokenError, Frame, Type
from tests.interop.joining import Joiner
from tests.interop.requests import RefusedError, read_answer
from tests.interop.sending import Sender
from tests.support.deadline import DEADLINE_S

MAX_STREAMS = 64


@dataclass(slots=True)
class _Asked:
    """A request under way."""

    answer: asyncio.Future[dict[str, Any]]
    credit: Account | None = None
    body_over: bool = True

    def end_body(self) -> None:
        self.body_over = True


class Asking:
    """The streams that this end opens; the first is number `first`."""

    def __init__(self, sender: Sender, joiner: Joiner, first: int) -> None:
        self._sender, self._joiner = sender, joiner
        self._next = first
        self._asked: dict[int, _Asked] = {}
        self._credit = Account(CONNECTION_CREDIT)
        self._credit_came = asyncio.Event()

    @property
    def is_sending_body(self) -> bool:
        """Whether a body of this end has had neither END nor RESET."""
        return not all(asked.body_over for asked in self._asked.values())

    def _new_stream(self, asked: _Asked) -> int:
        assert len(self._asked) < MAX_STREAMS
        stream = self._next
        self._next += 2
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
        # The answer may be here before the write returns, so the body is over when its last frame is sealed.
        if give_up_at is not None or last is None:
            await self._sender.write(Frame(Type.RESET, stream, b"cancelled"), sealed=asked.end_body)
        else:
            await self._sender.write(Frame(Type.END, stream, last), bulk=True, sealed=asked.end_body)
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

    def take_answer(self, frame: Frame) -> None:
        """A RES. Raises BrokenError."""
        asked = self._asked.get(frame.stream)
        if asked is None or asked.answer.done():
            raise BrokenError("an answer to nothing")
        if (message := self._joiner.add(frame)) is None:
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

    def take_window(self, frame: Frame) -> None:
        """A WINDOW. Raises BrokenError."""
        size = credit_in(frame)
        if frame.stream == 0:
            self._credit.add(size)
        else:
            asked = self._asked.get(frame.stream)
            if asked is None or asked.credit is None:
                raise BrokenError("WINDOW for a stream that is not in use")
            asked.credit.add(size)
        self._credit_came.set()

    def end(self, ended: Exception) -> None:
        """Nothing more will come: whoever waits for an answer gets `ended`."""
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(ended)
                asked.answer.exception()
        self._credit_came.set()
