"""Background texts that are unrelated to any space. A query that is near to them is near to
everything.

The best cosine of such a query says little about a space. So Confide compares it with the query's
best cosine among these texts, as speaker verification compares a score with the scores of a cohort
of strangers (T-norm: Auckenthaler et al., Digital Signal Processing 10, 2000). All texts were
written for this purpose: `cohort.txt` holds notes as projects write them, and the answers of
`scoring.PAIRS` belong to it; `everyday.txt` holds answers to prompts that need no memory.

Words are compared with writing in general as well. What a small memory holds does not say if a word
is rare: among twenty notes nearly each word is. `general_words.txt` has stems and in how many
paragraphs of documentation, manual pages and changelogs each of them stood
(`python -m bench.quiet.vocabulary`); other words count as standing in none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from confide_daemon.embedding.embedder import Vectors

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """The vectors of the background texts, computed by one model."""

    notes: Vectors
    everyday: Vectors


def texts(answers: list[str]) -> list[str]:
    """Return all background texts, these answers first, in the order that `of` expects their
    vectors.
    """
    files = ("cohort.txt", "everyday.txt")
    return [*answers, *(line for name in files for line in (HERE / name).read_text(encoding="utf-8").splitlines())]


def of(vectors: Vectors) -> Cohort:
    """Split the vectors of `texts` into those of notes and those of everyday texts."""
    return Cohort(vectors[:-EVERYDAY], vectors[-EVERYDAY:])


EVERYDAY = 32  # lines of `everyday.txt`


@cache
def packaged_cohort() -> Cohort:
    """Return the cohort of the packaged model (`python -m bench.quiet.cohort` writes its file)."""
    return of(np.asarray(np.load(HERE / "cohort.npy"), dtype=np.float32))


# Counts of words are raised by this much: one that stood in no paragraph may stand in the next.
UNSEEN = 2.0


@cache
def word_counts() -> tuple[int, dict[str, int]]:
    """Return how many paragraphs were counted, and by stem in how many of them it stood."""
    total, *lines = (HERE / "general_words.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines)
    return int(total), {stem: int(count) for stem, count in pairs}


def rarity(line: str) -> float:
    """Return how rare the rarest word of a line of stems is in general: 1 for one that was never
    seen, near 0 for one in every paragraph. It grows with the logarithm, as in BM25.
    """
    total, known = word_counts()
    seen = min((known.get(stem, 0) for stem in line.split()), default=total)
    return math.log1p((total - seen + 0.5) / (seen + UNSEEN)) / math.log1p((total + 0.5) / UNSEEN)
