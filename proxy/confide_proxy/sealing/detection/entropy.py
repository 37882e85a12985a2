"""Whether a string looks as if a machine had made it by chance, or a person of words; and such strings that nothing says what for.

These are the least sure findings of all, to be looked at, never acted upon by default. Nothing is cached: it would be values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from confide_proxy.sealing.detection.false_positives import is_sample
from confide_proxy.sealing.detection.finding import Finding, compiled

_PAIRS: Final = """
se in re er th el on te de en or le at st he et es lf me al ar ti nt ne co an no nd ro tr li ur it ed ta ng ra am ec is na io fi
il tu ex ct ef ri pe ma pa rn od as ot ce si fo ss ea ac di la ve lo rt ge nc pr ca im un ns ad mp ou po om ha rr ue ll ul ch ls
op rs ut pt va mo cl to ai ts em ep ic ck pl rg oc us ke da os ee ho lu hi ty xt um wi su ob lt ap
"""
_FREQUENT: Final = frozenset(_PAIRS.split())
"""The most frequent pairs of letters in English prose and names of Python's standard library.

Of random letters 19 % are such pairs, in words and identifiers 70 %: at 50 % the line takes 1 % of random strings of 24 characters for
words, and 4 % of identifiers for random ones.
"""
_HEX: Final = frozenset("0123456789abcdef-_")
_WORDY: Final = 0.5
_FEWEST_PAIRS: Final = 3
_CHANGING: Final = 0.4
"""By chance 6 in 10 characters are of another class (upper case, lower case, digit) than the one before; in `newPassword2` 3 in 12."""
CONFIDENCE: Final = 0.4
_STRING: Final = (
    r"(?<![A-Za-z0-9+/=_.%-])(?=[A-Za-z0-9+/_-]{0,127}[0-9])[A-Za-z0-9+/_-]{24,128}+={0,2}(?![A-Za-z0-9+/=_-])"
)
_LEAST_BITS: Final = 4.0
"""A character of base64 carries up to 6, of 32 random ones about 4.6 are seen; hex digits, of hashes and ids, at most 4."""


def entropy(value: str) -> float:
    """Shannon's entropy in bits a character, from the characters' frequencies."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values()) if size else 0.0


def is_wordy(value: str) -> bool:
    """Whether its letters are mostly such as words are made of, and neither cases nor digits change as often as they do by chance."""
    if _changes(value) >= _CHANGING * len(value):
        return False
    # Hex digits make no words, though "ed", "ea" and "ce" are frequent in those.
    if sum(c.isdigit() for c in value) * 5 >= len(value) and _HEX.issuperset(value.lower()):
        return False
    pairs = frequent = 0
    lowered = value.lower()
    for first, second in pairwise(lowered):
        if first.isalpha() and second.isalpha():
            pairs += 1
            frequent += first + second in _FREQUENT
    return pairs >= _FEWEST_PAIRS and frequent >= _WORDY * pairs


def _is_joined(value: str) -> bool:
    """Whether it is words in lower case and small numbers with hyphens between them: `quartz-saddle-v2`."""
    parts = value.replace("_", "-").replace(".", "-").split("-")
    return len(parts) > 1 and all(
        (len(part) >= 3 and part.isalpha() and part.islower()) or (len(part) <= 3 and part.lstrip("v").isdigit())
        for part in parts
    )


def _changes(value: str) -> int:
    classes = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else "-" for c in value]
    return sum(first != second and "-" not in first + second for first, second in pairwise(classes))


def is_random(value: str, least: int = 16) -> bool:
    """Whether it has at least so many characters, digits among letters, few repetitions, and does not read like words.

    Letters alone pass from 24 characters on, where both cases or the lack of words say enough.
    """
    size = len(value)
    if size < least or len(set(value)) < min(8, size // 2) or is_wordy(value) or _is_joined(value):
        return False
    letters = sum(c.isalpha() for c in value)
    digits = sum(c.isdigit() for c in value)
    if not digits:
        return letters >= 24 and entropy(value) >= 3.5
    return letters > 0 and digits + letters >= 0.7 * size and entropy(value) >= min(3.0, 0.75 * math.log2(size))


def find(text: str) -> Iterator[Finding]:
    """Every such string, but for checksums, ids, paths, and data in base64."""
    for match in compiled(_STRING).finditer(text):
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
