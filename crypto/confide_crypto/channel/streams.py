"""Flow control for the bodies sent in one direction: how many bytes may be sent, and which bodies
are complete (PROTOCOL.md 7.4, 7.5).

No I/O: `channel.protocol` reads and writes the frames.
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
    """A broken rule about streams; the message names the rule."""


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
    """The streams that one end has opened, with the credit of each.

    Both ends keep the same counts, so call the methods in the order in which the frames are sent.
    """

    def __init__(self) -> None:
        self._bodies: dict[int, _Body] = {}
        self.credit = CONNECTION_CREDIT
        """Bytes of DATA, over all streams, that may be sent before the receiver grants more."""

    def __contains__(self, stream: int) -> bool:
        return stream in self._bodies

    def open(self, stream: int) -> None:
        """Add a new stream. The number is not checked here."""
        self._bodies[stream] = _Body()

    def is_unfinished(self, stream: int) -> bool:
        """Return True if more DATA, an END or a RESET may still follow on this stream."""
        body = self._bodies.get(stream)
        return body is not None and not body.is_ended

    def wants_credit(self, stream: int) -> bool:
        """Return True if the receiver still grants credit to this stream because it is neither
        answered nor ended.
        """
        body = self._bodies.get(stream)
        return body is not None and not body.is_ended and not body.is_answered

    @property
    def answered_early(self) -> int:
        """Number of streams whose answer was sent before their body was ended or reset."""
        return sum(body.is_answered for body in self._bodies.values())

    @property
    def open_streams(self) -> list[int]:
        """The streams whose bodies are neither ended nor reset."""
        return [stream for stream, body in self._bodies.items() if not body.is_ended]

    def credit_of(self, stream: int) -> int:
        """Return the number of bytes that may be sent on this stream now, which the receiver has
        granted.
        """
        return min(self._bodies[stream].credit, self.credit)

    def spend(self, stream: int, length: int) -> Callable[[bytes], None]:
        """Subtract a piece of a body from the credit. Return a function that must be called with
        the authentication tag of the piece's record.

        Raises StreamViolation if the stream has no open body, or not enough credit for this piece.
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
        """Mark a sent body as complete, and return the payload of its END frame."""
        body = self._open_body(stream)
        self._finish(stream, body)
        return body.seal

    def check_end(self, stream: int, payload: bytes) -> None:
        """Check that a received body is complete: `payload`, from its END frame, must match all
        pieces that arrived.

        Raises StreamViolation if it does not match, or the stream has no open body.
        """
        body = self._open_body(stream)
        if payload != body.seal:
            raise StreamViolation("a body that is not what was sent")
        self._finish(stream, body)

    def reset(self, stream: int) -> None:
        """Mark a body as given up. Raises StreamViolation if the stream has no open body."""
        self._finish(stream, self._open_body(stream))

    def answer(self, stream: int) -> None:
        """Record that the request on this stream was answered. It has no effect for a request
        without a body.
        """
        body = self._bodies.get(stream)
        if body is not None:
            body.is_answered = True
            self._forget(stream, body)

    def grant(self, stream: int, amount: int) -> None:
        """Add `amount` bytes of credit to a stream, or to all streams together if `stream` is 0.

        Raises StreamViolation if there is no such stream, or the amount is 0 or exceeds the limit
        of credit.
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
