"""An open channel at either end: PROTOCOL.md 6.5, 7.1 to 7.7."""

from __future__ import annotations

import asyncio
import contextlib

from tests.interop.asking import Asking
from tests.interop.frames import BrokenError, Frame, Records, Type
from tests.interop.joining import Joiner
from tests.interop.sending import Sender
from tests.interop.serving import Answer, Serving
from tests.support.deadline import DEADLINE_S
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed

SILENCE_S = 90.0
CLOSE_BROKEN, CLOSE_DONE = 4401, 1000


class EndedError(Exception):
    """The connection is over; `word` is that of the peer's CLOSE, or None if it was cut (7.6)."""

    def __init__(self, word: str | None, code: int | None) -> None:
        super().__init__(f"CLOSE {word}" if word is not None else f"truncated, websocket code {code}")
        self.word, self.code = word, code


class Session:
    """One end of an open channel. `run()` reads until the end; everything else may be called meanwhile."""

    def __init__(self, socket: Connection, records: Records, *, client: bool, answer: Answer) -> None:
        self.records = records
        self.messages: asyncio.Queue[bytes] = asyncio.Queue(256)
        self.ended: asyncio.Future[EndedError] = asyncio.get_running_loop().create_future()
        self.going_away: str | None = None
        self.seen: dict[Type, int] = dict.fromkeys(Type, 0)
        self._socket = socket
        self._sender = Sender(socket, records)
        self._joiner = Joiner()
        self._asking = Asking(self._sender, self._joiner, 1 if client else 2)
        self._serving = Serving(self._sender, self._joiner, answer, 0 if client else 1)
        self.request, self.upload = self._asking.request, self._asking.upload

    async def send_message(self, raw: bytes) -> None:
        """One MSG."""
        await self._sender.write_message(raw)

    async def send(self, kind: Type, payload: bytes = b"") -> None:
        """One frame on stream 0, as it is."""
        await self._sender.write(Frame(kind, 0, payload))

    async def keepalive(self) -> None:
        """KEEPALIVE."""
        await self.send(Type.KEEPALIVE)

    async def go_away(self, word: str) -> None:
        """GOAWAY."""
        await self.send(Type.GOAWAY, word.encode())

    async def close(self, word: str = "done") -> EndedError:
        """CLOSE, and wait for the peer's; inside a body, which CLOSE must not cut, the websocket alone."""
        if self._asking.is_sending_body:
            await self._socket.close(CLOSE_DONE)
        with contextlib.suppress(ConnectionError):
            await self.send(Type.CLOSE, word.encode())
        return await self.end()

    async def end(self) -> EndedError:
        """Wait for it: the peer's program may be gone before its last frames are read here."""
        return await asyncio.wait_for(asyncio.shield(self.ended), DEADLINE_S)

    async def run(self) -> EndedError:
        """Read until the end, whatever it is."""
        alive = asyncio.create_task(self._sender.stay_alive())
        word: str | None = None
        try:
            while word is None:
                record = await asyncio.wait_for(self._socket.recv(), SILENCE_S)
                word = await self._take(self.records.open(record))
            if not self._sender.is_closed:
                # What was asked before the peer's CLOSE is still answered.
                await self._serving.drained()
                with contextlib.suppress(ConnectionError):
                    await self.send(Type.CLOSE, b"done")
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

    def _finish(self, ended: EndedError) -> None:
        self.ended.set_result(ended)
        self._sender.is_closed = True
        self._asking.end(ended)
        self._serving.end()

    async def _take(self, frame: Frame) -> str | None:
        """Handle one frame; returns the word of a CLOSE."""
        self.seen[frame.type] += 1
        match frame.type:
            case Type.KEEPALIVE if frame.stream == 0 and not frame.payload:
                pass
            case Type.GOAWAY if frame.stream == 0:
                self.going_away = frame.word()
            case Type.CLOSE if frame.stream == 0:
                if not self._joiner.is_empty or self._serving.is_taking_body:
                    raise BrokenError("CLOSE inside a message or a body")
                return frame.word()
            case Type.MSG if frame.stream == 0:
                if (message := self._joiner.add(frame)) is not None:
                    await self.messages.put(message)
            case Type.REQ | Type.OPEN:
                self._serving.take_request(frame)
            case Type.RES:
                self._asking.take_answer(frame)
            case Type.DATA | Type.END | Type.RESET:
                self._serving.take_body(frame)
            case Type.WINDOW:
                self._asking.take_window(frame)
            case _:
                raise BrokenError("a frame that may not come here")
        return None
