"""Three-way merging by lines: diff3 as Khanna, Kunal and Pierce describe it ("A Formal Investigation of Diff3", 2007).

Our own on the standard library's matcher: the library for it, `merge3`, is under the GPL, and Confide (Apache-2.0) must not make those who
ship it take that on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

# The matcher's time grows with the square of the lines that differ, and worse where they repeat. More than this is no edit of a note but
# another text, and is treated as changed throughout.
MOST_LINES_MATCHED = 8_000


@dataclass(frozen=True, slots=True)
class Region:
    """A run of lines in order: either `merged`, or (where `merged` is None) what each side has in place of the same lines."""

    merged: Sequence[str] | None
    ours: Sequence[str] = ()
    theirs: Sequence[str] = ()
    base: Sequence[str] = ()


def regions(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Region]:
    """The merge of two texts that come from `base`, as a sequence of regions."""
    at_base = at_ours = at_theirs = 0
    for start, ours_start, theirs_start, length in _unchanged_in_both(base, ours, theirs):
        mine, incoming = ours[at_ours:ours_start], theirs[at_theirs:theirs_start]
        if mine or incoming:
            yield _resolved(base[at_base:start], mine, incoming)
        if length:
            yield Region(base[start : start + length])
        at_base, at_ours, at_theirs = start + length, ours_start + length, theirs_start + length


def common_lines(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """The lines that both texts have in the same order: what they come from, as far as that shows."""
    return [line for start, _, length in _matches(one, other) for line in one[start : start + length]]


def _resolved(before: Sequence[str], mine: Sequence[str], incoming: Sequence[str]) -> Region:
    if mine in (before, incoming):
        return Region(incoming)
    if incoming == before:
        return Region(mine)
    return Region(None, mine, incoming, before)


def _unchanged_in_both(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[tuple[int, int, int, int]]:
    """(start in base, in ours, in theirs, length) of what neither side touched, in order, and an empty one at the end."""
    left, right = _matches(base, ours), _matches(base, theirs)
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        start, end = max(a[0], b[0]), min(a[0] + a[2], b[0] + b[2])
        if start < end:
            yield start, a[1] + start - a[0], b[1] + start - b[0], end - start
        if a[0] + a[2] <= b[0] + b[2]:
            i += 1
        else:
            j += 1
    yield len(base), len(ours), len(theirs), 0


def _matches(base: Sequence[str], other: Sequence[str]) -> list[tuple[int, int, int]]:
    """(start in base, start in other, length) of the runs that both have, in order."""
    shorter = min(len(base), len(other))
    head = 0
    while head < shorter and base[head] == other[head]:
        head += 1
    tail = 0
    while tail < shorter - head and base[-1 - tail] == other[-1 - tail]:
        tail += 1
    found = [(0, 0, head)]
    inner, changed = base[head : len(base) - tail], other[head : len(other) - tail]
    if inner and changed and max(len(inner), len(changed)) <= MOST_LINES_MATCHED:
        blocks = SequenceMatcher(None, inner, changed, autojunk=False).get_matching_blocks()
        found += [(head + block.a, head + block.b, block.size) for block in blocks]
    found.append((len(base) - tail, len(other) - tail, tail))
    return [block for block in found if block[2]]
