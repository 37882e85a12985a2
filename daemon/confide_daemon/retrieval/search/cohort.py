"""Background texts that are unrelated to any space. A query that is similar to them is similar to
everything.

The best cosine of such a query says little about a space. So Confide compares it with the query's
best cosine among these texts, as speaker verification compares a score with the scores of a cohort
of strangers (T-norm: Auckenthaler et al., Digital Signal Processing 10, 2000). All texts were
written for this purpose. `cohort.txt` contains notes as projects write them, to which the answers
of `scoring.PAIRS` are added. `everyday.txt` contains answers to prompts that need no memory.

The rarity of words is also measured in writing in general, because a small memory cannot show it:
among twenty notes nearly each word is rare. `general_words.txt` lists stems, each with the number
of paragraphs of documentation, manual pages and changelogs that contain it (`python -m
bench.quiet.vocabulary`). Other words count as contained in none.
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
    """The vectors of the background texts, computed by one embedding model."""

    notes: Vectors
    everyday: Vectors


def texts(answers: list[str]) -> list[str]:
    """Return all background texts, in the order in which `of` expects their vectors. `answers` come
    first.
    """
    files = ("cohort.txt", "everyday.txt")
    return [*answers, *(line for name in files for line in (HERE / name).read_text(encoding="utf-8").splitlines())]


def of(vectors: Vectors) -> Cohort:
    """Divide the vectors of `texts` into those of notes and those of everyday texts."""
    return Cohort(vectors[:-EVERYDAY], vectors[-EVERYDAY:])


EVERYDAY = 32  # lines of `everyday.txt`


@cache
def packaged_cohort() -> Cohort:
    """Return the vectors of the background texts by the packaged model. Their file is written by
    `python -m bench.quiet.cohort`.
    """
    return of(np.asarray(np.load(HERE / "cohort.npy"), dtype=np.float32))


# Counts of words are raised by this much: one that stood in no paragraph may stand in the next.
UNSEEN = 2.0


@cache
def word_counts() -> tuple[int, dict[str, int]]:
    """Return the number of paragraphs in which words were counted, and for each stem the number of
    paragraphs that contain it.
    """
    total, *lines = (HERE / "general_words.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines)
    return int(total), {stem: int(count) for stem, count in pairs}


def rarity(line: str) -> float:
    """Return how rare the rarest word in a line of stems is in writing in general. It is 1 for a
    word that was never seen and near 0 for one in every paragraph, on a logarithmic scale as in
    BM25.
    """
    total, known = word_counts()
    seen = min((known.get(stem, 0) for stem in line.split()), default=total)
    return math.log1p((total - seen + 0.5) / (seen + UNSEEN)) / math.log1p((total + 0.5) / UNSEEN)
