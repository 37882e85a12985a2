"""The position, kind and confidence of a credential that was found in a text."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretFinding:
    """The position of a credential in a text. It doesn't hold the value, so neither its repr nor an
    error message can disclose it.

    Attributes:
        kind: kind of credential, such as `github-token`; docs/secrets.md lists all.
        start, end: span of the value in characters, without its name and quotes.
        confidence: 0 to 1.
        detector: the detector that found it: `token`, `private-key`, `jwt`, `address`, `header`,
            `login`, `assignment`, `alone`, `entropy` or `repeated`.
        prefix: the part that all values of the kind begin with, such as `ghp_`; "" if none.
    """

    kind: str
    start: int
    end: int
    confidence: float
    detector: str
    prefix: str = ""

    @property
    def length(self) -> int:
        """Length of the value in characters."""
        return self.end - self.start


def resolve_overlaps(findings: list[SecretFinding]) -> list[SecretFinding]:
    """Drop overlapping findings; keep the most confident, and among equals the longest. Return the
    rest in text order.
    """
    chosen: list[SecretFinding] = []
    starts: list[int] = []
    for finding in sorted(findings, key=lambda each: (-each.confidence, -each.length, each.start, each.kind)):
        at = bisect_left(starts, finding.end)  # later findings cannot overlap it
        if at == 0 or chosen[at - 1].end <= finding.start:
            chosen.insert(at, finding)
            starts.insert(at, finding.start)
    return chosen
