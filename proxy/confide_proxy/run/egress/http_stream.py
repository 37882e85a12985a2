"""An HTTP/1.1 connection from one of its ends: h11 parses and builds the messages, and this module
reads and writes their bytes with timeouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import h11

MOST_HEAD: Final = 64 * 1024
"""Most bytes of a request's or an answer's line and headers."""
IDLE_S: Final = 600.0
"""Longest wait for the next byte."""
_PIECE: Final = 64 * 1024


class HttpStream:
    """An end of an HTTP/1.1 connection. Its methods raise h11.ProtocolError, OSError or
    TimeoutError if the connection fails.

    Attributes:
        http: h11's state of the connection.
    """

    def __init__(self, role: type[h11.CLIENT | h11.SERVER], reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.http = h11.Connection(role, max_incomplete_event_size=MOST_HEAD)
        self.reader = reader
        self.writer = writer
        self._sent_at = -IDLE_S

    async def next(self, *, wait_s: float = IDLE_S) -> h11.Event:
        """Return the next event from the other side. While this side is sending, the wait is
        extended.
        """
        began = asyncio.get_running_loop().time()
        while isinstance(event := self.http.next_event(), type) and event is h11.NEED_DATA:
            if self.http.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            self.http.receive_data(await self._read(began, wait_s))
        if isinstance(event, type):
            raise h11.RemoteProtocolError("more than one message at a time")
        return event

    async def _read(self, began: float, wait_s: float) -> bytes:
        while True:
            until = max(began, self._sent_at) + wait_s
            try:
                async with asyncio.timeout_at(until):
                    return await self.reader.read(_PIECE)
            except TimeoutError:
                if until >= max(began, self._sent_at) + wait_s:
                    raise

    async def send(self, *events: h11.Event) -> None:
        """Send these events to the other side."""
        for event in events:
            if data := self.http.send(event):
                self.writer.write(data)
        async with asyncio.timeout(IDLE_S):
            await self.writer.drain()
        self._sent_at = asyncio.get_running_loop().time()

    async def body(self) -> AsyncGenerator[bytes]:
        """Yield the pieces of the body of the message that is being received, to its end."""
        while not isinstance(event := await self.next(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    def begin_next(self) -> bool:
        """Prepare for the next request on the same connection. Return False if the present request
        and response are not complete, or if the connection cannot be reused.
        """
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        return True
