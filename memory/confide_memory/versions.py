"""Versions of the program, and which of a machine's and its daemon's work together: those that are at most two minor versions apart.

Within that, each does what both know: what the other one does not know is answered `unavailable`, and members that it does not know are
passed over (PROTOCOL.md 9). Beyond it nobody has tried, and both ends say so to people; neither refuses the other.
"""

from __future__ import annotations

import re
from typing import Final

WINDOW: Final = 2
"""Minor versions that a machine and its daemon may be apart, either way."""
UNKNOWN: Final = "does not know that request"
"""How every version's sentence ends that says so, the first one's too."""
SINCE: Final[dict[str, str]] = {}
"""The version that a request came with, where that is not the first one."""

# As PEP 440 writes them; what stands behind the minor version moves nothing.
_FORM: Final = re.compile(r"(\d{1,6})\.(\d{1,6})(?:[.a-z+-][0-9a-z.+-]*)?", re.IGNORECASE)


def parsed(version: str) -> tuple[int, int] | None:
    """Major and minor version; None: it is none."""
    match = _FORM.fullmatch(version)
    return (int(match[1]), int(match[2])) if match else None


def is_behind(version: str, other: str) -> bool:
    """Whether a version is so much older than another that the two are not known to work together; not where one of them is none."""
    ours, theirs = parsed(version), parsed(other)
    if ours is None or theirs is None or ours >= theirs:
        return False
    return ours[0] != theirs[0] or theirs[1] - ours[1] > WINDOW
