"""What a text is known again by when it comes from elsewhere: numbers for its parts, of which two texts that share a part share one.

Winnowing (Schleimer, Wilkerson, Aiken: "Winnowing: local algorithms for document fingerprinting", 2003) over the words of each block of
lines: whatever runs on for `SURE` words in two texts gives both the same number, however lines are broken, marked up or written in
capitals. A block of fewer words is known as a whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

GRAM: Final = 8
"""Words that one number stands for."""
WINDOW: Final = 5
"""Of so many numbers in a row the least is taken: 0.33 numbers a word."""
SURE: Final = GRAM + WINDOW - 1
# Shorter blocks say nothing of where they are from: "- yes", "## Notes".
_LEAST_WORDS: Final = 3
_LEAST_HEADING: Final = 6
# Each letter of a script that puts no blanks between words is one.
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u3040-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_BEGINS: Final = re.compile(r"\s*(?:[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|\||>)")
_HEADING: Final = re.compile(r"\s*#{1,6}\s")
_FACTOR: Final = 0x9E3779B97F4A7C15
_BITS: Final = (1 << 64) - 1


class TextBlock(NamedTuple):
    """A paragraph, a list item, a heading or a row: its lines, counted from 1, both ends included."""

    first: int
    last: int


def blocks(lines: Sequence[str]) -> list[TextBlock]:
    """The lines that are not blank, in blocks."""
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
    """The numbers of each of the blocks, signed and of 64 bits; none of a block that says too little."""
    words = _Words()
    return {block: _marks(lines[block.first - 1 : block.last], words) for block in among}


def known(numbers: Mapping[TextBlock, frozenset[int]], there: frozenset[int]) -> list[TextBlock]:
    """Those of the blocks that have one of the numbers `there`."""
    return [block for block, own in numbers.items() if not own.isdisjoint(there)]


class _Words(dict[str, int]):
    """The numbers of words, each worked out once; kept no longer than a text is looked at."""

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
        return frozenset([_signed(_joined(numbers))])
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
    return frozenset(_signed(min(grams[at : at + WINDOW])) for at in windows)


def _joined(numbers: Sequence[int]) -> int:
    value = len(numbers)
    for number in numbers:
        value = (value * _FACTOR + number) & _BITS
    return value


def _signed(value: int) -> int:
    # As SQLite holds them.
    return value - (1 << 64) if value >> 63 else value
