"""Concatenation of byte strings that can be split again in only one way (PROTOCOL.md 10.1)."""

from __future__ import annotations


def u32(number: int) -> bytes:
    """Encode a number as four bytes, big-endian."""
    return number.to_bytes(4, "big")


def join_parts(*parts: bytes) -> bytes:
    """Concatenate byte strings, each preceded by its length as four bytes."""
    return b"".join(u32(len(part)) + part for part in parts)


def join_labelled(label: bytes, *parts: bytes) -> bytes:
    """Concatenate the label, a zero byte, and the parts, each preceded by its length: `F(label; …)`
    of the protocol.
    """
    return label + b"\0" + join_parts(*parts)


class Cursor:
    """A reader that takes bytes from the front of some data. It never allocates more than the data
    holds, whatever length the data states.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes. Raises ValueError if fewer are left."""
        end = self._place + count
        if end > len(self._data):
            raise ValueError("it is cut short")
        part = self._data[self._place : end]
        self._place = end
        return part

    def number(self, count: int) -> int:
        """Read the next `count` bytes as a big-endian number. Raises ValueError if fewer are left."""
        return int.from_bytes(self.take(count), "big")

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._place)

    def end(self) -> None:
        """Check that all bytes were read. Raises ValueError if some are left."""
        if self._place != len(self._data):
            raise ValueError("something stands behind it")
