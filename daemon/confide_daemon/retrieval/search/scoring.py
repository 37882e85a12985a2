"""The score that is shown: how likely it is that a piece answers the question, whatever else was found.

Pieces are ranked by comparing them with each other (`ranking`), which says nothing about whether the best of them is any good. The
shown score is a logistic function of what can be compared between questions: the keyword score, the cosine, the share of the
question's terms that stand in or around the piece, and the best cosine of the whole search.

The weights were fitted by logistic regression on the development sets (LoCoMo, DevMemBench, DevBench, LongMemEval; `bench/quality.py`)
and rounded: right first hits against questions without an answer, questions of another conversation, and questions whose answer was
taken away. Each set was judged by a fit that had not seen it. The constants are chosen so that 0.25 loses about 1 % of right first hits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confide_daemon.retrieval.search.terms import Term
from confide_daemon.store.tokenize import index_words, line_of, stems

SATURATION = 8.0  # the BM25 score that counts half
# What is weighed when a piece has a vector, when it has none, and the cosine by itself: a piece that says the same in other words
# shares none of the question's terms, and 0.45 is more than unrelated texts reach.
HYBRID = {"keyword": 2.6, "vector": 3.2, "terms": 3.8, "best": 2.2, "constant": -5.65}
KEYWORD = {"keyword": 3.4, "terms": 5.1, "constant": -4.63}
VECTOR = {"vector": 10.0, "constant": -5.6}
# A piece in which a name or a quoted phrase stands as it was asked for is an answer more often than not, however long the question is.
NAMED = -0.5


@dataclass(frozen=True, slots=True)
class CosineScale:
    """What the cosines of a model mean, as those of the packaged one (which the weights above were fitted with)."""

    unrelated: float = 0.05  # of a question and a text that have nothing to do with each other
    related: float = 0.50  # of a question and its answer

    def of(self, cosine: float) -> float:
        """The cosine as the packaged model would give it, 0 at least."""
        step = (cosine - self.unrelated) / max(self.related - self.unrelated, 1e-3)
        return min(1.0, max(0.0, PACKAGED.unrelated + step * (PACKAGED.related - PACKAGED.unrelated)))


PACKAGED = CosineScale()
PACKAGED_MODEL = "all-MiniLM-L6-v2-int8"
# A model that only compares words says nothing that the keyword leg does not.
WORDS_ONLY = frozenset({"hashed"})


class Evidence(NamedTuple):
    """What speaks for a piece, all in 0 to 1; `vector` and `best` are None where there is no vector."""

    keyword: float
    terms: float
    vector: float | None = None
    best: float | None = None
    is_named: bool = False  # a name or a quoted phrase of the question stands in it

    @property
    def score(self) -> float:
        """The score that is shown, 0 to 1."""
        least = NAMED if self.is_named else -math.inf
        if self.vector is None or self.best is None:
            words = KEYWORD["constant"] + KEYWORD["keyword"] * self.keyword + KEYWORD["terms"] * self.terms
            return _logistic(max(words, least))
        both = (
            HYBRID["constant"]
            + HYBRID["keyword"] * self.keyword
            + HYBRID["vector"] * self.vector
            + HYBRID["terms"] * self.terms
            + HYBRID["best"] * self.best
        )
        return _logistic(max(both, VECTOR["constant"] + VECTOR["vector"] * self.vector, least))


def saturate(bm25: float) -> float:
    """BM25 brought into 0 to 1 so that scores of different questions can be compared."""
    bm25 = max(0.0, bm25)
    return bm25 / (bm25 + SATURATION)


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))


class Terms:
    """The question's terms, to be looked for in texts; `also` are words that stand in for them (the caller's synonyms)."""

    def __init__(self, terms: Sequence[Term], also: Sequence[Term] = ()) -> None:
        # Nearly every term is written in one way; a search asks for each thirty times.
        self._plain: list[tuple[str, float]] = []
        self._others: list[tuple[list[str], float]] = []
        for term in (*terms, *also):
            lines = [line.rstrip() if term.is_beginning else line for line in map(line_of, term.ways)]
            if len(lines) == 1:
                self._plain.append((lines[0], term.weight))
            else:
                self._others.append((lines, term.weight))
        self._total = sum(term.weight for term in terms) or max((term.weight for term in also), default=0.0)

    def share(self, texts: Iterable[str]) -> float:
        """The share of the terms, by weight, that stands in the texts; 0 when there are none."""
        if not self._total:
            return 0.0
        text = f" {' '.join(texts)} "
        held = sum([weight for line, weight in self._plain if line in text])
        held += sum(weight for lines, weight in self._others if any(line in text for line in lines))
        return min(1.0, held / self._total)


def stem_line(text: str) -> str:
    """A piece's text as `Terms.share` takes it."""
    return " ".join(stems(f"{text}\n{index_words(text)}"))
