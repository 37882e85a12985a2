"""The weights of the shown score, by logistic regression on the answers of the development side, and on nothing else.

A right first hit stands against the best hit of a question that nothing answers: that is the one a threshold has to stop. Which hit is
the best depends on the weights, so they are fitted again a few times. Each kind of question counts alike, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bench.quiet.measure import Answer

Numbers = npt.NDArray[np.float64]

HYBRID = ("keyword", "terms", "stated", "missing", "vector", "best", "margin")
KEYWORD = ("keyword", "terms", "stated", "missing")
ROUNDS = 5
RIDGE = 1e-3
# A right hit that is lost is worse than a wrong one that is shown; with it the fit looks at the right ones that are hard to tell.
RIGHT = 8.0
LOST = 0.015
THRESHOLD = 0.25


def evidence(answer: Answer, names: Sequence[str]) -> Numbers:
    """A row for each hit."""
    return np.array([[hit[name] or 0.0 for name in names] for hit in answer.hits]).reshape(len(answer.hits), len(names))


# LoCoMo has the most questions that nobody here wrote, DevBench twenty.
APART: Mapping[str, float] = {"locomo_dev": 2.0, "devbench_dev": 0.3}


def weights(found: Sequence[Answer], names: Sequence[str]) -> dict[str, float]:
    """The weights of these names and the constant; everyday prompts and days are judged, not fitted on."""
    right = [
        answer for answer in found if answer.asked.kind == "answered" and answer.hits and answer.hits[0]["isRight"]
    ]
    wrong = [answer for answer in found if not answer.asked.gold and answer.hits]
    counts = Counter(_kind(answer) for answer in found)

    def shares(some: Sequence[Answer], total: float) -> Numbers:
        each = np.array([APART.get(answer.origin, 1.0) / counts[_kind(answer)] for answer in some])
        scaled: Numbers = each * total / each.sum()
        return scaled

    above = np.array([evidence(answer, names)[0] for answer in right])
    below = [evidence(answer, names) for answer in wrong]
    each = np.concatenate([shares(right, RIGHT * len(right)), shares(wrong, len(right))])
    truth = np.concatenate([np.ones(len(right)), np.zeros(len(wrong))])
    best = [0] * len(wrong)
    for _ in range(ROUNDS):
        rows = np.concatenate([above, [hits[place] for hits, place in zip(below, best, strict=True)]])
        fitted = _logistic_regression(rows, truth, each)
        best = [int(np.argmax(hits @ fitted[:-1])) for hits in below]
    # The constant is set by what may be lost, not by the fit: the odds of its two sides are made up.
    lowest = _quantile(above @ fitted[:-1], shares(right, 1.0), LOST)
    constant = np.log(THRESHOLD / (1 - THRESHOLD)) - lowest
    return dict(zip(names, map(float, fitted[:-1]), strict=True)) | {"constant": float(constant)}


def _kind(answer: Answer) -> tuple[str, bool, str]:
    return answer.origin, answer.is_large, answer.asked.kind


def _quantile(values: Numbers, shares: Numbers, share: float) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(shares[order]), share)])


def _logistic_regression(rows: Numbers, truth: Numbers, each: Numbers) -> Numbers:
    """By Newton's method, with a small ridge on all but the constant."""
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    ridge = np.eye(rows.shape[1]) * RIDGE * each.sum()
    ridge[-1, -1] = 1e-9
    fitted: Numbers = np.zeros(rows.shape[1])
    for _ in range(40):
        likely = 1 / (1 + np.exp(-np.clip(rows @ fitted, -30, 30)))
        slope = rows.T @ (each * (truth - likely)) - ridge @ fitted
        step = np.linalg.solve((rows.T * (each * likely * (1 - likely))) @ rows + ridge, slope)
        fitted = fitted + step
        if np.abs(step).max() < 1e-7:
            break
    return fitted
