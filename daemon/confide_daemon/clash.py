"""What stands in a text where two versions of the same lines could not be made one.

Plain lines that a person and an agent read alike, that no markdown turns into something else, and that no tool of git's takes for its own.
The document counts as clashing until none of them is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_OURS = "<<<<<<< confide: "
_THEIRS = "======= confide: "
_END = ">>>>>>> confide: two versions of these lines; keep what is right and delete the three marks\n"
# In front matter, where other lines would make the whole of it unreadable.
_COMMENT = "# confide clash, "
_MARKS = re.compile(r"^(?:[<=>]{7} confide: |# confide clash, )", re.MULTILINE)


def marked(ours: Sequence[str], theirs: Sequence[str], names: tuple[str, str]) -> list[str]:
    """Both versions, each below the name of where it comes from."""
    return [f"{_OURS}{names[0]}\n", *ours, f"{_THEIRS}{names[1]}\n", *theirs, _END]


def as_comments(lines: Sequence[str], name: str) -> list[str]:
    """The lines of the version that gave way in front matter."""
    return [f"{_COMMENT}{name}: {line}" for line in lines if line.strip()]


def has_clash(text: str) -> bool:
    """Whether a clash in the text is not resolved yet."""
    return " confide" in text and _MARKS.search(text) is not None
