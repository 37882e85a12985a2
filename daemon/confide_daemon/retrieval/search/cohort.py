"""Texts that have nothing to do with any space: what a question reaches among them it would reach anywhere.

Some questions are near to everything, and their best cosine in a space says little; so it is compared with the best among these, as
speaker verification compares a score with those of a cohort of strangers (T-norm: Auckenthaler et al., Digital Signal Processing 10,
2000). All were made up for this: `cohort.txt` is what projects note down, and the answers of `scoring.PAIRS` belong to it; `everyday.txt`
is what answers prompts that need no memory.
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
    """The vectors that one model gives for the texts."""

    notes: Vectors
    everyday: Vectors


def texts(answers: list[str]) -> list[str]:
    """All of them, with these answers, in the order that `of` takes."""
    files = ("cohort.txt", "everyday.txt")
    return [*answers, *(line for name in files for line in (HERE / name).read_text(encoding="utf-8").splitlines())]


def of(vectors: Vectors) -> Cohort:
    """The cohort whose texts have these vectors."""
    return Cohort(vectors[:-EVERYDAY], vectors[-EVERYDAY:])


EVERYDAY = 32  # lines of `everyday.txt`


@cache
def packaged() -> Cohort:
    """As the packaged model has it (`python -m bench.quiet.cohort` writes it)."""
    return of(np.asarray(np.load(HERE / "cohort.npy"), dtype=np.float32))
