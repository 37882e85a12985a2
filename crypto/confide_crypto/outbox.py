"""What waits to be sent, in two lanes: interactive before bulk, decided again at every record (PROTOCOL.md 6.5).

A small interactive message with nothing before it is sealed and written in the sender's own task: no queue, no wake-up.
Nonce order holds because nothing is awaited between a seal and the write: `ws.send` writes before it first suspends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from websockets.exceptions import ConnectionClosed

from confide_crypto.channel import MAX_PAYLOAD, Channel, FrameType
from confide_crypto.errors import ConnectionLost
from confide_crypto.limits import MAX_MESSAGE

if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection as WebSocket

MAX_WAITING: Final = 128
"""Messages that wait in one lane; the next sender waits before it gets in."""


@dataclass(slots=True, eq=False)
class _Job:
    kind: int
    stream: int
    payload: bytes
    done: asyncio.Future[None]
    sent: int = 0


class Outbox:
    """The only way onto the websocket once the channel is open."""

    def __init__(self, channel: Channel, ws: WebSocket) -> None:
        self._channel = channel
        self._ws = ws
        self._lanes: tuple[deque[_Job], deque[_Job]] = (deque(), deque())
        self._room = (asyncio.Semaphore(MAX_WAITING), asyncio.Semaphore(MAX_WAITING))
        self._has_work = asyncio.Event()
        self._is_free = True
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._closed = False
        self.records_sent = 0

    async def send(self, kind: FrameType, stream: int, payload: bytes, *, bulk: bool = False) -> None:
        """Return when the last record is with the socket.

        Raises:
            ConnectionLost: the connection ended first.
            ValueError: the payload is over the limit of a message.
        """
        if (
            len(payload) <= MAX_PAYLOAD
            and self._is_free
            and not bulk
            and self._ws.transport.get_write_buffer_size() == 0
        ):
            self.records_sent += 1
            try:
                await self._ws.send(self._channel.seal(kind, stream, payload))
            except ConnectionClosed:
                raise self._lost() from None
            return
        await self._queue(kind, stream, payload, bulk=bulk)

    async def _queue(self, kind: FrameType, stream: int, payload: bytes, *, bulk: bool) -> None:
        if len(payload) > MAX_MESSAGE:
            raise ValueError(f"a message of {len(payload)} bytes is over the limit of {MAX_MESSAGE}")
        async with self._room[bulk]:
            if self._closed:
                raise ConnectionLost(truncated=False)
            job = _Job(kind, stream, payload, asyncio.get_running_loop().create_future())
            self._lanes[bulk].append(job)
            self._is_free = False
            self._is_empty.clear()
            self._has_work.set()
            try:
                await job.done
            finally:
                if not job.sent and job in self._lanes[bulk]:  # cancelled before its first record
                    self._lanes[bulk].remove(job)
                    if kind is FrameType.REQ:
                        self._channel.abandon_request(stream)

    async def run(self) -> None:
        """Send what waits, until cancelled or the connection is gone. The reader reports the loss."""
        try:
            while True:
                await self._has_work.wait()
                await self.pump()
        except ConnectionLost as error:
            self.fail(error)

    async def pump(self) -> None:
        """Send what waits now."""
        while lane := self._lanes[0] or self._lanes[1]:
            job = lane[0]
            piece = job.payload[job.sent : job.sent + MAX_PAYLOAD]
            job.sent += len(piece)
            is_last = job.sent >= len(job.payload)
            record = self._channel.seal(job.kind, job.stream, piece, more=not is_last)
            if is_last:
                lane.popleft()
            try:
                await self._write(record)
            except BaseException:
                if not job.done.done():  # it may be out of its lane already, where `fail` would not find it
                    job.done.set_exception(ConnectionLost(truncated=True))
                raise
            if is_last and not job.done.done():
                job.done.set_result(None)
        self._has_work.clear()
        self._is_free = True
        self._is_empty.set()

    @property
    def is_busy(self) -> bool:
        """Whether something waits here or in the socket."""
        return not self._is_free or self._ws.transport.get_write_buffer_size() > 0

    async def send_close(self, code: str) -> None:
        """Send the last record.

        Raises:
            ConnectionLost: a message is half sent, or the connection ended first.
        """
        await self._write(self._channel.seal_close(code))

    async def wait_empty(self) -> None:
        """Return when nothing waits."""
        await self._is_empty.wait()

    def fail(self, error: ConnectionLost) -> None:
        """End all waiting: nothing more will be sent."""
        self._closed = True
        for lane in self._lanes:
            for job in lane:
                if not job.done.done():
                    job.done.set_exception(ConnectionLost(truncated=error.truncated))
            lane.clear()
        self._is_empty.set()

    async def _write(self, record: bytes) -> None:
        self.records_sent += 1
        try:
            await self._ws.send(record)
        except ConnectionClosed:
            raise self._lost() from None

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(truncated=not self._channel.is_complete)
