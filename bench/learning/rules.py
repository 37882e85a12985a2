"""The precision of the rules on labelled turns, with Wilson intervals: `python -m bench learning.rules`.

Both files were written for this project, under its licence, by who wrote the rules. Most of what holds nothing was made to look as if it
did. A line is one exchange, with the kinds of what of it is worth keeping. Its hash decides which half of `turns.jsonl` it belongs to;
the rules were fitted to the development half, which has all that is marked `fitted` too. `later.jsonl` was written when the rules were
done, and nothing was fitted to it.
An exchange counts as right if something of it is to be kept and one thing was; each further finding of it counts as wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confide_learn.local import rule_judge
from confide_learn.local.checks import check_findings
from confide_learn.local.exchanges import ExchangeMessage, LearnedExchange

FOLDER = Path(__file__).parent
HALVES = ("development", "held-out")
LATER = "later"
Z = 1.96


class Score(NamedTuple):
    """How it went: findings that were right, findings in all, exchanges with something to keep, and exchanges."""

    right: int
    found: int
    wanted: int
    exchanges: int

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 0.0


def main() -> None:
    """Print the halves, and what was written later."""
    for half in (*HALVES, LATER):
        score = scored(half)
        low, high = wilson(score.right, score.found)
        least, most = wilson(score.right, score.wanted)
        print(
            f"{half}: {score.exchanges} exchanges, {score.wanted} with something to keep; precision {score.precision:.3f} "
            f"({score.right} of {score.found}, 95 % {low:.3f} to {high:.3f}), "
            f"recall {score.right / score.wanted:.3f} (95 % {least:.3f} to {most:.3f})"
        )


def scored(half: str) -> Score:
    """The score of one of `HALVES`, or of `LATER`."""
    right = found = wanted = count = 0
    for keep, exchange in turns(half):
        findings = check_findings(rule_judge.judge([exchange]), [exchange])
        count += 1
        wanted += bool(keep)
        found += len(findings)
        right += bool(keep and findings)
    return Score(right, found, wanted, count)


def turns(half: str) -> Iterator[tuple[list[str], LearnedExchange]]:
    """The labels and exchanges of one."""
    file = FOLDER / ("later.jsonl" if half == LATER else "turns.jsonl")
    for line in file.read_text(encoding="utf-8").splitlines():
        turn = json.loads(line)
        if half in (LATER, HALVES[0] if turn.get("fitted") else half_of(turn["said"])):
            said = tuple(ExchangeMessage(role, text, *rest) for role, text, *rest in turn["said"])
            yield turn["keep"], LearnedExchange(0, 1, said)


def half_of(said: list[Any]) -> str:
    """The half that an exchange belongs to."""
    key = json.dumps(said, ensure_ascii=False).encode()
    return HALVES[hashlib.blake2b(key, digest_size=8).digest()[0] & 1]


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927)."""
    if not count:
        return 0.0, 1.0
    share = right / count
    middle = share + Z * Z / (2 * count)
    half = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return (middle - half) / (1 + Z * Z / count), (middle + half) / (1 + Z * Z / count)
