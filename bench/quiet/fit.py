"""The weights of the shown score, by logistic regression on the answers of the development side, and on nothing else.

    python -m bench.quiet.fit

It prints the weights of all of it, and what each quarter of the memories and sets comes to by a fit of the other three.

A right first hit stands against the best hit of a question that nothing answers: that is the one a threshold has to stop. Which hit is
the best depends on the weights, so they are fitted again a few times. Each kind of question counts alike, however many there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bench.quality import embedder
from bench.quiet.__main__ import measured
from bench.quiet.measure import Answer
from bench.quiet.others import is_there, other_answers
from bench.quiet.questions import SAME_PROJECT

Numbers = npt.NDArray[np.float64]

HYBRID = ("keyword", "covered", "stated", "vector", "best", "margin", "size")
FOLDS = 4
LOST_AT = (0.015, 0.03)
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


def _kind(answer: Answer) -> tuple[str, str, str]:
    return answer.origin, answer.beside, answer.asked.kind


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


def main() -> None:
    """Ask, fit, and print."""
    handle = embedder("local")
    found = asyncio.run(measured("local", kept_aside=False))
    found += asyncio.run(other_answers(handle)) if is_there() else []
    names = sorted({_whose(answer) for answer in found})
    print({name: round(weight, 2) for name, weight in weights(found, HYBRID).items()})
    scores: dict[int, Numbers] = {}
    for fold in range(FOLDS):
        unseen = set(names[fold::FOLDS])
        fitted = weights([answer for answer in found if _whose(answer) not in unseen], HYBRID)
        for answer in found:
            if _whose(answer) in unseen:
                scores[id(answer)] = evidence(answer, HYBRID) @ np.array([fitted[name] for name in HYBRID])
    print("each judged by a fit that never saw it, at a threshold of its own:")
    for name in dict.fromkeys((answer.origin, answer.beside) for answer in found):
        _print_shares(name, [answer for answer in found if (answer.origin, answer.beside) == name], scores)


def _whose(answer: Answer) -> str:
    return answer.asked.memory if answer.origin == "quiet" else answer.origin


def _print_shares(name: tuple[str, str], some: Sequence[Answer], scores: Mapping[int, Numbers]) -> None:
    right = [
        scores[id(answer)][0]
        for answer in some
        if answer.asked.kind == "answered" and answer.hits and answer.hits[0]["isRight"]
    ]
    for lost in LOST_AT:
        least = np.quantile(right, lost)
        quiet = {
            label: 100
            * np.mean(
                [scores[id(answer)].max(initial=-np.inf) < least for answer in some if answer.asked.kind in kinds]
            )
            for label, kinds in (("same project", SAME_PROJECT), ("foreign", ("foreign",)))
            if any(answer.asked.kind in kinds for answer in some)
        }
        shares = ", ".join(f"{label} {share:.1f} %" for label, share in quiet.items())
        print(f"{' '.join(name):30s} {100 * lost:.1f} % of right first hits lost: nothing for {shares}")


if __name__ == "__main__":
    main()
