"""Decisions drawn from a fuzzer's bytes. An empty supply gives zeros, so that every input means something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")
_GROWTH = 64
"""What edits may add: enough to be too long, and no more, since long texts are only slower."""


class Supply:
    """Bytes to decide by, used up from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def __bool__(self) -> bool:
        return self._place < len(self._data)

    def take(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end."""
        taken = self._data[self._place : self._place + count]
        self._place += count
        return taken

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(len(self._data))

    def number(self, size: int = 1) -> int:
        """A big-endian number of `size` bytes."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big")

    def choice(self, options: Sequence[_T]) -> _T:
        """One of at most 256 options."""
        return options[self.number() % len(options)]

    def edited(self, template: bytes, *, keeps_length: bool = False) -> bytes:
        """`template` with as many edits as there are bytes for: set, flip, fill, and if lengths may change cut, insert and repeat."""
        changed = bytearray(template)
        most = len(template) + _GROWTH
        while self and 0 < len(changed) <= most:
            operation = self.number() % (3 if keeps_length else 6)
            place = self.number(2) % len(changed)
            value = self.number()
            match operation:
                case 0:
                    changed[place] = value
                case 1:
                    changed[place] ^= 1 << value % 8
                case 2:
                    end = min(len(changed), place + value)
                    changed[place:end] = bytes([self.number()]) * (end - place)
                case 3:
                    del changed[place : place + 1 + value]
                case 4:
                    changed[place:place] = self.take(value)
                case _:
                    changed[place:place] = changed[place : place + value]
        return bytes(changed[:most])
