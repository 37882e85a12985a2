"""Fingerprints that recognize a text in another place: each block of text gets numbers, and two
texts with a common passage share a number.

It is winnowing (Schleimer, Wilkerson, Aiken: "Winnowing: local algorithms for document
fingerprinting", 2003) over the words of each block of lines. Any `SURE` successive words that two
texts have in common give both the same number, whatever the line breaks, markup or capitals. A
shorter block gets one number for all of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

GRAM: Final = 8
"""Words that a number is computed from."""
WINDOW: Final = 5
"""The least of this many successive numbers is chosen: 0.33 numbers a word."""
SURE: Final = GRAM + WINDOW - 1
# Shorter blocks do not show their origin: "- yes", "## Notes".
_LEAST_WORDS: Final = 3
_LEAST_HEADING: Final = 6
# In scripts without blanks between words, each letter counts as a word.
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u3040-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_BEGINS: Final = re.compile(r"\s*(?:[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|\||>)")
_HEADING: Final = re.compile(r"\s*#{1,6}\s")
_FACTOR: Final = 0x9E3779B97F4A7C15
_BITS: Final = (1 << 64) - 1


class TextBlock(NamedTuple):
    """A paragraph, list item, heading or table row: its first and last line, counted from 1."""

    first: int
    last: int


def blocks(lines: Sequence[str]) -> list[TextBlock]:
    """Group the non-blank lines of a text into blocks."""
    found: list[TextBlock] = []
    begin = 0
    for number, line in enumerate([*lines, ""], 1):
        is_blank = not line.strip()
        if begin and (is_blank or _BEGINS.match(line) or _HEADING.match(lines[number - 2])):
            found.append(TextBlock(begin, number - 1))
            begin = 0
        if not begin and not is_blank:
            begin = number
    return found


def marks(lines: Sequence[str], among: Iterable[TextBlock]) -> dict[TextBlock, frozenset[int]]:
    """Return the fingerprints of each block, as signed 64-bit numbers. A block that is too short
    has none.
    """
    words = _Words()
    return {block: _marks(lines[block.first - 1 : block.last], words) for block in among}


def blocks_with(numbers: Mapping[TextBlock, frozenset[int]], there: frozenset[int]) -> list[TextBlock]:
    """Return the blocks that have at least one fingerprint in `there`."""
    return [block for block, own in numbers.items() if not own.isdisjoint(there)]


class _Words(dict[str, int]):
    """A cache of the numbers of words, for the time that a text is read."""

    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = found = int.from_bytes(digest, "big")
        return found


def _marks(lines: Sequence[str], known_words: _Words) -> frozenset[int]:
    words = [word.casefold() for line in lines for word in _WORD.findall(line)]
    least = _LEAST_HEADING if _HEADING.match(lines[0]) else _LEAST_WORDS
    if len(words) < least:
        return frozenset()
    numbers = [known_words[word] for word in words]
    if len(words) < SURE:
        return frozenset([_to_signed(_hash(numbers))])
    factor = pow(_FACTOR, GRAM - 1, _BITS + 1)
    rolling = 0
    grams: list[int] = []
    for at, number in enumerate(numbers):
        if at >= GRAM:
            rolling -= numbers[at - GRAM] * factor
        rolling = (rolling * _FACTOR + number) & _BITS
        if at >= GRAM - 1:
            grams.append(rolling)
    windows = range(len(grams) - WINDOW + 1)
    return frozenset(_to_signed(min(grams[at : at + WINDOW])) for at in windows)


def _hash(numbers: Sequence[int]) -> int:
    value = len(numbers)
    for number in numbers:
        value = (value * _FACTOR + number) & _BITS
    return value


def _to_signed(value: int) -> int:
    # SQLite's integers are signed.
    return value - (1 << 64) if value >> 63 else value
