"""How much two notes say the same: by the vectors of their first pieces, and by their words.

It knows no store and no model. Both measures are 0 to 1 and go both ways, so that a note is no duplicate of one that says the same and
much more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from rapidfuzz import fuzz

from confide_daemon.embed.protocol import Vectors
from confide_daemon.sealing import standins
from confide_daemon.store import NotePiece

# What of a long note is compared: 8 pieces by meaning (some 300 words), 64 by words.
FIRST = 8
FIRST_WORDS = 64
# Of two notes that are longer than what is compared, how much shorter one may be.
LEAST_LENGTH = 0.8


@dataclass(frozen=True, slots=True)
class Compared:
    """What of a note is compared.

    Attributes:
        vectors: unit rows of its first pieces; None where one of them has no vector.
        weights: tokens of these pieces.
        words: all its words in lower case and in order of the alphabet.
        tokens: of all pieces looked at.
        is_long: it has more than is compared by meaning.
        sealed: what stands in for its text, where all of that was sealed: nobody here knows what it says.
    """

    vectors: Vectors | None
    weights: Vectors
    words: str
    tokens: int
    is_long: bool = False
    sealed: tuple[str, ...] = ()

    @property
    def centre(self) -> Vectors | None:
        """The mean of its vectors, of unit length: notes that are near have centres that are about as near."""
        if self.vectors is None:
            return None
        mean = self.weights @ self.vectors
        length = np.linalg.norm(mean)
        return np.asarray(mean / length, dtype=np.float32) if length > 0 else None


def compared(pieces: Sequence[NotePiece], vectors: Mapping[int, Vectors]) -> Compared:
    """What is compared of a note with these first pieces (FIRST_WORDS at most), in order, and the vectors they have."""
    first = pieces[:FIRST]
    rows = [vectors[piece.id] for piece in first if piece.id in vectors]
    text = " ".join(piece.text for piece in pieces)
    return Compared(
        np.stack(rows) if rows and len(rows) == len(first) else None,
        np.array([max(1, piece.tokens) for piece in first], dtype=np.float32),
        sorted_words(text),
        sum(piece.tokens for piece in pieces),
        len(pieces) > FIRST,
        standins.in_order(text) if standins.only(text) else (),
    )


def sorted_words(text: str) -> str:
    """Its words as they are compared: in lower case, in order, so that where they stand does not matter."""
    return " ".join(sorted(re.findall(r"\w+", text.lower())))


def by_meaning(one: Compared, other: Compared) -> float:
    """The mean of each piece's best cosine in the other note, weighted by length, of both sides the lower one; 0 without vectors."""
    if one.vectors is None or other.vectors is None or not _alike_in_length(one, other):
        return 0.0
    cosines = one.vectors @ other.vectors.T
    there = float(one.weights @ cosines.max(axis=1)) / float(one.weights.sum())
    back = float(other.weights @ cosines.max(axis=0)) / float(other.weights.sum())
    return max(0.0, min(1.0, there, back))


def by_words(one: Compared, other: Compared, least: float) -> float:
    """RapidFuzz's `token_sort_ratio`: of all letters, the words in order, the share that both have in the same order; 0 below `least`."""
    if not one.words or not other.words or not _alike_in_length(one, other):
        return 0.0
    return fuzz.ratio(one.words, other.words, score_cutoff=100 * least) / 100


def _alike_in_length(one: Compared, other: Compared) -> bool:
    if not (one.is_long or other.is_long):
        return True  # all of both is compared, which tells it better
    return min(one.tokens, other.tokens) >= LEAST_LENGTH * max(one.tokens, other.tokens)


@dataclass(frozen=True, slots=True)
class Likeness:
    """How near two notes are, and what says so: `embedding` or `text`."""

    value: float
    by: str = field(default="embedding")


def likeness(one: Compared, other: Compared, least: float) -> Likeness | None:
    """The higher of both measures, if it is `least` or more; None of two that were sealed and are not the same."""
    if one.sealed != other.sealed:
        return None
    meaning, words = by_meaning(one, other), by_words(one, other, least)
    best = Likeness(words, "text") if words > meaning else Likeness(meaning)
    # A cosine of equal vectors is 1 but for the rounding.
    return best if best.value >= least - 1e-6 else None
