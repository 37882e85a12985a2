"""Credit and completeness of the bodies that are sent in one direction (PROTOCOL.md 7.4, 7.5).

No I/O: `channel.protocol` reads and writes their frames.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from confide_crypto.limits import CONNECTION_CREDIT, MAX_BODY, MAX_CREDIT, STREAM_CREDIT

_length: Final = struct.Struct(">Q")


class StreamViolation(Exception):  # noqa: N818 - the channel turns it into its own ProtocolViolation
    """A broken rule about streams; the message says which."""


@dataclass(slots=True, eq=False)
class _Body:
    credit: int = STREAM_CREDIT
    length: int = 0
    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=32))
    is_ended: bool = False
    is_answered: bool = False

    @property
    def seal(self) -> bytes:
        return _length.pack(self.length) + self.digest.digest()


class Streams:
    """The streams that one end has opened. Both ends count them alike, so call every method in the
    order of the frames.
    """

    def __init__(self) -> None:
        self._bodies: dict[int, _Body] = {}
        self.credit = CONNECTION_CREDIT
        """Bytes of DATA, over all streams, that may be sent before the receiver grants more."""

    def __contains__(self, stream: int) -> bool:
        return stream in self._bodies

    def open(self, stream: int) -> None:
        """Add a new stream; the caller has checked its number."""
        self._bodies[stream] = _Body()

    def is_unfinished(self, stream: int) -> bool:
        """Return True if DATA, END or RESET may still follow on this stream."""
        body = self._bodies.get(stream)
        return body is not None and not body.is_ended

    def wants_credit(self, stream: int) -> bool:
        """Return True if the receiver still grants credit to this stream: it is neither answered
        nor ended.
        """
        body = self._bodies.get(stream)
        return body is not None and not body.is_ended and not body.is_answered

    @property
    def answered_early(self) -> int:
        """Number of streams whose RES was sent before their END or RESET."""
        return sum(body.is_answered for body in self._bodies.values())

    @property
    def open_streams(self) -> list[int]:
        """The streams whose bodies have no END or RESET yet."""
        return [stream for stream, body in self._bodies.items() if not body.is_ended]

    def credit_of(self, stream: int) -> int:
        """Return the number of bytes that may be sent on this stream now."""
        return min(self._bodies[stream].credit, self.credit)

    def spend(self, stream: int, length: int) -> Callable[[bytes], None]:
        """Count a piece of a body, and return a function that must be called with the tag of its
        record.

        Raises StreamViolation: the stream has no open body, or not enough credit for this piece.
        """
        body = self._open_body(stream)
        if not length or length > body.credit or length > self.credit:
            raise StreamViolation("data beyond the credit")
        if body.length + length > MAX_BODY:
            raise StreamViolation("a body over the limit")
        body.credit -= length
        body.length += length
        self.credit -= length
        return body.digest.update

    def end(self, stream: int) -> bytes:
        """End a body that was sent, and return the payload of its END frame."""
        body = self._open_body(stream)
        self._finish(stream, body)
        return body.seal

    def check_end(self, stream: int, payload: bytes) -> None:
        """Accept the END of a received body if `payload` is the body's seal. Raises StreamViolation:
        the stream has no open body, or the body is not what was sent.
        """
        body = self._open_body(stream)
        if payload != body.seal:
            raise StreamViolation("a body that is not what was sent")
        self._finish(stream, body)

    def reset(self, stream: int) -> None:
        """Give up a body. Raises StreamViolation: the stream has no open body."""
        self._finish(stream, self._open_body(stream))

    def answer(self, stream: int) -> None:
        """Note that the stream's RES was sent or received; does nothing for the stream of a REQ."""
        body = self._bodies.get(stream)
        if body is not None:
            body.is_answered = True
            self._forget(stream, body)

    def grant(self, stream: int, amount: int) -> None:
        """Add credit to a stream, or to all of them together (stream 0).

        Raises StreamViolation: there is no such stream, or the amount is 0 or makes the credit too
        large.
        """
        body = self._bodies.get(stream)
        if not amount or (body is None and stream != 0):
            raise StreamViolation("credit for nothing")
        if body is None:
            self.credit += amount
        else:
            body.credit += amount
        if max(self.credit, body.credit if body else 0) > MAX_CREDIT:
            raise StreamViolation("more credit than there can be")

    def _open_body(self, stream: int) -> _Body:
        body = self._bodies.get(stream)
        if body is None or body.is_ended:
            raise StreamViolation("a body's frame that does not belong here")
        return body

    def _finish(self, stream: int, body: _Body) -> None:
        body.is_ended = True
        self._forget(stream, body)

    def _forget(self, stream: int, body: _Body) -> None:
        if body.is_ended and body.is_answered:
            del self._bodies[stream]
