"""The forms that fields of requests and answers have (PROTOCOL.md 9): each reads one field of a body by its name, within its bounds.

A field of another form is told to who sent it, in a `RequestError`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from confide_crypto.errors import RequestError, printable
from confide_memory.documents import BUCKETS

MAX_PROJECT_CHARS: Final = 256
HASH_CHARS: Final = 64
MAX_FILES: Final = 100_000
"""A folder of notes has hundreds; this keeps a broken proxy from sending millions."""
MAX_REVISIONS: Final = 100
MAX_LISTED: Final = 500
"""Projects, and documents or changes of one, in one answer."""
MAX_DAYS: Final = 5_000
"""Rows of a day, a project and a kind in one answer: a year of a busy space."""
MAX_IMPORTED: Final = 200
"""Written in one transaction, and the space's other writes wait for it."""
MAX_REFILLED: Final = 500
MAX_REVISION: Final = 2**63 - 1
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")

Kind = Callable[[Mapping[str, Any], str], Any]
"""Reads a field of a body by its name. Raises RequestError where it is not of its form."""


def project(body: Mapping[str, Any], name: str = "project") -> str:
    """The name of a project. Raises RequestError where it is none."""
    value = text({"project": body.get(name)}, "project")
    if not value.strip() or len(value) > MAX_PROJECT_CHARS or not value.isprintable():
        hint = f"1 to {MAX_PROJECT_CHARS} printable characters"
        raise RequestError("invalid", "the project has no usable name", hint)
    return value


def text(body: Mapping[str, Any], name: str) -> str:
    """Any text. Raises RequestError where it is none."""
    value = body.get(name)
    if not isinstance(value, str):
        raise RequestError("invalid", f"'{name}' must be a string")
    return value


def whole(body: Mapping[str, Any], _name: str) -> dict[str, Any]:
    """The body as it came, whose form belongs to whoever answers."""
    return dict(body)


def raw(body: Mapping[str, Any], name: str) -> Any:
    """A field as it came."""
    return body.get(name)


def is_true(body: Mapping[str, Any], name: str) -> bool:
    """Whether it says so; anything else is no."""
    return body.get(name) is True


def flag(*, default: bool = False) -> Kind:
    """Yes or no."""

    def flag_of(body: Mapping[str, Any], name: str) -> bool:
        value = body.get(name, default)
        if not isinstance(value, bool):
            raise RequestError("invalid", f"'{name}' must be true or false")
        return value

    return flag_of


def optional(kind: Kind, default: Any = None) -> Kind:
    """What may be left out."""
    return lambda body, name: default if body.get(name) is None else kind(body, name)


def later(kind: Kind) -> Kind:
    """What is read when whoever answers calls it: once it is known that the caller may ask at all."""
    return lambda body, name: partial(kind, body, name)


def _bounded(form: str, least: int, most: int, default: int | None = None) -> Kind:
    def bounded_of(body: Mapping[str, Any], name: str) -> int:
        value = body.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise RequestError("invalid", f"'{name}' must be {form}")
        return value

    return bounded_of


revision: Final = _bounded("a revision number", 0, MAX_REVISION)
"""The number of a revision; 0 for none."""
place: Final = _bounded("a whole number from 0 on", 0, 2**53 - 1, default=0)
"""Where to go on, or how many there are; 0 where it is left out."""


def number(most: int) -> Kind:
    """A number from 1, as people count."""
    return _bounded(f"a number between 1 and {most:,}", 1, most)


def count(most: int, *, least: int = 0) -> Kind:
    """A number within bounds."""
    return _bounded(f"a number from {least} to {most}", least, most)


def hexed(size: int) -> Kind:
    """So many bytes, in lower-case hex."""

    def hexed_of(body: Mapping[str, Any], name: str) -> bytes:
        value = body.get(name)
        if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
            raise RequestError("invalid", f"'{name}' must be {2 * size} lower-case hex digits")
        return bytes.fromhex(value)

    return hexed_of


