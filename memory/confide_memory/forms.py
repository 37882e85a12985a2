"""Field readers for requests and answers (PROTOCOL.md 9). A reader, called form here, takes one
field of a body by its name and checks type and bounds.

It raises a `RequestError`, which is reported to the sender, if the field is not valid.
"""

from __future__ import annotations

import base64
import binascii
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, get_args, get_origin

from confide_crypto.errors import RequestError, printable
from confide_memory.documents import BUCKETS

MAX_PROJECT_CHARS: Final = 256
HASH_CHARS: Final = 64
MAX_FILES: Final = 100_000
"""Files in one request. A folder of notes has hundreds; the limit stops a broken proxy from sending
millions.
"""
MAX_REVISIONS: Final = 100
MAX_LISTED: Final = 500
"""Projects, or documents or changes of a project, in one answer."""
MAX_DAYS: Final = 5_000
"""Rows (one per day, project and kind) in one answer: a year of a busy space."""
MAX_IMPORTED: Final = 200
"""Documents written in one transaction, during which the space's other writes wait."""
MAX_REFILLED: Final = 500
MAX_ACTIONS: Final = 1000
"""Entries of a memory that concern actions, in one answer: with half a year of daily logs among them."""
MAX_TRIGGERS: Final = 24
"""Files, commands and errors that one entry concerns; others are ignored."""
MAX_REVISION: Final = 2**63 - 1
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")

Carried = Mapping[str, object]
"""The content of a request or an answer in its wire form: fields by name."""
Kind = Callable[[Carried, str], Any]
"""A function that reads a field of a body by its name. It raises RequestError if the field is not
valid.
"""
Fields = Mapping[str, Kind]
"""The form of each field, by name."""


class Coded:
    """A field reader for values without a JSON type, with a function that writes the value back as
    JSON.
    """

    __slots__ = ("_read", "write")

    def __init__(self, read: Kind, write: Callable[[Any], object]) -> None:
        self._read = read
        self.write = write

    def __call__(self, body: Carried, name: str) -> Any:
        return self._read(body, name)


def project(body: Carried, name: str = "project") -> str:
    """Read the field with the name of a project. Raises RequestError if that is not a valid name."""
    value = text({"project": body.get(name)}, "project")
    if not value.strip() or len(value) > MAX_PROJECT_CHARS or not value.isprintable():
        hint = f"1 to {MAX_PROJECT_CHARS} printable characters"
        raise RequestError("invalid", "the project has no usable name", hint)
    return value


def text(body: Carried, name: str) -> str:
    """Read a field that must be a string. Raises RequestError if it is not."""
    value = body.get(name)
    if not isinstance(value, str):
        raise RequestError("invalid", f"'{name}' must be a string")
    return value


def whole(body: Carried, _name: str) -> dict[str, Any]:
    """Return all fields of the body unchecked; the code that answers the request checks them."""
    return dict(body)


def raw(body: Carried, name: str) -> Any:
    """Return a field unchecked; None if it is missing."""
    return body.get(name)


def is_true(body: Carried, name: str) -> bool:
    """Return True if the field is exactly `true`; any other or missing value counts as False."""
    return body.get(name) is True


def flag(*, default: bool = False) -> Kind:
    """Return a field reader that accepts a boolean. A missing field has the value `default`."""

    def flag_of(body: Carried, name: str) -> bool:
        value = body.get(name, default)
        if not isinstance(value, bool):
            raise RequestError("invalid", f"'{name}' must be true or false")
        return value

    return flag_of


def optional(kind: Kind, default: Any = None) -> Kind:
    """Return a field reader like `kind` that also accepts a missing or null field, and reads it as
    `default`.
    """
    write = _writer(kind)

    def optional_of(body: Carried, name: str) -> Any:
        return default if body.get(name) is None else kind(body, name)

    return Coded(optional_of, lambda value: None if value is None else write(value)) if write else optional_of


