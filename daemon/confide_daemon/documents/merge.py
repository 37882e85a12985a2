"""Two versions of a document made one, by lines. Pure functions.

What both sides added at the same place is kept from both and is no clash: two machines that append to one log are the everyday case. Where
both changed the same lines, both versions are kept between marks (`clash`). How a text is written apart from its lines never clashes.

Where lines put together break front matter, or lose what one side alone changed, it is made one by its fields: a note whose front matter
cannot be read has neither its id nor its tags, so this must not come of two edits that each were right.

By lines it is diff3 as Khanna, Kunal and Pierce describe it ("A Formal Investigation of Diff3", 2007). Our own on the standard library's
matcher: the library for it, `merge3`, is under the GPL, and Confide (Apache-2.0) must not make those who ship it take that on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from confide_daemon.errors import InvalidTextError
from confide_memory import front_matter
from confide_memory.documents import clash_comments, marked_clash
from confide_memory.markdown_blocks import front_matter_lines, is_item, merged_style, plain, split_keeping_ends

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


_KEY = re.compile(r"([^\s#:][^:]*):")


@dataclass(frozen=True, slots=True)
class Merge:
    text: str
    clash: bool  # both sides changed the same lines


def merge_texts(
    base: str | None, ours: str, theirs: str, *, names: tuple[str, str] = ("here", "incoming"), is_log: bool = False
) -> Merge:
    """Both sides' changes in one text, ours first where both stay.

    Args:
        base: the last version both had; None when they never had one in common.
        ours: the daemon's newest.
        theirs: what came in.
        names: what a clash calls the two.
        is_log: texts that have nothing in common are one after the other, and no clash.
    """
    if ours == theirs or theirs == base:
        return Merge(ours, clash=False)
    if ours == base:
        return Merge(theirs, clash=False)
    style = merged_style(base or "", ours, theirs)
    mine, incoming = split_keeping_ends(plain(ours)), split_keeping_ends(plain(theirs))
    is_known = base is not None or is_log
    known = split_keeping_ends(plain(base or "")) if is_known else common_lines(mine, incoming)
    parts = (known, mine, incoming)
    heads = [front_matter_lines(lines) for lines in parts]
    tops = [lines[:n] for lines, n in zip(parts, heads, strict=True)]
    head, head_clash = _merge_head(*tops, name=names[0])
    head, head_clash = _by_fields(head, *tops, is_clash=head_clash, name=names[0]) or (head, head_clash)
    rest = (lines[n:] for lines, n in zip(parts, heads, strict=True))
    body, body_clash = _merge_body(*rest, names=names, is_known=is_known)
    return Merge(style.apply("".join(head + body)), head_clash or body_clash)


def _merge_body(
    base: list[str], ours: list[str], theirs: list[str], *, names: tuple[str, str], is_known: bool
) -> tuple[list[str], bool]:
    merged: list[str] = []
    clash = False
    for region in regions(base, ours, theirs):
        if region.merged is not None:
            merged.extend(region.merged)
            continue
        head, mine, incoming, tail = _apart(region)
        if not is_known and mine and incoming and not _is_list([*mine, *incoming]):
            lines = marked_clash(mine, incoming, names)
            clash = True
        elif _is_blank(region.base) or _is_longer(region, mine, incoming):
            lines = _both(head, mine, incoming)
        elif (added := _only_added(region)) is not None:
            head, lines, tail = [], added, []
        else:
            lines = marked_clash(mine, incoming, names)
            clash = True
        merged += [*head, *lines, *tail]
    return merged, clash


def _merge_head(base: list[str], ours: list[str], theirs: list[str], *, name: str) -> tuple[list[str], bool]:
    """Front matter, where doubled keys would be unreadable: theirs (the person's edit) wins, what gave way stays as comments."""
    merged: list[str] = []
    clash = False
    for region in regions(base, ours, theirs):
        if region.merged is not None:
            merged.extend(region.merged)
            continue
        head, mine, incoming, tail = _apart(region)
        if not mine or (_is_blank(region.base) and not _keys(mine) & _keys(incoming)):
            merged += [*head, *mine, *incoming, *tail]
        else:
            comments = clash_comments(mine, name)
            merged += [*head, *incoming, *comments, *tail]
            clash = clash or bool(comments)
    return merged, clash


def _apart(region: Region) -> tuple[list[str], list[str], list[str], list[str]]:
    """What both sides begin with, what each has of its own, and what both end with."""
    mine, incoming = list(region.ours), list(region.theirs)
    start = 0
    while start < min(len(mine), len(incoming)) and mine[start] == incoming[start]:
        start += 1
    head, mine, incoming = mine[:start], mine[start:], incoming[start:]
    tail: list[str] = []
    while mine and incoming and mine[-1] == incoming[-1]:
        tail.insert(0, mine.pop())
        incoming.pop()
    return head, mine, incoming, tail


def _is_longer(region: Region, mine: list[str], incoming: list[str]) -> bool:
    """Whether both made the same of the lines, and one of them more."""
    return bool(region.ours and region.theirs) and not (mine and incoming)


def _only_added(region: Region) -> list[str] | None:
    """The lines as one side changed them and what the other one only added before or behind; None where it did more than that."""
    known = list(region.base)
    for one, other in ((region.ours, region.theirs), (region.theirs, region.ours)):
        if list(one[: len(known)]) == known:
            return _both([], list(other), list(one[len(known) :]))
        if list(one[len(one) - len(known) :]) == known:
            return _both([], list(one[: len(one) - len(known)]), list(other))
    return None


def _both(head: list[str], mine: list[str], incoming: list[str]) -> list[str]:
    """One after the other: paragraphs that a blank line led in on both sides (`head` has it) do not become one."""
    is_apart = not mine or not incoming or not mine[-1].strip() or not incoming[0].strip()
    is_needed = bool(head) and not head[-1].strip() and not is_apart
    return [*mine, *(["\n"] if is_needed and not (is_item(mine[-1]) and is_item(incoming[0])) else []), *incoming]


def _keys(lines: Sequence[str]) -> set[str]:
    return {found[1] for line in lines if (found := _KEY.match(line))}


def _is_list(lines: Sequence[str]) -> bool:
    """Whether the lines are list items and what belongs to them: entries that stand for themselves, in whatever order."""
    return all(is_item(line) or not line.strip() or line[0].isspace() for line in lines)


def _is_blank(lines: Sequence[str]) -> bool:
    return not any(line.strip() for line in lines)


def _by_fields(
    merged: Sequence[str], base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], *, is_clash: bool, name: str
) -> tuple[list[str], bool] | None:
    """Theirs with what ours alone changed, and as comments what gave way. Of two times of the last change the later one is right.

    Args:
        merged: what came of their lines; like the others lines of front matter with both fences, "\\n" at the end of each, or none at all.
        is_clash: something gave way in it.
        name: what the comments call ours.

    Returns:
        the lines, and whether something of ours gave way. None where `merged` has all that one side alone changed, or where one of the
        two sides does not read.
    """
    if not ours or not theirs or list(ours) == list(theirs):
        return None
    one, other, found = (front_matter.parse("".join(lines)) for lines in (ours, theirs, merged))
    if one.problem or other.problem:
        return None
    known = front_matter.parse("".join(base)).fields
    wanted, clashing = _wanted(known, one.fields, other.fields, None if found.problem else found.fields)
    if (
        (clashing or not is_clash)
        and not found.problem
        and all(found.fields.get(field) == value for field, value in wanted.items())
    ):
        return None
    has_lost = any(wanted[field] != one.fields.get(field) for field in clashing)
    try:
        head = front_matter.edit("".join(theirs), wanted)
    except (front_matter.FrontMatterError, InvalidTextError):
        head, has_lost = "".join(theirs), True
    return _explained(head, base, ours, has_lost=has_lost, name=name)


