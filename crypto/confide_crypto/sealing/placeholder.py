"""What stands in a text where a secret stood (PROTOCOL.md 10.4): `(sealed:github-token:4f2a…)`.

One word without blanks, so no chunk ends inside it and its kind can be searched for. In parentheses, since brackets and braces at
the front of a value mean something to YAML, and brackets and angles to markdown; these mean nothing to either, nor to JSON.
A placeholder only names: one whose id no record has is text that somebody wrote. What a machine has redacted leaves a stand-in of a like
form, which nobody can open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from confide_crypto.sealing.record import KIND_PATTERN, is_kind
from confide_crypto.sealing.space_keys import SECRET_ID_LENGTH

_FORM: Final = re.compile(rf"\(sealed:({KIND_PATTERN}):([0-9a-f]{{{2 * SECRET_ID_LENGTH}}})\)")

STANDIN: Final = re.compile(
    rf"\((?:sealed:{KIND_PATTERN}:[0-9a-f]{{{2 * SECRET_ID_LENGTH}}}|redacted:{KIND_PATTERN}:[0-9a-f]{{24}})\)"
)
"""A placeholder, or what stands where a machine has redacted something."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What one says: which kind of secret stood there, and which record has it."""

    kind: str  # what it is
    secret_id: bytes  # 16 bytes

    def __post_init__(self) -> None:
        if not is_kind(self.kind) or len(self.secret_id) != SECRET_ID_LENGTH:
            raise ValueError("a placeholder has a kind and an id of 16 bytes")

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The placeholder that `text` is, whole, or None."""
        found = _FORM.fullmatch(text)
        return cls(found[1], bytes.fromhex(found[2])) if found else None

    def __str__(self) -> str:
        return f"(sealed:{self.kind}:{self.secret_id.hex()})"


def find(text: str) -> Iterator[tuple[int, int, Placeholder]]:
    """Every placeholder in `text` with where it begins and ends (characters)."""
    for found in _FORM.finditer(text):
        yield found.start(), found.end(), Placeholder(found[1], bytes.fromhex(found[2]))


def replace(text: str, value_of: Callable[[Placeholder], str | None]) -> str:
    """`text` with the values that `value_of` gives; where it gives None, what stands there stays. Values are not looked into again."""
    parts, end = [], 0
    for start, stop, placeholder in find(text):
        value = value_of(placeholder)
        if value is not None:
            parts += [text[end:start], value]
            end = stop
    return "".join([*parts, text[end:]])


def only(text: str) -> bool:
    """Whether a text consists of stand-ins and blanks alone."""
    return not STANDIN.sub("", text).strip()


def is_sealed_from(after: str, before: str) -> bool:
    """Whether `after` is `before` with stand-ins in the places of some of its parts, and is the same in all others."""
    first, *others = STANDIN.split(after)
    if not others:
        return after == before
    *between, last = others
    if not before.startswith(first):
        return False
    at = len(first)
    for part in between:
        # The first place is as good as any later one: it leaves the most for those that follow.
        found = before.find(part, at + 1)
        if found < 0:
            return False
        at = found + len(part)
    return before.endswith(last) and len(before) - len(last) > at
