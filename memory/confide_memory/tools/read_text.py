"""The part of a document that `memory_read` shows to a model, limited in lines and characters.

Clients write a longer result to a file and show their model only its beginning. If the lines are
long, the model would then read little and not know where to continue. Programs request the
structured result, which has all the lines that they ask for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

PAGE_CHARS: Final = 20_000
"""Some 5,000 tokens."""
_PLACE: Final = re.compile(r"(.+\.md):([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?")


class TextPart(NamedTuple):
    """A part of a document.

    Attributes:
        text: the lines of the part, or a piece of a single line that is too long.
        told: a description of the part: which lines of how many, and where to continue.
    """

    text: str
    told: str


def page(lines: Sequence[str], shown: Sequence[str], first: int, at: int = 1) -> TextPart:
    """Return as much of a document as fits into one answer.

    Args:
        lines: all lines of the document.
        shown: the lines to show.
        first: the number of the first line in `shown`, from 1.
        at: the character of that line at which `shown` begins, from 1.
    """
    total, count, size = len(lines), 0, 0
    for line in shown:
        if count and size + len(line) > PAGE_CHARS:
            break
        size += len(line) + 1
        count += 1
    last = first + count - 1
    if shown and len(shown[0]) > PAGE_CHARS:
        end = at + PAGE_CHARS - 1
        message = f"line {first} of {total}, characters {at}-{end} of {at + len(shown[0]) - 1}"
        return TextPart(shown[0][:PAGE_CHARS], f"{message}; more with fromLine {first}, fromChar {end + 1}")
    more = f"; {total - last} more after line {last}" if last < total else ""
    return TextPart("\n".join(shown[:count]), f"lines {first}-{last} of {total}{more}")


def with_lines_split(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a read with lines split from the path. Search results give locations
    as `memory/plan.md:3-7`, which is split into path and lines.
    """
    match = _PLACE.fullmatch(arguments["path"])
    if match is None:
        return dict(arguments)
    first = int(match[2])
    asked = {"fromLine": first, **({"lines": max(1, int(match[3]) - first + 1)} if match[3] else {})}
    return {**arguments, **asked, "path": match[1]}
