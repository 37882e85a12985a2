"""What stands in a text in the place of a credential: `(sealed:…)` and `(redacted:…)` (PROTOCOL.md 10.4). No rule shall find one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from confide_crypto.sealing.records import KIND_PATTERN

if TYPE_CHECKING:
    from confide_proxy.secrets.finding import Finding

STANDIN: Final = re.compile(rf"\((?:sealed:{KIND_PATTERN}:[0-9a-f]{{32}}|redacted:{KIND_PATTERN}:[0-9a-f]{{24}})\)")


def outside(text: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Those that touch no stand-in: `password=(sealed:…)` is sealed already."""
    standing = [found.span() for found in STANDIN.finditer(text)]
    ends = [stop for _, stop in standing]
    for finding in findings:
        behind = bisect_right(ends, finding.start)
        if behind == len(standing) or standing[behind][0] >= finding.end:
            yield finding