def _wanted(
    known: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any], found: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """What each field is to hold, and those that both sides have changed. `found`: of the merged lines, None where these are no YAML."""
    wanted: dict[str, Any] = {}
    clashing: list[str] = []
    for field in {**known, **one, **other}:
        before, mine, incoming = (fields.get(field) for fields in (known, one, other))
        if field == "updated" and isinstance(mine, str) and isinstance(incoming, str):
            wanted[field] = max(mine, incoming)
        elif before not in (mine, incoming) and mine != incoming:
            clashing.append(field)
            # Two lists that were both added to.
            wanted[field] = incoming if found is None else found.get(field)
        else:
            wanted[field] = mine if incoming == before else incoming
    return wanted, clashing


def _explained(
    head: str, base: Sequence[str], ours: Sequence[str], *, has_lost: bool, name: str
) -> tuple[list[str], bool]:
    """The lines of a front matter with what gave way in it as comments, and whether anything of ours did."""
    lines = split_keeping_ends(head)
    gone = [line for line in ours if line not in lines]
    if not has_lost:  # but what a person says to others beside the fields
        gone = [line for line in gone if line not in base and line.lstrip().startswith("#")]
    comments = clash_comments(gone, name)
    explained = [*lines[:-1], *comments, lines[-1]]
    again = front_matter.parse("".join(explained))
    is_right = again.problem is None and again.fields == front_matter.parse(head).fields
    return (explained if is_right else lines), has_lost or bool(comments)
