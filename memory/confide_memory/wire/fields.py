"""The bytes in a request: hex where people may compare them, base64 for everything longer (PROTOCOL.md 9.7)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from confide_crypto.errors import RequestError

_HEX = re.compile(r"(?:[0-9a-f]{2})*")


def hex_of(body: Mapping[str, Any], name: str, size: int) -> bytes:
    """So many bytes, in lower-case hex.

    Raises:
        RequestError: they are not.
    """
    value = body.get(name)
    if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
        raise RequestError("invalid", f"'{name}' must be {2 * size} lower-case hex digits")
    return bytes.fromhex(value)


def decoded(value: object, name: str, most: int) -> bytes:
    """The bytes of a base64 text, at most so many.

    Raises:
        RequestError: it is none, or longer.
    """
    if not isinstance(value, str):
        raise RequestError("invalid", f"'{name}' must be base64")
    if len(value) > 4 * (-(-most // 3)):
        raise RequestError("too_large", f"'{name}' is too large", f"the limit is {most:,} bytes")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError("invalid", f"'{name}' must be base64") from None
    if len(data) > most:
        raise RequestError("too_large", f"'{name}' is too large", f"the limit is {most:,} bytes")
    return data


def encoded(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()


def encoded_or_none(data: bytes | None) -> str | None:
    """The same of what may be missing."""
    return None if data is None else encoded(data)


def count_of(body: Mapping[str, Any], name: str, *, least: int = 0, most: int) -> int:
    """A whole number.

    Raises:
        RequestError: it is none, or outside of these bounds.
    """
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestError("invalid", f"'{name}' must be a number from {least} to {most}")
    return value
