"""Outgoing frames: interactive data is sent before bulk data, and the choice is made again for
every record (PROTOCOL.md 6.5).

If nothing else waits, the sender's own task encrypts and writes a small interactive message,
without queue or wake-up. Records keep the order of their nonces because nothing is awaited between
encryption and write: `ws.send` writes before it first suspends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from websockets.asyncio.connection import Connection as WebSocket
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from confide_crypto.channel.protocol import MAX_PAYLOAD, Channel, FrameType
from confide_crypto.errors import ConnectionLost
from confide_crypto.limits import MAX_MESSAGE

MAX_WAITING: Final = 128
"""Messages that may wait in one lane; further senders block."""


@dataclass(slots=True, eq=False)
class _Job:
    """A message that is being sent in pieces."""

    kind: int
    stream: int
    payload: bytes
    is_bulk: bool
    done: asyncio.Future[bool]
    sent: int = 0


@dataclass(slots=True, eq=False)
class _Upload:
    """A part of a body that is being sent, or its end."""

    stream: int
    part: bytes
    is_last: bool
    done: asyncio.Future[bool]
    sent: int = 0


class FrameOutbox:
    """The queue of outgoing frames. Once the channel is open, nothing else writes to the websocket."""

    def __init__(self, channel: Channel, ws: WebSocket) -> None:
        self._channel = channel
        self._ws = ws
        self._lanes: tuple[deque[_Job], deque[_Job]] = (deque(), deque())
        self._room = (asyncio.Semaphore(MAX_WAITING), asyncio.Semaphore(MAX_WAITING))
        self._uploads: dict[int, _Upload] = {}
        self._resets: dict[int, str] = {}
        self._grants: dict[int, int] = {}
        self._is_upload_next = False
        self._has_work = asyncio.Event()
        self._is_free = True
        self._is_running = False
        """True while `run` empties the queue; before that, a sender waits at the socket when it is
        full.
        """
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._closed = False
        self.records_sent = 0

    async def send(self, kind: FrameType, stream: int, payload: bytes, *, bulk: bool = False) -> None:
        """Send a payload, and return when the socket has accepted its last record.

        Raises ConnectionLost if the connection ends first; ValueError if the payload is over the
        limit of a message.
        """
        if (
            len(payload) <= MAX_PAYLOAD
            and self._is_free
            and not bulk
            and not self._room[False].locked()  # or it would overtake senders that wait for a place
            and (self._ws.transport.get_write_buffer_size() == 0 or not self._is_running)
        ):
            await self._write(self._channel.seal(kind, stream, payload))
            return
        if len(payload) > MAX_MESSAGE:
            raise ValueError(f"a message of {len(payload)} bytes is over the limit of {MAX_MESSAGE}")
        job = _Job(kind, stream, payload, bulk, asyncio.get_running_loop().create_future())
        try:
            async with self._room[bulk]:
                self._require_open()
                self._lanes[bulk].append(job)
                self._wake()
                await job.done
        finally:
            if job in self._lanes[bulk] and not job.sent:  # cancelled before its first record was sent
                self._lanes[bulk].remove(job)
            if not job.sent and kind in (FrameType.REQ, FrameType.OPEN):  # or before it entered the queue
                self._channel.abandon_request(stream)

    async def send_part(self, stream: int, part: bytes, *, is_last: bool) -> bool:
        """Send a part of a body as fast as its credit allows, one part at a time on each stream.
        After the last part, also send END.

        Returns:
            True when the socket has accepted the part, False if the body was given up meanwhile.

        Raises ConnectionLost if the connection ends first.
        """
        self._require_open()
        if not self._channel.outgoing.is_unfinished(stream) or stream in self._resets:
            return False
        upload = _Upload(stream, part, is_last, asyncio.get_running_loop().create_future())
        self._uploads[stream] = upload
        self._wake()
        try:
            return await upload.done
        finally:
            if self._uploads.get(stream) is upload:
                del self._uploads[stream]

    def reset(self, stream: int, code: str) -> None:
        """Give up a body that is not completely sent. A waiting `send_part` then returns False."""
        if self._channel.outgoing.is_unfinished(stream) and not self._closed:
            self._resets[stream] = code
            upload = self._uploads.pop(stream, None)
            if upload and not upload.done.done():
                upload.done.set_result(False)
            self._wake()

    def grant(self, stream: int, amount: int) -> None:
        """Allow the peer to send `amount` more bytes on its `stream`, or on all its streams
        together if it is 0.

        It never waits: grants that are not sent yet add up.
        """
        if not self._closed:
            self._grants[stream] = self._grants.get(stream, 0) + amount
            self._wake()

    def take_credit(self) -> None:
        """Check for bodies that can be sent now that the peer has granted credit."""
        if self._uploads:
            self._has_work.set()

    async def run(self) -> None:
        """Send queued data until cancelled or the connection ends. It reports no lost connection;
        the reading side does.
        """
        self._is_running = True
        try:
            while True:
                await self._has_work.wait()
                await self.pump()
        except ConnectionLost as error:
            self.fail(error)

    async def pump(self) -> None:
        """Send everything that can be sent now. A body without credit waits."""
        self._is_free = False
        while True:
            if self._resets:  # first: only then is a stream that was answered early free for a request
                await self._send_reset()
            elif self._lanes[0]:
                await self._send_job(self._lanes[0])
            elif self._grants:
                await self._send_grant()
            elif not await self._send_bulk():
                break
        self._has_work.clear()
        self._is_free = True
        if not self._uploads:
            self._is_empty.set()

    @property
    def is_busy(self) -> bool:
        """True if data waits to be sent, here or in the socket. A body that waits for credit does
        not count.
        """
        return not self._is_free or self._ws.transport.get_write_buffer_size() > 0

    async def send_close(self, code: str) -> None:
        """Send the CLOSE frame, the last record. Raises ConnectionLost if a message is only partly
        sent, or the connection ended first.
        """
        await self._write(self._channel.seal_close(code))

    async def wait_empty(self) -> None:
        """Wait until no data waits to be sent."""
        await self._is_empty.wait()

    def fail(self, error: ConnectionLost) -> None:
        """Make all waiting senders raise `error`: nothing more will be sent."""
        self._closed = True
        everything: list[_Job | _Upload] = [*self._lanes[0], *self._lanes[1], *self._uploads.values()]
        for waiting in everything:
            if not waiting.done.done():
                waiting.done.set_exception(ConnectionLost(truncated=error.truncated))
        for lane in self._lanes:
            lane.clear()
        for queue in (self._uploads, self._resets, self._grants):
            queue.clear()
        self._is_empty.set()

    def _require_open(self) -> None:
        if self._closed:
            raise ConnectionLost(truncated=False)

    def _wake(self) -> None:
        self._is_free = False
        self._is_empty.clear()
        self._has_work.set()

    async def _send_bulk(self) -> bool:
        # Messages and bodies alternate, and so do the bodies.
        upload = self._next_upload()
        if upload is not None and (self._is_upload_next or not self._lanes[1]):
            self._is_upload_next = False
            await self._send_piece(upload)
        elif self._lanes[1]:
            self._is_upload_next = True
            await self._send_job(self._lanes[1])
        else:
            return False
        return True

    def _next_upload(self) -> _Upload | None:
        for stream, upload in self._uploads.items():
            if upload.sent == len(upload.part) or self._channel.outgoing.credit_of(stream):
                return upload
        return None

    async def _send_job(self, lane: deque[_Job]) -> None:
        job = lane[0]
        piece = job.payload[job.sent : job.sent + MAX_PAYLOAD]
        job.sent += len(piece)
        is_last = job.sent >= len(job.payload)
        is_bulk_request = job.is_bulk and job.kind == FrameType.REQ
        record = self._channel.seal(job.kind, job.stream, piece, more=not is_last, bulk=is_bulk_request)
        if is_last:
            lane.popleft()
        await self._write_for(job, record, is_last=is_last)

    async def _send_piece(self, upload: _Upload) -> None:
        stream, channel = upload.stream, self._channel
        while self._uploads.get(stream) is upload:
            if upload.sent < len(upload.part):
                size = min(MAX_PAYLOAD, channel.outgoing.credit_of(stream))
                if not size:
                    return
                piece = upload.part[upload.sent : upload.sent + size]
                upload.sent += len(piece)
                record = channel.seal_data(stream, piece)
                is_last = upload.sent == len(upload.part) and not upload.is_last
            else:
                record, is_last = channel.seal_end(stream), True
            if is_last:
                del self._uploads[stream]
            await self._write_for(upload, record, is_last=is_last)
            # If no other data waits, it continues here: a look at every queue costs a tenth of a
            # record.
            if self._lanes[0] or self._resets or self._grants or self._lanes[1] or len(self._uploads) > 1:
                break
        if not is_last and stream in self._uploads:
            self._uploads[stream] = self._uploads.pop(stream)  # behind the others

    async def _send_reset(self) -> None:
        stream, code = self._resets.popitem()
        await self._write(self._channel.seal_reset(stream, code))

    async def _send_grant(self) -> None:
        stream, amount = self._grants.popitem()
        if stream == 0 or self._channel.incoming.wants_credit(stream):
            await self._write(self._channel.seal_window(stream, amount))

    async def _write_for(self, waiting: _Job | _Upload, record: bytes, *, is_last: bool) -> None:
        try:
            await self._write(record)
        except BaseException:
            if not waiting.done.done():  # it may have left its lane already, where `fail` would not find it
                waiting.done.set_exception(ConnectionLost(truncated=True))
            raise
        if is_last and not waiting.done.done():
            waiting.done.set_result(True)

    async def _write(self, record: bytes) -> None:
        self.records_sent += 1
        ws = self._ws
        try:
            if ws.protocol.state is not State.OPEN:
                await ws.send(record)  # raises the reason of the close
            # The same steps as `ws.send` without its context manager, which takes a tenth of a
            # small message's round trip.
            ws.protocol.send_binary(record)
            ws.send_data()
            if ws.paused or ws.transport.is_closing():
                await ws.drain()
        except (ConnectionClosed, OSError):
            raise ConnectionLost(truncated=not self._channel.is_complete) from None
