"""Program versions, and which versions of a device and its daemon work together: those at most two
minor versions apart.

Within that window, each end does what both know: it answers `unavailable` to requests that it does
not know, and ignores unknown fields (PROTOCOL.md 9). Larger distances are untested; both ends
report them to users, and neither refuses the other.
"""

from __future__ import annotations

import re
from typing import Final

WINDOW: Final = 2
"""Minor versions by which a device and its daemon may differ, in either direction."""
UNKNOWN: Final = "does not know that request"
"""The end of every daemon's message about a request that it does not know, the first version's
included.
"""
SINCE: Final[dict[str, str]] = {}
"""The version that introduced a request, for requests later than the first version."""

# Versions as in PEP 440; the text after the minor version does not count.
_FORM: Final = re.compile(r"(\d{1,6})\.(\d{1,6})(?:[.a-z+-][0-9a-z.+-]*)?", re.IGNORECASE)


def parse_version(version: str) -> tuple[int, int] | None:
    """Return the major and the minor version; None if the text is not a version."""
    match = _FORM.fullmatch(version)
    return (int(match[1]), int(match[2])) if match else None


def is_behind(version: str, other: str) -> bool:
    """Return True if `version` is so much older than `other` that the two are not supported
    together. False if either is not a valid version.
    """
    ours, theirs = parse_version(version), parse_version(other)
    if ours is None or theirs is None or ours >= theirs:
        return False
    return ours[0] != theirs[0] or theirs[1] - ours[1] > WINDOW
