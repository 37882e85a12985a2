"""Seed phrases of wallets (BIP-39, English): twelve to twenty-four words from a list of 2,048, of
which the last holds a checksum.

The word list is the one of fingerprints (`confide_crypto.keys.identity`). Prose hardly ever has
twelve of its words in a row; of such rows, one in sixteen has a valid checksum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from itertools import pairwise
from typing import Final

from confide_crypto.keys.identity import word_list
from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.prefilter import PHRASE, compile_once, may_be_phrase

_LENGTHS: Final = (24, 21, 18, 15, 12)
_WORD: Final = re.compile(r"[a-z]+")
_BITS: Final = 11
_FEWEST_KINDS: Final = 6
"""Fewest different words of a phrase: the published test vectors repeat one word."""


def find(lowered: str, words: list[str]) -> Iterator[SecretFinding]:
    """Yield each seed phrase in a text in lower case; of those that begin at the same word the
    longest.

    `words` are the words of the text.
    """
    places = _places()
    if not may_be_phrase(words, places):
        return
    behind = 0
    while run := compile_once(PHRASE).search(lowered, behind):
        parts = list(_WORD.finditer(lowered, *run.span()))
        numbers = [places.get(word[0]) for word in parts]
        at = 0
        # A run may end inside a phrase: its last words are searched again as the start of the next
        # run.
        behind = max(parts[-_LENGTHS[0] + 1].start() if len(parts) >= 2 * _LENGTHS[0] else run.end(), run.start() + 1)
        while at + _LENGTHS[-1] <= len(parts):
            length = next((each for each in _LENGTHS if _is_phrase(numbers[at : at + each], each)), 0)
            if length:
                yield SecretFinding("seed-phrase", parts[at].start(), parts[at + length - 1].end(), 0.9, "token")
                behind = max(behind, parts[at + length - 1].end())
            at += length or 1


def _is_phrase(numbers: list[int | None], length: int) -> bool:
    if len(numbers) != length or None in numbers or len(set(numbers)) < _FEWEST_KINDS:
        return False
    known = [number for number in numbers if number is not None]
    if all(first < second for first, second in pairwise(known)):
        return False  # a piece of the list itself
    bits = "".join(f"{number:0{_BITS}b}" for number in known)
    check = length // 3
    entropy = int(bits[:-check], 2).to_bytes((len(bits) - check) // 8, "big")
    return f"{sha256(entropy).digest()[0]:08b}"[:check] == bits[-check:]


@cache
def _places() -> dict[str, int]:
    return {word: place for place, word in enumerate(word_list())}
