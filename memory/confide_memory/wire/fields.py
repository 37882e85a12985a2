"""The fields of requests and of their answers, each held against the form that was agreed (PROTOCOL.md 9).

Bytes are hex where people may compare them, base64 for everything longer (9.7). What a request lacks is told to who sent it, in a
`RequestError`; an answer that lacks something is the daemon's mistake, an `UnfitAnswerError`, and its texts are made printable.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from confide_crypto.errors import RequestError, printable
from confide_memory.errors import UnfitAnswerError

_HEX = re.compile(r"(?:[0-9a-f]{2})*")


# ---------------------------------------------------------------- of a request


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


# ---------------------------------------------------------------- of an answer


def records(answer: Mapping[str, Any], key: str, **kinds: type) -> list[dict[str, Any]]:
    """The list of records at `key`, each with values of these kinds and nothing else; texts are made printable.

    Raises:
        UnfitAnswerError: it is not that.
    """
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UnfitAnswerError
    return [{name: value(item, name, kind) for name, kind in kinds.items()} for item in found]


def value(answer: Mapping[str, Any], key: str, kind: type) -> Any:
    """One value of this kind; a text is made printable.

    Raises:
        UnfitAnswerError: it is not there, or of another kind.
    """
    found = answer.get(key)
    if type(found) is not kind:
        raise UnfitAnswerError
    return printable(found) if isinstance(found, str) else found


def names(answer: Mapping[str, Any], key: str) -> list[str]:
    """The list of texts at `key`.

    Raises:
        UnfitAnswerError: it is not that.
    """
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise UnfitAnswerError
    return [printable(item) for item in found]


def local_time(text: str) -> str:
    """A time of the daemon's (ISO 8601), for people here."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        raise UnfitAnswerError from None
