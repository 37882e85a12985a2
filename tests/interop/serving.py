"""What an end is asked: the peer's REQ and OPEN, their bodies and credit, and the answers (PROTOCOL.md 7.2, 7.4, 7.5)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tests.interop.bodies import CONNECTION_CREDIT, GIVE_BACK_AT, GivenUpError, Incoming, window
from tests.interop.frames import BULK, BrokenError, Frame, Type
from tests.interop.joining import Joiner
from tests.interop.requests import RefusedError, read_request
from tests.interop.sending import Sender
from tests.support.deadline import DEADLINE_S

MAX_STREAMS = 64

Answer = Callable[[str, dict[str, Any], Incoming | None], Awaitable[dict[str, Any]]]


class Serving:
    """The streams that the peer opens, of parity `parity`; `answer` handles its requests."""

    def __init__(self, sender: Sender, joiner: Joiner, answer: Answer, parity: int) -> None:
        self._sender, self._joiner, self._answer, self._parity = sender, joiner, answer, parity
        self._serving: dict[int, Incoming | None] = {}
        self._credit = CONNECTION_CREDIT
        self._unreturned = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_taking_body(self) -> bool:
        """Whether a body of the peer has had neither END nor RESET."""
        return any(body and not body.over for body in self._serving.values())

    def take_request(self, frame: Frame) -> None:
        """A REQ or OPEN. Raises BrokenError."""
        stream, going_on = frame.stream, self._joiner.has(Type.REQ, frame.stream)
        if going_on and frame.type is Type.OPEN:
            raise BrokenError("OPEN inside a REQ")
        if not going_on:
            if stream == 0 or stream % 2 != self._parity or stream in self._serving:
                raise BrokenError("a stream that may not be opened")
            if len(self._serving) >= MAX_STREAMS:
                raise BrokenError("too many requests")
            self._serving[stream] = None
            if frame.type is Type.OPEN:
                self._serving[stream] = Incoming(lambda size: self._consumed(stream, size))
        raw = frame.payload if frame.type is Type.OPEN else self._joiner.add(frame)
        if raw is None:
            return
        op, request = read_request(raw)
        self._start(self._serve(stream, op, request, bulk=bool(frame.flags & BULK)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
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
        with contextlib.suppress(ConnectionError):
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

    def take_body(self, frame: Frame) -> None:
        """A DATA, END or RESET. Raises BrokenError."""
        body = self._serving.get(frame.stream)
        if body is None:
            raise BrokenError("a body that nobody opened")
        if frame.type is Type.DATA:
            self._credit -= len(frame.payload)
            if self._credit < 0:
                raise BrokenError("DATA beyond the credit of the connection")
            body.data(frame)
            return
        if frame.type is Type.END:
            body.end(frame)
        else:
            frame.word()
            body.reset()
        if body.answered:
            del self._serving[frame.stream]

    def _consumed(self, stream: int, size: int) -> None:
        """Give credit back, in portions."""
        body = self._serving.get(stream)
        self._unreturned += size
        if self._unreturned >= GIVE_BACK_AT:
            self._credit += self._unreturned
            self._start(self._give(0, self._unreturned))
            self._unreturned = 0
        if body is not None and not body.over and not body.answered:
            body.unreturned += size
            if body.unreturned >= GIVE_BACK_AT:
                body.credit += body.unreturned
                self._start(self._give(stream, body.unreturned))
                body.unreturned = 0

    async def _give(self, stream: int, size: int) -> None:
        body = self._serving.get(stream)
        if stream and (body is None or body.answered or body.over):
            return
        with contextlib.suppress(ConnectionError):
            await self._sender.write(Frame(Type.WINDOW, stream, window(size)))

    async def drained(self) -> None:
        """Wait until what was asked is answered."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=DEADLINE_S)

    def end(self) -> None:
        """Nothing more will come: bodies under way are given up."""
        for body in self._serving.values():
            if body is not None and not body.over:
                body.reset()
