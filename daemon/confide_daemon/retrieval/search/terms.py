"""Which of a question's terms stand in a piece, weighed by how much each says: what is rare in the space tells pieces apart, what stands
in a tenth of them does not. A rare term that is missing speaks against a piece, however well the others fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confide_daemon.retrieval.search.query import LONGEST, Term
from confide_daemon.store.tables.keyword import index_words, line_of, stems

# Pieces that hold a term are counted up to here: what stands in more is common in a space of any size, and counting costs.
MOST_COUNTED = 500
# A term that no piece holds counts so much in a space that is empty, and half of the rest more with HALF_KNOWN pieces: hardly any word
# stands in a few notes.
UNKNOWN, HALF_KNOWN = 0.3, 20
# Terms of less weight than one long word are no whole question: "go on" is answered by no piece that holds both words.
LEAST_TOTAL = LONGEST**0.5
# Brings what is missing into 0 to 1 for most questions: a word of six letters that none of 1,000 pieces holds is 1.9.
MISSING_SCALE = 0.1


# A name that stands in more pieces than a few, or a twentieth of all, names what the memory is about and points at none of them.
FEW, COMMON = 3, 20


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pieces hold each term, `MOST_COUNTED` at most, of how many in all."""

    having: tuple[int, ...]
    pieces: int

    def rarity(self, index: int) -> float:
        """1 for what stands everywhere, some 12 for what a hundred thousand pieces lack."""
        return 1.0 + math.log1p(self.pieces / (self.having[index] + 1))

    def known(self, index: int) -> float:
        """How much of a term's weight counts: all of it, unless no piece holds it and there are few."""
        if self.having[index]:
            return 1.0
        return UNKNOWN + (1.0 - UNKNOWN) * self.pieces / (self.pieces + HALF_KNOWN)

    def is_rare(self, index: int) -> bool:
        """Whether a name points at the pieces that hold it."""
        return self.having[index] <= max(FEW, self.pieces / COMMON)


class Held(NamedTuple):
    """Of the terms, by weight: the share that stands in the piece or around it, in the piece itself, and the heaviest that is missing."""

    terms: float
    stated: float
    missing: float


class Terms:
    """The question's terms, to be looked for in texts; `also` are words that stand in for them (the caller's synonyms)."""

    def __init__(self, terms: Sequence[Term], also: Sequence[Term] = (), counts: Counts | None = None) -> None:
        """`counts`: of `terms` and `also`, in this order; None: all are equally rare."""
        counts = counts or Counts((0,) * (len(terms) + len(also)), 0)
        names = [index for index, term in enumerate(terms) if term.is_name]
        # Whether a piece that has the question's name or quoted phrase as it stands is what was asked for.
        self.point_at_pieces = not names or any(counts.is_rare(index) for index in names)
        self._terms: list[tuple[list[str], float, float]] = []
        for index, term in enumerate((*terms, *also)):
            lines = [line.rstrip() if term.is_beginning else line for line in map(line_of, term.ways)]
            heavy = term.weight * counts.rarity(index)
            self._terms.append((lines, heavy * counts.known(index), heavy * MISSING_SCALE))
        self._own = len(terms)
        own = sum(weight for _, weight, _ in self._terms[: self._own])
        short = min(1.0, sum(term.weight for term in terms) / LEAST_TOTAL)
        self._total = own / short if own else max((weight for _, weight, _ in self._terms), default=0.0)

    def held(self, piece: str, around: str = "") -> Held:
        """What is held by a piece's line (`stem_line`) and by those of the texts around it."""
        if not self._total:
            return Held(0.0, 0.0, 0.0)
        own, text = f" {piece} ", f" {piece} {around} "
        terms = stated = 0.0
        missing: list[float] = []
        replaced = 0
        for index, (lines, weight, heavy) in enumerate(self._terms):
            # Nearly every term is written in one way; a search asks for each thirty times.
            if lines[0] in text or (len(lines) > 1 and any(line in text for line in lines)):
                terms += weight
                replaced += index >= self._own
                if lines[0] in own or (len(lines) > 1 and any(line in own for line in lines)):
                    stated += weight
            elif index < self._own:
                missing.append(heavy)
        # Each word of the caller's that stands there is there in place of a term.
        lacking = sorted(missing, reverse=True)[replaced : replaced + 1]
        return Held(min(1.0, terms / self._total), min(1.0, stated / self._total), *(lacking or [0.0]))


def stem_line(text: str) -> str:
    """A piece's text as `Terms.held` takes it."""
    return " ".join(stems(f"{text}\n{index_words(text)}"))
