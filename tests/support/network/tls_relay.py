"""Somebody who ends TLS in front of a daemon: passes websockets on, keeps everything in clear, and edits frames when told to.

It is what a reverse proxy or a tunnel is to us, and everything that one which was taken over could do to a session.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from tests.support.deadline import DEADLINE_S

UP, DOWN = "up", "down"
Direction = Literal["up", "down"]
BINARY, CLOSE = 2, 8
_PIECE = 64 * 1024
_HEAD_LIMIT = 16 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """One websocket frame, its payload unmasked."""

    opcode: int
    payload: bytes


@dataclass(slots=True, eq=False)
class Passage:
    """One websocket that goes through: how many frames each way, and whether it was edited."""

    number: int
    frames: dict[Direction, int] = field(default_factory=lambda: {"up": 0, "down": 0})
    is_edited: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


Edit = Callable[[Passage, Direction, Frame], "list[Frame] | None"]
"""What goes on in place of a frame: None for the frame itself. Afterwards the relay closes politely behind a CLOSE."""


class TlsRelay:
    """Forwards websockets to a loopback port, as a reverse proxy that ends TLS does."""

    def __init__(
        self,
        target_port: int,
        *,
        context: ssl.SSLContext | None = None,
        prefix: str = "",
        idle_s: float | None = None,
        edit: Edit | None = None,
    ) -> None:
        """
        Args:
            context: of the TLS that ends here; None takes plain connections.
            prefix: the only path that is passed on; anything else gets a 404.
            idle_s: a connection on which the daemon is silent for so long is cut.
            edit: asked about every frame.
        """
        self.edit = edit
        self.port = 0
        self.passages: list[Passage] = []
        self._target_port = target_port
        self._context = context
        self._prefix = prefix
        self._idle_s = idle_s
        self._captured = bytearray()
        self._lock = threading.Lock()
        self._swallowed: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def captured(self) -> bytes:
        """All that passed so far, in clear, as whoever ends TLS sees it."""
        with self._lock:
            return bytes(self._captured)

    def swallow(self) -> None:
        """Forward nothing more on the connections that are open now, and do not say so; new ones pass."""
        self._swallowed |= {passage.number for passage in self.passages}

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, EOFError, ssl.SSLError, asyncio.CancelledError, asyncio.LimitOverrunError):
            await self._relay(reader, writer)
        writer.transport.abort()
        self._tasks.discard(task)

    async def _relay(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        head = await near.readuntil(b"\r\n\r\n")
        self._record(head)
        if not head.split(b" ")[1].startswith(self._prefix.encode()):
            await _answer(to_near, b"404 Not Found")
            return
        try:
            far, to_far = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            await _answer(to_near, b"502 Bad Gateway")
            return
        try:
            to_far.write(head)
            answer = await far.readuntil(b"\r\n\r\n")
            self._record(answer)
            to_near.write(answer)
            if b" 101 " not in answer.split(b"\r\n")[0]:
                to_near.write(await far.read(_HEAD_LIMIT))
                await to_near.drain()
                return
            passage = Passage(len(self.passages))
            self.passages.append(passage)
            pumps = [
                asyncio.ensure_future(self._pump(passage, "up", near, to_far, to_near)),
                asyncio.ensure_future(self._pump(passage, "down", far, to_near, to_far)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                passage.ended.set()
        finally:
            to_far.transport.abort()

    async def _pump(
        self,
        passage: Passage,
        direction: Direction,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:
        while True:
            async with asyncio.timeout(self._idle_s if direction == "down" else None):
                frame = await _read_frame(source)
            if passage.number in self._swallowed:
                continue
            self._record(frame.payload)
            passage.frames[direction] += 1
            instead = self.edit(passage, direction, frame) if self.edit else None
            passage.is_edited |= instead is not None
            for each in [frame] if instead is None else instead:
                sink.write(_encoded(each, is_masked=direction == "up"))
            await sink.drain()
            if instead and instead[-1].opcode == CLOSE:
                back.write(_encoded(instead[-1], is_masked=direction == "down"))
                for writer in (sink, back):
                    await writer.drain()
                await asyncio.sleep(0.05)  # both ends see a close, and no reset that overtakes it
                return

    def _record(self, data: bytes) -> None:
        with self._lock:
            self._captured += data


async def _answer(writer: asyncio.StreamWriter, status: bytes) -> None:
    writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def _read_frame(source: asyncio.StreamReader) -> Frame:
    first, second = await source.readexactly(2)
    length = second & 127
    if length >= 126:
        length = int.from_bytes(await source.readexactly(2 if length == 126 else 8), "big")
    mask = await source.readexactly(4) if second & 128 else b"\0\0\0\0"
    payload = await source.readexactly(length)
    if any(mask):
        keys = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        payload = (int.from_bytes(payload, "big") ^ keys).to_bytes(length, "big")
    return Frame(first & 15, payload)


def _encoded(frame: Frame, *, is_masked: bool) -> bytes:
    length = len(frame.payload)
    bit = 128 if is_masked else 0
    if length < 126:
        head = bytes([128 | frame.opcode, bit | length])
    elif length < 1 << 16:
        head = bytes([128 | frame.opcode, bit | 126]) + struct.pack(">H", length)
    else:
        head = bytes([128 | frame.opcode, bit | 127]) + struct.pack(">Q", length)
    # A mask of zeros is one, and leaves the payload readable in a dump.
    return head + (b"\0\0\0\0" if is_masked else b"") + frame.payload
