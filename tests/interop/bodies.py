"""Streams with credit, PROTOCOL.md 7.4 and 7.5: the accounts of one body in each direction."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.interop.frames import BrokenError, Frame

STREAM_CREDIT = 1 << 20
CONNECTION_CREDIT = 8 << 20
MAX_CREDIT = (1 << 31) - 1
MAX_BODY = 1 << 40
# The document does not say how long a receiver may keep credit back; an eighth of what a stream starts with keeps both ends busy.
GIVE_BACK_AT = STREAM_CREDIT // 8
_END = struct.Struct(">Q32s")
_WINDOW = struct.Struct(">I")


class GivenUpError(Exception):
    """The opener sent RESET, or the connection ended."""


@dataclass(slots=True)
class Tally:
    """Length and hash of a body, as END states them."""

    length: int = 0
    _hash: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=32))

    def add(self, size: int, tag: bytes) -> None:
        """One DATA, with the tag of its record."""
        self.length += size
        self._hash.update(tag)
        if self.length > MAX_BODY:
            raise BrokenError("a body over 2^40 bytes")

    def end(self) -> bytes:
        """The payload of END."""
        return _END.pack(self.length, self._hash.digest())


def window(size: int) -> bytes:
    """The payload of WINDOW."""
    return _WINDOW.pack(size)


def credit_in(frame: Frame) -> int:
    """The bytes that a WINDOW gives. Raises BrokenError."""
    if len(frame.payload) != _WINDOW.size or not (size := _WINDOW.unpack(frame.payload)[0]):
        raise BrokenError("form of WINDOW")
    return int(size)


class Incoming:
    """A body that the peer sends; `whole()` is for the handler of its request."""

    def __init__(self, consumed: Callable[[int], None]) -> None:
        self._consumed = consumed
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._tally = Tally()
        self.credit = STREAM_CREDIT
        self.unreturned = 0
        self.over = False
        self.given_up = False
        self.answered = False

    def data(self, frame: Frame) -> None:
        """Take one DATA. Raises BrokenError."""
        size = len(frame.payload)
        if self.over or not size or size > self.credit:
            raise BrokenError("DATA that may not come")
        self.credit -= size
        self._tally.add(size, frame.tag)
        if self.answered:
            self._consumed(size)
        else:
            self._pieces.put_nowait(frame.payload)

    def end(self, frame: Frame) -> None:
        """Take END, whose length and hash must be those of the DATA. Raises BrokenError."""
        if self.over or frame.payload != self._tally.end():
            raise BrokenError("END that does not fit")
        self.over = True
        self._pieces.put_nowait(None)

    def reset(self) -> None:
        """Take RESET, or the end of the connection."""
        if self.over:
            raise BrokenError("RESET after the end")
        self.over = self.given_up = True
        self.discard()
        self._pieces.put_nowait(None)

    def discard(self) -> None:
        """Drop what was not read; its credit goes back to the connection."""
        while not self._pieces.empty():
            self._consumed(len(self._pieces.get_nowait() or b""))

    async def whole(self) -> bytes:
        """The body, once END has come. Raises GivenUpError."""
        pieces = []
        while (piece := await self._pieces.get()) is not None:
            pieces.append(piece)
            self._consumed(len(piece))
        if self.given_up:
            raise GivenUpError
        return b"".join(pieces)


class Account:
    """Credit that the peer has given to this end."""

    def __init__(self, start: int) -> None:
        self.left = start

    def add(self, size: int) -> None:
        """A WINDOW. Raises BrokenError."""
        self.left += size
        if self.left > MAX_CREDIT:
            raise BrokenError("credit above 2^31 - 1")
