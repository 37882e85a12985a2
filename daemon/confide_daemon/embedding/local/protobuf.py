"""Reads protocol buffers field by field, as far as the constants of an ONNX model (onnx.proto3)
require it.

The package `onnx` could do the same, but its 17 MB are too large for a daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""The wire types that onnx.proto3 uses."""
_MORE, _BITS = 0x80, 0x7F
"""Masks for a byte of a varint: the continuation bit, and its value."""
_MOST_SHIFT: Final = 63


class Field(NamedTuple):
    """A field of a protocol buffer message.

    Attributes:
        number: the field's number in the `.proto` file.
        content: the bytes of a length-delimited field.
        value: the value of a numeric field.
    """

    number: int
    content: memoryview | None
    value: int = 0


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a protocol buffer message. Raises ValueError if it is malformed."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        content, value = None, 0
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind == _BYTES:
            length, at = _varint(message, at)
            content = message[at : at + length]
            at += length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("not a message of protocol buffers")
        if at > len(message):
            raise ValueError("a message of protocol buffers that is cut off")
        yield Field(tag >> 3, content, value)


def numbers(packed: memoryview) -> Iterator[int]:
    """Yield the integers of a packed field. Raises ValueError if it is malformed."""
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > _MOST_SHIFT:
            raise ValueError("a number of protocol buffers that does not end")
        byte = message[at]
        at += 1
        value |= (byte & _BITS) << shift
        if byte < _MORE:
            return value, at
        shift += 7
