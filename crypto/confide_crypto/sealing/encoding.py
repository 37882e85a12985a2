"""Bytes joined so that they come apart in one way only (PROTOCOL.md 10.1)."""

from __future__ import annotations


def u32(number: int) -> bytes:
    """Four bytes, big-endian."""
    return number.to_bytes(4, "big")


def joined(*parts: bytes) -> bytes:
    """Every part behind its length (u32)."""
    return b"".join(u32(len(part)) + part for part in parts)


def labelled(label: bytes, *parts: bytes) -> bytes:
    """The label, a zero byte, and every part behind its length: `F(label; …)` of the protocol."""
    return label + b"\0" + joined(*parts)


class Cursor:
    """Reads bytes from the front. Nothing is allocated by a length that the bytes do not have."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises ValueError: there are fewer."""
        end = self._place + count
        if end > len(self._data):
            raise ValueError("it is cut short")
        part = self._data[self._place : end]
        self._place = end
        return part

    def number(self, count: int) -> int:
        """The next `count` bytes as a big-endian number. Raises as `take`."""
        return int.from_bytes(self.take(count), "big")

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._place)

    def end(self) -> None:
        """Check that everything was read. Raises ValueError: something is left."""
        if self._place != len(self._data):
            raise ValueError("something stands behind it")
