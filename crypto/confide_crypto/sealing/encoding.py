"""Unambiguous concatenation of byte strings (PROTOCOL.md 10.1)."""

from __future__ import annotations


def u32(number: int) -> bytes:
    """Encode a number as four bytes, big-endian."""
    return number.to_bytes(4, "big")


def join_parts(*parts: bytes) -> bytes:
    """Concatenate the parts, each after its length (u32)."""
    return b"".join(u32(len(part)) + part for part in parts)


def join_labelled(label: bytes, *parts: bytes) -> bytes:
    """Concatenate the label, a zero byte, and each part after its length: `F(label; …)` of the
    protocol.
    """
    return label + b"\0" + join_parts(*parts)


class Cursor:
    """A reader of bytes from the front. It never allocates more than the data holds, whatever
    length the data claims.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes. Raises ValueError: fewer are left."""
        end = self._place + count
        if end > len(self._data):
            raise ValueError("it is cut short")
        part = self._data[self._place : end]
        self._place = end
        return part

    def number(self, count: int) -> int:
        """Read the next `count` bytes as a big-endian number. Raises ValueError: fewer are left."""
        return int.from_bytes(self.take(count), "big")

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._place)

    def end(self) -> None:
        """Check that all bytes were read. Raises ValueError: some are left."""
        if self._place != len(self._data):
            raise ValueError("something stands behind it")
