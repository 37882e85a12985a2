"""Background texts that are unrelated to any space. A query that is near to them is near to
everything.

The best cosine of such a query says little about a space. So Confide compares it with the query's
best cosine among these texts, as speaker verification compares a score with the scores of a cohort
of strangers (T-norm: Auckenthaler et al., Digital Signal Processing 10, 2000). All texts were
written for this purpose: `cohort.txt` holds notes as projects write them, and the answers of
`scoring.PAIRS` belong to it; `everyday.txt` holds answers to prompts that need no memory.
"""

from __future__ import annotations

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
def packaged() -> Cohort:
    """Return the cohort of the packaged model (`python -m bench.quiet.cohort` writes its file)."""
    return of(np.asarray(np.load(HERE / "cohort.npy"), dtype=np.float32))
