"""Records and frames (PROTOCOL.md 6), written from the document alone: no I/O, no keys made here."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

SIZES = (256, 1024, 4096, 16384)
PAYLOAD_BYTES = 16376
TAG_BYTES = 16
MESSAGE_BYTES = 16 << 20
UNFINISHED_BYTES = 32 << 20
REKEY_RECORDS = 1 << 14
MORE, BULK = 1, 2
_HEADER = struct.Struct(">BBIH")


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


_MAY_GO_ON = (Type.MSG, Type.REQ, Type.RES)
_ON_STREAM_0 = (Type.KEEPALIVE, Type.GOAWAY, Type.CLOSE, Type.MSG)


class RuleBrokenError(Exception):
    """The other end did what sections 6 and 7 call fatal."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of 6.2; `tag` is that of the record it came in."""

    type: Type
    stream: int
    payload: bytes
    flags: int = 0
    tag: bytes = b""


def pack(frame: Frame, *, at_least: int = 0) -> bytes:
    """The padded plaintext of one record."""
    plain = _HEADER.pack(frame.type, frame.flags, frame.stream, len(frame.payload)) + frame.payload
    size = next(size for size in SIZES if size >= max(len(plain), at_least))
    return plain.ljust(size, b"\0")


def unpack(plain: bytes, tag: bytes) -> Frame:
    """The frame in a plaintext.

    Raises:
        RuleBrokenError: by 6.2, 6.3, 6.7 or the payload column of 7.1.
    """
    if len(plain) not in SIZES:
        raise RuleBrokenError("the size of a record")
    number, flags, stream, length = _HEADER.unpack_from(plain)
    payload, padding = plain[8 : 8 + length], plain[8 + length :]
    if len(payload) != length or any(padding):
        raise RuleBrokenError("length or padding")
    try:
        kind = Type(number)
    except ValueError:
        raise RuleBrokenError("an unknown type") from None
    if flags & ~(MORE | BULK) or (flags & BULK and kind is not Type.REQ):
        raise RuleBrokenError("flags")
    if flags & MORE and (kind not in _MAY_GO_ON or length != PAYLOAD_BYTES):
        raise RuleBrokenError("MORE")
    if kind in _ON_STREAM_0 and stream:
        raise RuleBrokenError("a stream number where 0 belongs")
    _check_payload(kind, payload)
    return Frame(kind, stream, payload, flags, tag)


def _check_payload(kind: Type, payload: bytes) -> None:
    wanted = {Type.END: 40, Type.WINDOW: 4, Type.KEEPALIVE: 0}.get(kind, len(payload))
    if len(payload) != wanted or (kind is Type.DATA and not payload):
        raise RuleBrokenError("the length of a payload")
    if kind in (Type.RESET, Type.GOAWAY, Type.CLOSE) and (len(payload) > 64 or not payload.isascii()):
        raise RuleBrokenError("a word that is none")


class Records:
    """Both directions of a split handshake: the two CipherStates of the Noise library, with the rekey of 6.4."""

    def __init__(self, sender: Any, receiver: Any) -> None:
        self._sender, self._receiver = sender, receiver
        self.sent = self.received = 0

    def seal(self, plain: bytes) -> bytes:
        """The next record out; its last 16 bytes are the tag."""
        record: bytes = self._sender.encrypt_with_ad(b"", plain)
        self.sent += 1
        if self.sent % REKEY_RECORDS == 0:
            self._sender.rekey()
        return record

    def open(self, record: bytes) -> tuple[bytes, bytes]:
        """Plaintext and tag of the next record in.

        Raises:
            RuleBrokenError: it is of a wrong length or does not open.
        """
        if len(record) - TAG_BYTES not in SIZES:
            raise RuleBrokenError("the size of a record")
        try:
            plain = self._receiver.decrypt_with_ad(b"", record)
        except Exception:
            raise RuleBrokenError("a record that does not open") from None
        self.received += 1
        if self.received % REKEY_RECORDS == 0:
            self._receiver.rekey()
        return plain, record[-TAG_BYTES:]


class Joiner:
    """Messages joined from their frames (6.3)."""

    def __init__(self) -> None:
        self._parts: dict[tuple[Type, int], list[Frame]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no message is unfinished."""
        return not self._parts

    def starts(self, frame: Frame) -> bool:
        """Whether this frame is the first of its message."""
        return (frame.type, frame.stream) not in self._parts

    def add(self, frame: Frame) -> bytes | None:
        """The whole message, once its last frame is there.

        Raises:
            RuleBrokenError: BULK in some frames only, or too much.
        """
        parts = self._parts.setdefault((frame.type, frame.stream), [])
        parts.append(frame)
        if parts[0].flags & BULK != frame.flags & BULK:
            raise RuleBrokenError("BULK in some frames only")
        if sum(len(part.payload) for part in parts) > MESSAGE_BYTES or self._held() > UNFINISHED_BYTES:
            raise RuleBrokenError("a message over the limit")
        if frame.flags & MORE:
            return None
        del self._parts[frame.type, frame.stream]
        return b"".join(part.payload for part in parts)

    def _held(self) -> int:
        return sum(len(parts) * PAYLOAD_BYTES for parts in self._parts.values())


class Tally:
    """What END says of a body: its length, and a hash over the tags of its DATA records (7.4)."""

    def __init__(self) -> None:
        self.length = 0
        self._hash = hashlib.blake2b(digest_size=32)

    def add(self, tag: bytes, length: int) -> None:
        """One DATA sent or received."""
        self.length += length
        self._hash.update(tag)

    def payload(self) -> bytes:
        """The payload of END."""
        return struct.pack(">Q", self.length) + self._hash.digest()
