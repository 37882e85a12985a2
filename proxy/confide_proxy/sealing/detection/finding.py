"""A credential in a text: where, of what kind, and how sure that is."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretFinding:
    """A place in a text. It does not hold the value, so that neither its repr nor an error with it can show one.

    Attributes:
        kind: what it is, as `github-token`; the names in docs/secrets.md.
        start, end: the value alone, without the name before it and the quotes around it, in characters of the text.
        confidence: how sure it is, 0 to 1.
        detector: what found it: `token`, `private-key`, `jwt`, `address`, `header`, `login`, `assignment`, `alone`, `entropy` or
            `repeated`.
        prefix: the part of the value that all of its kind begin with, as `ghp_`; "" where there is none.
    """

    kind: str
    start: int
    end: int
    confidence: float
    detector: str
    prefix: str = ""

    @property
    def length(self) -> int:
        """The value's length in characters."""
        return self.end - self.start


def resolved(findings: list[SecretFinding]) -> list[SecretFinding]:
    """Of those that overlap the surest, and of equally sure ones the longest; in the order of the text."""
    chosen: list[SecretFinding] = []
    starts: list[int] = []
    for finding in sorted(findings, key=lambda each: (-each.confidence, -each.length, each.start, each.kind)):
        at = bisect_left(starts, finding.end)  # whatever begins behind its end is none of its business
        if at == 0 or chosen[at - 1].end <= finding.start:
            chosen.insert(at, finding)
            starts.insert(at, finding.start)
    return chosen
