"""Which of a question's terms stand in a piece, weighed by how much each says: what is rare in the space tells pieces apart, what stands
in a tenth of them does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confide_daemon.retrieval.search.query import Term
from confide_daemon.store.tables.keyword import BACKGROUND, K1, index_words, line_of, stems

# Pieces that hold a term are counted up to here: what stands in more is common in a space of any size, and counting costs.
MOST_COUNTED = 500
# A term that no piece holds counts so much in a space that is empty, and half of the rest more with HALF_KNOWN pieces: hardly any word
# stands in a few notes.
UNKNOWN, HALF_KNOWN = 0.3, 20
# What BM25 gives for each unit of rarity to a piece of usual length that holds a term once is 1, and K1 + 1 at most; most hold it once
# or twice.
USUAL_GAIN = (1 + K1 + 1) / 2


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pieces hold each term, `MOST_COUNTED` at most, of how many in all."""

    having: tuple[int, ...]
    pieces: int

    def rarity(self, index: int) -> float:
        """As BM25 has it, in a space that is never quite empty; near 0 for what stands everywhere."""
        having = self.having[index]
        rare = math.log1p((self.pieces + BACKGROUND - having + 0.5) / (having + 0.5))
        return rare if having else rare * (UNKNOWN + (1 - UNKNOWN) * self.pieces / (self.pieces + HALF_KNOWN))


class Terms:
    """The question's terms, to be looked for in texts; `also` are words that stand in for them (the caller's synonyms)."""

    def __init__(self, terms: Sequence[Term], also: Sequence[Term] = (), counts: Counts | None = None) -> None:
        """`counts`: of `terms` and then `also`; None: all are equally rare."""
        rarity = [counts.rarity(index) if counts else 1.0 for index in range(len(terms) + len(also))]
        weights = [term.weight * rare for term, rare in zip((*terms, *also), rarity, strict=True)]
        # Nearly every term is written in one way; a search asks for each thirty times.
        self._plain: list[tuple[str, float]] = []
        self._others: list[tuple[list[str], float]] = []
        for term, weight in zip((*terms, *also), weights, strict=True):
            lines = [line.rstrip() if term.is_beginning else line for line in map(line_of, term.ways)]
            if len(lines) == 1:
                self._plain.append((lines[0], weight))
            else:
                self._others.append((lines, weight))
        self._total = sum(weights[: len(terms)]) or max(weights, default=0.0)
        self._usual = USUAL_GAIN * sum(rarity[: len(terms)])

    def share(self, texts: Iterable[str]) -> float:
        """The share of the terms, by weight, that stands in the texts; 0 when there are none."""
        if not self._total:
            return 0.0
        text = f" {' '.join(texts)} "
        held = sum([weight for line, weight in self._plain if line in text])
        held += sum(weight for lines, weight in self._others if any(line in text for line in lines))
        return min(1.0, held / self._total)

    def covered(self, bm25: float) -> float:
        """A BM25 score as a share of what a usual piece with all of the terms would have, 1.5 at most; 0 when there are none.

        A score by itself grows with the space: the same words are rarer among more.
        """
        return min(1.5, max(0.0, bm25) / self._usual) if self._usual else 0.0


def stem_line(text: str) -> str:
    """A piece's text as `Terms.share` takes it."""
    return " ".join(stems(f"{text}\n{index_words(text)}"))