def data(most: int) -> Kind:
    """At most so many bytes, in base64."""
    return lambda body, name: decoded(body.get(name), name, most)


def decoded(value: object, name: str, most: int) -> bytes:
    """The bytes of a base64 text, at most so many. Raises RequestError: it is none, or longer."""
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


def sized(size: int) -> Kind:
    """Just so many bytes, in base64."""

    def sized_of(body: Mapping[str, Any], name: str) -> bytes:
        found = decoded(body.get(name), name, size)
        if len(found) != size:
            raise RequestError("invalid", f"'{name}' must have {size} bytes")
        return found

    return sized_of


def choice(choices: tuple[str, ...]) -> Kind:
    """One of these words."""

    def choice_of(body: Mapping[str, Any], name: str) -> str:
        value = text(body, name)
        if value not in choices:
            raise RequestError("invalid", f"'{name}' must be one of {', '.join(choices)}")
        return value

    return choice_of


def items(most: int, item: Callable[[Any], Any] | None = None) -> Kind:
    """A list, each of whose entries `item` reads."""

    def items_of(body: Mapping[str, Any], name: str) -> list[Any]:
        value = body.get(name)
        if not isinstance(value, list):
            raise RequestError("invalid", f"'{name}' must be a list")
        if len(value) > most:
            raise RequestError("too_large", f"'{name}' has {len(value)} entries", f"the limit is {most}")
        return value if item is None else [item(one) for one in value]

    return items_of


def buckets(body: Mapping[str, Any], name: str) -> frozenset[int]:
    """Numbers of buckets of paths (9.3)."""
    numbers = items(MAX_FILES)(body, name)
    if not all(type(number) is int and 0 <= number < BUCKETS for number in numbers):
        raise RequestError("invalid", f"'{name}' must be numbers below {BUCKETS}")
    return frozenset(numbers)


def content_hash(body: Mapping[str, Any], name: str) -> str:
    """The hash of a document's text, in hex."""
    found: bytes = hexed(HASH_CHARS // 2)(body, name)
    return found.hex()


def fields_of(answer: Mapping[str, Any], fields: Mapping[str, Kind]) -> dict[str, Any]:
    return {name: kind(answer, name) for name, kind in fields.items()}


def record(**fields: Kind) -> Kind:
    """An object with these fields."""

    def record_of(body: Mapping[str, Any], name: str) -> dict[str, Any]:
        return _item(body.get(name), fields)

    return record_of


def records(most: int, **fields: Kind) -> Kind:
    """A list of at most so many objects with these fields."""
    return items(most, lambda item: _item(item, fields))


def _item(item: Any, fields: Mapping[str, Kind]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise RequestError("invalid", "an entry is not an object")
    return fields_of(item, fields)


def each(kind: Kind) -> Callable[[Any], Any]:
    return lambda item: kind({"": item}, "")


def shown(body: Mapping[str, Any], name: str) -> str:
    """A text for people, made printable."""
    return printable(text(body, name))


def moment(body: Mapping[str, Any], name: str) -> str:
    """A time, ISO 8601 with its zone."""
    value = text(body, name)
    try:
        parsed = datetime.fromisoformat(value)
        parsed.timestamp()
        parsed.astimezone()
    except (ValueError, OverflowError, OSError):
        parsed = datetime.min
    if parsed.tzinfo is None:
        raise RequestError("invalid", f"'{name}' must be a time")
    return value


def bounded(most: int) -> Kind:
    def short_of(body: Mapping[str, Any], name: str) -> str:
        value = text(body, name)
        if len(value) > most:
            raise RequestError("invalid", f"'{name}' is too long")
        return value

    return short_of


def encoded(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()


def encoded_or_none(data: bytes | None) -> str | None:
    """The same of what may be missing."""
    return None if data is None else encoded(data)
