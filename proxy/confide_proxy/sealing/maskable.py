"""Decide which values can be masked in output (`masking`)."""

from __future__ import annotations

import re
from typing import Final

SHORTEST: Final = 6
"""Shortest value that is masked, in bytes without blanks; a shorter one would match everywhere, and
is too short for a secret.
"""
BLANKS: Final = b" \t\r\n\0"
"""Bytes that the search ignores: line breaks, the blanks of a hex dump, and every second byte of
UTF-16.
"""
_WORD: Final = re.compile(r"[A-Za-z]{1,15}|[\d.,:/+_-]+")
"""Words and numbers, which texts contain anyway."""


def is_maskable(value: bytes) -> bool:
    """Return True if a value can be masked without masking ordinary text: it has at least
    `SHORTEST` bytes and is not a single word or number.
    """
    core = value.translate(None, BLANKS)
    is_word = len(value.split()) == 1 and _WORD.fullmatch(core.decode("latin-1")) and not _is_mixed(core)
    return len(core) >= SHORTEST and not is_word


def _is_mixed(core: bytes) -> bool:
    """Return True if letters of both cases are mixed as in no word."""
    return core.isalpha() and not (core.islower() or core.isupper() or core.istitle())