def _whole_number(form: str, least: int, most: int, default: int | None = None) -> Kind:
    def bounded_of(body: Carried, name: str) -> int:
        value = body.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise RequestError("invalid", f"'{name}' must be {form}")
        return value

    return bounded_of


revision: Final = _whole_number("a revision number", 0, MAX_REVISION)
"""The number of a revision; 0 for none."""
place: Final = _whole_number("a whole number from 0 on", 0, 2**53 - 1, default=0)
"""A position to continue at, or a count; 0 if missing."""


def number(most: int) -> Kind:
    """Return a field reader that accepts a whole number from 1 to `most`."""
    return _whole_number(f"a number between 1 and {most:,}", 1, most)


def count(most: int, *, least: int = 0) -> Kind:
    """Return a field reader that accepts a whole number from `least` to `most`."""
    return _whole_number(f"a number from {least} to {most}", least, most)


def hex_of(size: int, *, or_empty: bool = False) -> Kind:
    """Return a field reader that accepts `size` bytes in lower-case hex; if `or_empty` is true,
    also an empty string.
    """

    def hexed_of(body: Carried, name: str) -> bytes:
        value = body.get(name)
        if or_empty and value == "":
            return b""
        if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
            raise RequestError("invalid", f"'{name}' must be {2 * size} lower-case hex digits")
        return bytes.fromhex(value)

    return Coded(hexed_of, bytes.hex)


def data(most: int) -> Kind:
    """Return a field reader that accepts at most `most` bytes in base64."""
    return Coded(lambda body, name: from_base64(body.get(name), name, most), to_base64)


