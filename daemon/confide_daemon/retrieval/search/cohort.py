"""Notes that have nothing to do with any space: what a question reaches among them it would reach anywhere.

Some questions are near to everything, and their best cosine in a space says little; so it is compared with the best among these, as
speaker verification compares a score with those of a cohort of strangers (T-norm: Auckenthaler et al., Digital Signal Processing 10,
2000). The cohort is `cohort.txt`, made up for this, and the answers of `scoring.PAIRS`, in whose order its vectors are kept.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from confide_daemon.embedding.embedder import Vectors

HERE = Path(__file__).parent


def texts() -> list[str]:
    """The notes, a line each."""
    return (HERE / "cohort.txt").read_text(encoding="utf-8").splitlines()


@cache
def packaged() -> Vectors:
    """The vectors that the packaged model gives for the answers of `scoring.PAIRS` and then the notes (`python -m bench.quiet.cohort`)."""
    return np.asarray(np.load(HERE / "cohort.npy"), dtype=np.float32)
