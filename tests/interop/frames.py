"""Records and frames, PROTOCOL.md 6.1 to 6.4."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from tests.interop.engine import Engine

BUCKETS = (256, 1024, 4096, 16384)
MAX_PAYLOAD = 16376
TAG_LENGTH = 16
REKEY_EVERY = 1 << 14
MORE, BULK = 1, 2
_HEADER = struct.Struct(">BBIH")


class BrokenError(Exception):
    """The peer broke a rule that ends the connection (PROTOCOL.md 6.7)."""


class Type(IntEnum):
    """7.1."""

    OPEN = 1
    DATA = 2
    END = 3
    WINDOW = 4
    RESET = 5
    REQ = 6
    RES = 7
    KEEPALIVE = 8
    GOAWAY = 9
    CLOSE = 10
    MSG = 11


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame and, if it was received, the tag of its record."""

    type: Type
    stream: int
    payload: bytes = b""
    flags: int = 0
    tag: bytes = b""
    length: int = 0

    def encode(self, *, at_least: int = 0) -> bytes:
        """The padded plaintext."""
        plain = _HEADER.pack(self.type, self.flags, self.stream, len(self.payload)) + self.payload
        return plain.ljust(next(size for size in BUCKETS if size >= max(len(plain), at_least)), b"\0")

    @classmethod
    def decode(cls, plain: bytes, tag: bytes) -> Frame:
        """Check the form: bucket, type, flags, padding, MORE (6.2, 6.3). Raises BrokenError."""
        if len(plain) not in BUCKETS:
            raise BrokenError("length")
        kind, flags, stream, length = _HEADER.unpack_from(plain)
        body = plain[_HEADER.size :]
        if length > len(body) or any(body[length:]):
            raise BrokenError("padding")
        if kind not in Type.__members__.values():
            raise BrokenError("type")
        kind = Type(kind)
        if flags & ~(MORE | BULK) or (flags & BULK and kind is not Type.REQ):
            raise BrokenError("flags")
        if flags & MORE and (kind not in (Type.MSG, Type.REQ, Type.RES) or length != MAX_PAYLOAD):
            raise BrokenError("MORE")
        return cls(kind, stream, body[:length], flags, tag, len(plain))

    def word(self) -> str:
        """The word in a GOAWAY, RESET or CLOSE (7.1). Raises BrokenError."""
        if len(self.payload) > 64 or not self.payload.isascii():
            raise BrokenError("form of a word")
        return self.payload.decode()


def frames_of(kind: Type, stream: int, message: bytes, *, bulk: bool = False) -> Iterator[Frame]:
    """A message cut into frames; a message that ends on a frame's edge has no empty frame behind it."""
    flag = BULK if bulk else 0
    for start in range(0, max(1, len(message)), MAX_PAYLOAD):
        more = MORE if start + MAX_PAYLOAD < len(message) else 0
        yield Frame(kind, stream, message[start : start + MAX_PAYLOAD], flag | more)


class Records:
    """The two directions after Split, with their counts and rekeys."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.sent = 0
        self.received = 0

    @property
    def session_id(self) -> bytes:
        """4.8."""
        return self._engine.handshake_hash()[:16]

    def seal(self, frame: Frame, *, at_least: int = 0) -> bytes:
        """The next record of this end."""
        return self.seal_plain(frame.encode(at_least=at_least))

    def seal_plain(self, plain: bytes) -> bytes:
        """The next record with this plaintext, right or wrong."""
        record = self._engine.seal(plain)
        self.sent += 1
        if self.sent % REKEY_EVERY == 0:
            self._engine.rekey_sending()
        return record

    def open(self, record: bytes | str) -> Frame:
        """The frame in the peer's next record. Raises BrokenError."""
        if not isinstance(record, bytes) or len(record) - TAG_LENGTH not in BUCKETS:
            raise BrokenError("form of the record")
        try:
            plain = self._engine.open(record)
        except Exception as error:
            raise BrokenError("a record that does not open") from error
        self.received += 1
        if self.received % REKEY_EVERY == 0:
            self._engine.rekey_receiving()
        return Frame.decode(plain, record[-TAG_LENGTH:])