def from_base64(value: object, name: str, most: int) -> bytes:
    """Decode base64 to at most `most` bytes. Raises RequestError, which names the field `name`, if
    the text is malformed or longer.
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


def bytes_of(size: int) -> Kind:
    """Return a field reader that accepts exactly `size` bytes in base64."""

    def sized_of(body: Carried, name: str) -> bytes:
        found = from_base64(body.get(name), name, size)
        if len(found) != size:
            raise RequestError("invalid", f"'{name}' must have {size} bytes")
        return found

    return Coded(sized_of, to_base64)


def choice(choices: tuple[str, ...]) -> Kind:
    """Return a field reader that accepts one of the words in `choices`."""

    def choice_of(body: Carried, name: str) -> str:
        value = text(body, name)
        if value not in choices:
            raise RequestError("invalid", f"'{name}' must be one of {', '.join(choices)}")
        return value

    return choice_of


def items(most: int, item: Callable[[Any], Any] | None = None) -> Kind:
    """Return a field reader that accepts a list of at most `most` entries. If `item` is given, it
    converts and checks each entry.
    """

    def items_of(body: Carried, name: str) -> list[Any]:
        value = body.get(name)
        if not isinstance(value, list):
            raise RequestError("invalid", f"'{name}' must be a list")
        if len(value) > most:
            raise RequestError("too_large", f"'{name}' has {len(value)} entries", f"the limit is {most}")
        return value if item is None else [item(one) for one in value]

    return items_of


def _buckets(body: Carried, name: str) -> frozenset[int]:
    numbers = items(MAX_FILES)(body, name)
    if not all(type(number) is int and 0 <= number < BUCKETS for number in numbers):
        raise RequestError("invalid", f"'{name}' must be numbers below {BUCKETS}")
    return frozenset(numbers)


buckets: Final = Coded(_buckets, sorted)
"""Numbers of path buckets (PROTOCOL.md 9.3)."""


def content_hash(body: Carried, name: str) -> str:
    """Read a field with the hash of a document's text, in hex. Raises RequestError if it is not
    valid.
    """
    found: bytes = hex_of(HASH_CHARS // 2)(body, name)
    return found.hex()


def fields_of(body: Carried, fields: Fields, *, with_others: bool = False) -> Any:
    """Read the values of these fields from a body. If `with_others` is true, add all other fields
    of the body unchecked.

    Raises RequestError if a field is missing, has the wrong type, or is out of its bounds.
    """
    return (dict(body) if with_others else {}) | {name: kind(body, name) for name, kind in fields.items()}


def to_json(body: Carried, fields: Fields) -> dict[str, object]:
    """Return a request or an answer as a JSON object: the fields whose readers can write are
    converted.
    """
    return {name: write(value) if (write := _writer(fields.get(name))) else value for name, value in body.items()}


def _writer(kind: Kind | None) -> Callable[[Any], object] | None:
    return kind.write if isinstance(kind, Coded) else None


def record(**fields: Kind) -> Kind:
    """Return a field reader that accepts an object with these fields."""

    def record_of(body: Carried, name: str) -> Any:
        return _item(body.get(name), fields)

    is_coded = any(isinstance(kind, Coded) for kind in fields.values())
    return Coded(record_of, lambda value: to_json(value, fields)) if is_coded else record_of


def records(most: int, **fields: Kind) -> Kind:
    """Return a field reader that accepts a list of at most `most` objects with these fields."""
    return list_of(most, record(**fields))


def list_of(most: int, kind: Kind) -> Kind:
    """Return a field reader that accepts a list of at most `most` entries, each read by `kind`."""
    write, read = _writer(kind), items(most, each(kind))
    return Coded(read, lambda values: [write(value) for value in values]) if write else read


def _item(item: object, fields: Fields) -> Any:
    if not isinstance(item, dict):
        raise RequestError("invalid", "an entry is not an object")
    return fields_of(item, fields)


UNREAD: Final = "unread"
"""Marks a field for other programs: this one never reads it, so it may be missing, or have any
form.
"""


def fields_of_type(carried: type) -> dict[str, Kind]:
    """Return the field readers for a `TypedDict`, by the names of its fields. `form_of` chooses
    each by the type of the field.
    """
    return {name: form for name, hint in carried.__annotations__.items() if (form := form_of(hint)) is not None}


def form_of(hint: Any) -> Kind | None:
    """Return the reader for a field with this type hint; None for a field that is never read.

    The last item of an `Annotated` is the reader itself, or the greatest length of a list. Without
    one, `bool` is read by `flag`, `str` by `text`, a `TypedDict` as an object with its fields, and
    a union with None is optional.
    """
    match get_origin(hint):
        case typing.NotRequired:
            return form_of(get_args(hint)[0])
        case typing.Annotated:
            marked, *_, mark = get_args(hint)
            if mark == UNREAD:
                return None
            return list_of(mark, _certainly(get_args(marked)[0])) if isinstance(mark, int) else mark
        case typing.Union | types.UnionType:
            (inner,) = (one for one in get_args(hint) if one is not type(None))
            return optional(_certainly(inner))
    if hint is bool:
        return flag()
    return text if hint is str else record(**fields_of_type(hint))


def _certainly(hint: Any) -> Kind:
    form = form_of(hint)
    assert form is not None
    return form


def each(kind: Kind) -> Callable[[Any], Any]:
    return lambda item: kind({"": item}, "")


def printable_text(body: Carried, name: str) -> str:
    """Read a text that will be shown to users, and replace its characters that are not safe to
    print.
    """
    return printable(text(body, name))


def moment(body: Carried, name: str) -> str:
    """Read a time, which must be ISO 8601 with a time zone. Raises RequestError if it is not."""
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


def text_up_to(most: int) -> Kind:
    def short_of(body: Carried, name: str) -> str:
        value = text(body, name)
        if len(value) > most:
            raise RequestError("invalid", f"'{name}' is too long")
        return value

    return short_of


def to_base64(data: bytes) -> str:
    """Encode bytes as base64."""
    return base64.b64encode(data).decode()


# Types of fields with their forms, for the tables of requests and answers.
Project = Annotated[str, project]
Shown = Annotated[str, printable_text]
Told = Annotated[str, optional(printable_text, "")]
"""An optional text to show to users; "" if missing."""
Moment = Annotated[str, moment]
ContentHash = Annotated[str, content_hash]
Revision = Annotated[int, revision]
Size = Annotated[int, count(2**53 - 1)]
Mark = Annotated[str, text_up_to(256)]
