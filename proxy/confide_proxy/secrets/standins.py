"""Findings beside what stands in the place of a credential, `(sealed:…)` or `(redacted:…)`: no rule shall find one (PROTOCOL.md 10.4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from confide_crypto.sealing.placeholders import STANDIN

if TYPE_CHECKING:
    from confide_proxy.secrets.finding import Finding


def outside(text: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Those that touch no stand-in: `password=(sealed:…)` is sealed already."""
    standing = [found.span() for found in STANDIN.finditer(text)]
    ends = [stop for _, stop in standing]
    for finding in findings:
        behind = bisect_right(ends, finding.start)
        if behind == len(standing) or standing[behind][0] >= finding.end:
            yield finding
