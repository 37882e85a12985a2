"""What stands in a text where a credential stood, and whether a text is another one with nothing but such in it."""

from __future__ import annotations

import re
from typing import Final

from confide_crypto.sealing.records import KIND_PATTERN
from confide_crypto.sealing.space_keys import SECRET_ID_LENGTH

_FINGERPRINT_CHARS: Final = 24
_STAND_IN: Final = re.compile(
    rf"\((?:sealed:{KIND_PATTERN}:[0-9a-f]{{{2 * SECRET_ID_LENGTH}}}|redacted:{KIND_PATTERN}:[0-9a-f]{{{_FINGERPRINT_CHARS}}})\)"
)
"""Placeholders (PROTOCOL.md 10.4), and what machines put where their policy redacts."""


def is_sealed_from(after: str, before: str) -> bool:
    """Whether `after` is `before` with stand-ins in the places of some of its parts, and is the same in all others."""
    first, *others = _STAND_IN.split(after)
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
