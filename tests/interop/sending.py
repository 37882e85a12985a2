"""The order in which one end seals and writes: PROTOCOL.md 6.5, and the keepalive of 7.7."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.interop.frames import MORE, Frame, Records, Type, frames_of
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed

KEEPALIVE_S = 25.0
# How long either end waits for the other.


class Sender:
    """Seals one record at a time, each only when the one before it is on its way; interactive frames go first."""

    def __init__(self, socket: Connection, records: Records) -> None:
        self.is_closed = False
        self._socket, self._records = socket, records
        self._turn = asyncio.Condition()
        self._message_turn = asyncio.Lock()
        self._urgent = self._bulk_waiting = 0
        self._sent_at = asyncio.get_running_loop().time()

    async def write(self, frame: Frame, *, bulk: bool = False, sealed: Callable[[], None] | None = None) -> bytes:
        """Seal and send one frame when its turn has come; returns its record. `sealed` is called in between.

        Raises:
            ConnectionError: the session has ended.
        """
        self._urgent += not bulk
        try:
            async with self._turn:
                if bulk and self._urgent:
                    self._bulk_waiting += 1
                    try:
                        await self._turn.wait_for(lambda: not self._urgent)
                    finally:
                        self._bulk_waiting -= 1
                if self.is_closed:
                    raise ConnectionError("the session has ended")
                self.is_closed = frame.type is Type.CLOSE
                record = self._records.seal(frame)
                self._sent_at = asyncio.get_running_loop().time()
                if sealed is not None:
                    sealed()
                await self._socket.send(record)
                return record
        except ConnectionClosed:
            raise ConnectionError("the connection is closed") from None
        finally:
            self._urgent -= not bulk
            if self._bulk_waiting and not self._urgent:
                async with self._turn:
                    self._turn.notify_all()

    async def write_json(
        self,
        kind: Type,
        stream: int,
        message: dict[str, Any],
        *,
        bulk: bool = False,
        sealed: Callable[[], None] | None = None,
    ) -> None:
        """A REQ or a RES, in as many frames as it takes; `sealed` is called for the last."""
        raw = json.dumps(message, ensure_ascii=False).encode()
        for frame in frames_of(kind, stream, raw, bulk=bulk and kind is Type.REQ):
            await self.write(frame, bulk=bulk, sealed=None if frame.flags & MORE else sealed)

    async def write_message(self, raw: bytes) -> None:
        """One MSG; two of them never mix their frames, since all are on stream 0."""
        async with self._message_turn:
            for frame in frames_of(Type.MSG, 0, raw):
                await self.write(frame)

    async def stay_alive(self) -> None:
        """KEEPALIVE whenever nothing was sent for 25 s."""
        while True:
            left = self._sent_at + KEEPALIVE_S - asyncio.get_running_loop().time()
            if left > 0:
                await asyncio.sleep(left)
            else:
                await self.write(Frame(Type.KEEPALIVE, 0))
