"""Strings that chance has made and nothing says what for: the least sure of all, to be looked at, never acted upon by default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from confide_proxy.secrets.finding import Finding
from confide_proxy.secrets.placeholders import is_sample
from confide_proxy.secrets.randomness import entropy, is_random

CONFIDENCE: Final = 0.4
_STRING: Final = (
    r"(?<![A-Za-z0-9+/=_.%-])(?=[A-Za-z0-9+/_-]{0,127}[0-9])[A-Za-z0-9+/_-]{24,128}+={0,2}(?![A-Za-z0-9+/=_-])"
)
_LEAST_BITS: Final = 4.0
"""A character of base64 carries up to 6, of 32 random ones about 4.6 are seen; hex digits, of hashes and ids, at most 4."""


@cache
def _compiled() -> re.Pattern[str]:
    return re.compile(_STRING)


def find(text: str) -> Iterator[Finding]:
    """Every such string, but for checksums, ids, paths, and data in base64."""
    for match in _compiled().finditer(text):
        value = match[0].rstrip("=")
        is_checksum = (
            text[max(0, match.start() - 7) : match.start()]
            .lower()
            .endswith(("sha256-", "sha384-", "sha512-", "sha1-", "base64,"))
        )
        if "/" in value and sum(c in "/-_" for c in value) * 6 > len(value):
            continue  # a path
        is_mixed = not value.islower() and not value.isupper()
        if (
            is_mixed
            and not is_checksum
            and not value.startswith("sha")
            and is_random(value, 24)
            and entropy(value) >= _LEAST_BITS
            and not is_sample(value)
        ):
            yield Finding("high-entropy", match.start(), match.end(), CONFIDENCE, "entropy")
