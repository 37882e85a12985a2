"""What stands in a text where two versions of the same lines could not be made one.

Plain lines that a person and an agent read alike, that no markdown turns into something else, and that no tool of git's takes for its own.
The document counts as clashing until none of them is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_OURS = "<<<<<<< confide: "
_THEIRS = "======= confide: "
_END = ">>>>>>> confide: these versions differ; keep what is right and delete the marks\n"
# In front matter, where other lines would make the whole of it unreadable.
_COMMENT = "# confide clash, "
_MARKS = re.compile(r"^(?:[<=>]{7} confide: |# confide clash, )", re.MULTILINE)


def marked(ours: Sequence[str], theirs: Sequence[str], names: tuple[str, str]) -> list[str]:
    """Both versions, each below the name of where it comes from.

    Where ours are the versions of a clash already, theirs is one more of them, in place of an older one of the same author: a machine that
    has not seen the marks yet, or keeps its file without them, must not pile up its own versions.
    """
    versions = _versions(ours) or [(names[0], list(ours))]
    if any(lines == list(theirs) for _, lines in versions):
        return list(ours)
    if len(versions) > 1:
        others = [version for version in versions if _author(version[0]) != _author(names[1])]
        versions = others or versions[:1]
    (first, lines), *rest = [*versions, (names[1], list(theirs))]
    text = [f"{_OURS}{first}\n", *lines]
    for name, lines in rest:
        text += [f"{_THEIRS}{name}\n", *lines]
    return [*text, _END]


def _versions(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The versions between the marks, with their names; none where the lines are not one clash from its first mark to its last."""
    if len(lines) < 3 or not lines[0].startswith(_OURS) or lines[-1] != _END or _END in lines[:-1]:
        return []
    found: list[tuple[str, list[str]]] = []
    for line in lines[:-1]:
        mark = next((mark for mark in (_OURS, _THEIRS) if line.startswith(mark)), None)
        if mark is not None:
            found.append((line.removeprefix(mark).rstrip("\n"), []))
        else:
            found[-1][1].append(line)
    return found


def as_comments(lines: Sequence[str], name: str) -> list[str]:
    """The lines of the version that gave way in front matter, in place of what its author had there before."""
    older = f"{_COMMENT}{_author(name)}, "
    kept = [line for line in lines if line.strip() and not line.startswith(older)]
    return [line if line.startswith(_COMMENT) else f"{_COMMENT}{name}: {line}" for line in kept]


def _author(name: str) -> str:
    return name.rpartition(", revision ")[0] or name


def has_clash(text: str) -> bool:
    """Whether a clash in the text is not resolved yet."""
    return " confide" in text and _MARKS.search(text) is not None
