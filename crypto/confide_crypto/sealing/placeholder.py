"""Placeholders: text that replaces a sealed secret (PROTOCOL.md 10.4), as
`(sealed:github-token:4f2a…)`.

A placeholder is a single word without blanks, so that no chunk ends inside it and a search finds
its kind. It is in parentheses, since YAML interprets brackets and braces at the front of a value,
and markdown interprets brackets and angles; neither of them nor JSON interprets these. A
placeholder is only a name: if no record has its id, it is text that a user wrote. Redaction on a
device leaves a similar text, which no device can open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Self

SECRET_ID_LENGTH: Final = 16
KIND_PATTERN: Final = "[a-z][a-z0-9-]{0,31}"
_KIND: Final = re.compile(KIND_PATTERN)
_FORM: Final = re.compile(rf"\(sealed:({KIND_PATTERN}):([0-9a-f]{{{2 * SECRET_ID_LENGTH}}})\)")

STANDIN: Final = re.compile(
    rf"\((?:sealed:{KIND_PATTERN}:[0-9a-f]{{{2 * SECRET_ID_LENGTH}}}|redacted:{KIND_PATTERN}:[0-9a-f]{{24}})\)"
)
"""A placeholder, or the text that replaces a redacted value."""


def is_kind(text: str) -> bool:
    """Return True if `text` is a valid kind of secret: at most 32 lower-case letters, digits and
    hyphens, with a letter first.
    """
    return _KIND.fullmatch(text) is not None


class _Fields(NamedTuple):
    kind: str
    secret_id: bytes


class Placeholder(_Fields):
    """The content of a placeholder: the kind of secret, and the id of the sealed record (16 bytes).

    It is not a dataclass because importing `dataclasses` would lengthen the start of `confide run`
    by a tenth.
    """

    __slots__ = ()

    def __new__(cls, kind: str, secret_id: bytes) -> Self:
        if not is_kind(kind) or len(secret_id) != SECRET_ID_LENGTH:
            raise ValueError("a placeholder has a kind and an id of 16 bytes")
        return super().__new__(cls, kind, secret_id)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the placeholder if the whole text is a placeholder, else None."""
        found = _FORM.fullmatch(text)
        return cls(found[1], bytes.fromhex(found[2])) if found else None

    def __str__(self) -> str:
        return f"(sealed:{self.kind}:{self.secret_id.hex()})"


def find(text: str) -> Iterator[tuple[int, int, Placeholder]]:
    """Yield the start, the end (in characters) and the content of every placeholder in `text`."""
    for found in _FORM.finditer(text):
        yield found.start(), found.end(), Placeholder(found[1], bytes.fromhex(found[2]))


def replace(text: str, value_of: Callable[[Placeholder], str | None]) -> str:
    """Return `text` with each placeholder replaced by the result of `value_of`. A placeholder for
    which it returns None stays.

    Placeholders inside the values are not replaced.
    """
    parts, end = [], 0
    for start, stop, placeholder in find(text):
        value = value_of(placeholder)
        if value is not None:
            parts += [text[end:start], value]
            end = stop
    return "".join([*parts, text[end:]])


def only(text: str) -> bool:
    """Return True if a text consists only of placeholders, redaction marks and blanks."""
    return not STANDIN.sub("", text).strip()


def is_sealed_from(after: str, before: str) -> bool:
    """Return True if `after` equals `before` except that some parts are replaced by placeholders or
    redaction marks.
    """
    first, *others = STANDIN.split(after)
    if not others:
        return after == before
    *between, last = others
    if not before.startswith(first):
        return False
    at = len(first)
    for part in between:
        # The first match is as good as any later one: it leaves the most text for the parts that
        # follow.
        found = before.find(part, at + 1)
        if found < 0:
            return False
        at = found + len(part)
    return before.endswith(last) and len(before) - len(last) > at
