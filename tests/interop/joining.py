"""Messages joined from their frames: MSG, REQ and RES, PROTOCOL.md 6.3."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.interop.frames import BULK, MORE, BrokenError, Frame, Type

MAX_MESSAGE = 16 << 20
MAX_UNFINISHED = 32 << 20


@dataclass(slots=True)
class _Joined:
    """A message whose last frame has not come yet."""

    flags: int
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0


class Joiner:
    """The unfinished messages of the peer's direction."""

    def __init__(self) -> None:
        self._unfinished: dict[tuple[Type, int], _Joined] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no message is under way."""
        return not self._unfinished

    def has(self, kind: Type, stream: int) -> bool:
        """Whether a message of this type is under way on the stream."""
        return (kind, stream) in self._unfinished

    def add(self, frame: Frame) -> bytes | None:
        """The message that this frame completes, if it does. Raises BrokenError."""
        key = (frame.type, frame.stream)
        joined = self._unfinished.setdefault(key, _Joined(frame.flags & BULK))
        if joined.flags != frame.flags & BULK:
            raise BrokenError("BULK in some frames only")
        joined.pieces.append(frame.payload)
        joined.size += len(frame.payload)
        if joined.size > MAX_MESSAGE or sum(each.size for each in self._unfinished.values()) > MAX_UNFINISHED:
            raise BrokenError("a message over the limit")
        if frame.flags & MORE:
            return None
        del self._unfinished[key]
        return b"".join(joined.pieces)
