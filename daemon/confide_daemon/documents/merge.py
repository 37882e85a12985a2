"""Three-way merge of two versions of a document, line by line, in pure functions.

If both sides add lines at the same place, both additions are kept without a conflict. The common
case is two devices that append to one log. If both sides changed the same lines, both versions are
kept between conflict markers (`clash`). Differences in style (byte order mark, line ends, end of
the last line) never conflict.

If the merged lines would break the front matter, or lose a change that only one side made, the
front matter is merged field by field. A note with unreadable front matter has neither id nor tags,
so two correct edits must not produce one.

The line merge is diff3 as Khanna, Kunal and Pierce describe it ("A Formal Investigation of Diff3",
2007), built on the standard library's matcher. The library for it, `merge3`, is under the GPL,
which Confide (Apache-2.0) must not impose on those who ship it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from confide_daemon.errors import InvalidTextError
from confide_memory import front_matter
from confide_memory.documents import clash_comments, marked_clash
from confide_memory.markdown_blocks import front_matter_lines, is_item, merged_style, plain, split_keeping_ends

# The matcher's time grows with the square of the differing lines, and faster if they repeat. Above
# this number the text counts as changed throughout: it is another text, not an edit of a note.
MOST_LINES_MATCHED = 8_000


@dataclass(frozen=True, slots=True)
class Region:
    """A section of a merge, as lines in order. `merged_lines` has the result. If both sides changed
    these lines, it has None, and each side's version is given.
    """

    merged_lines: Sequence[str] | None
    ours: Sequence[str] = ()
    theirs: Sequence[str] = ()
    base: Sequence[str] = ()


def regions(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Region]:
    """Merge two texts that both come from `base`, and yield the result section by section, in
    order.
    """
    at_base = at_ours = at_theirs = 0
    for start, ours_start, theirs_start, length in _common_runs(base, ours, theirs):
        mine, incoming = ours[at_ours:ours_start], theirs[at_theirs:theirs_start]
        if mine or incoming:
            yield _resolve(base[at_base:start], mine, incoming)
        if length:
            yield Region(base[start : start + length])
        at_base, at_ours, at_theirs = start + length, ours_start + length, theirs_start + length


def common_lines(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the lines that two texts have in common, in the same order. They serve as an estimate
    of the texts' common ancestor.
    """
    return [line for start, _, length in _matches(one, other) for line in one[start : start + length]]


def _resolve(before: Sequence[str], mine: Sequence[str], incoming: Sequence[str]) -> Region:
    if mine in (before, incoming):
        return Region(incoming)
    if incoming == before:
        return Region(mine)
    return Region(None, mine, incoming, before)


def _common_runs(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start in base, in ours, in theirs, length) of the runs that neither side changed, in
    order, and an empty one at the end.
    """
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
    """Return (start in base, start in other, length) of the runs that both have, in order."""
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
    """Merge the changes of both sides into one text. Where additions of both sides are kept, those
    of `ours` come first.

    Args:
        base: the last version that both sides had; None if they never had one in common.
        ours: the daemon's newest version.
        theirs: the incoming version.
        names: the names of the two versions in conflict markers.
        is_log: True to append texts that have nothing in common to each other, without a conflict.
    """
    if ours == theirs or theirs == base:
        return Merge(ours, clash=False)
    if ours == base:
        return Merge(theirs, clash=False)
    # Without a common version no side has changed line ends: git chose those of a new clone, say.
    style = merged_style(theirs if base is None else base, ours, theirs)
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
        if region.merged_lines is not None:
            merged.extend(region.merged_lines)
            continue
        head, mine, incoming, tail = _apart(region)
        if not is_known and mine and incoming and not _is_list([*mine, *incoming]):
            lines = marked_clash(mine, incoming, names)
            clash = True
        elif _is_blank(region.base) or _is_longer(region, mine, incoming):
            lines = _both(head, mine, incoming)
        elif (added := _with_additions(region)) is not None:
            head, lines, tail = [], added, []
        else:
            lines = marked_clash(mine, incoming, names)
            clash = True
        merged += [*head, *lines, *tail]
    return merged, clash


def _merge_head(base: list[str], ours: list[str], theirs: list[str], *, name: str) -> tuple[list[str], bool]:
    """Merge front matter, in which doubled keys would be unreadable: theirs (the user's edit) wins,
    and our replaced lines stay as comments.
    """
    merged: list[str] = []
    clash = False
    for region in regions(base, ours, theirs):
        if region.merged_lines is not None:
            merged.extend(region.merged_lines)
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
    """Return the lines that both sides begin with, each side's own lines, and the lines that both
    end with.
    """
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
    """Return True if one side's version of the lines contains the other's."""
    return bool(region.ours and region.theirs) and not (mine and incoming)


def _with_additions(region: Region) -> list[str] | None:
    """Return one side's changed lines with the lines that the other side only added before or after
    them; None if it changed more.
    """
    known = list(region.base)
    for one, other in ((region.ours, region.theirs), (region.theirs, region.ours)):
        if list(one[: len(known)]) == known:
            return _both([], list(other), list(one[len(known) :]))
        if list(one[len(one) - len(known) :]) == known:
            return _both([], list(one[: len(one) - len(known)]), list(other))
    return None


def _both(head: list[str], mine: list[str], incoming: list[str]) -> list[str]:
    """Join both sides' lines. Paragraphs that a blank line precedes on both sides (it is in `head`)
    stay separate.
    """
    is_apart = not mine or not incoming or not mine[-1].strip() or not incoming[0].strip()
    is_needed = bool(head) and not head[-1].strip() and not is_apart
    return [*mine, *(["\n"] if is_needed and not (is_item(mine[-1]) and is_item(incoming[0])) else []), *incoming]


def _keys(lines: Sequence[str]) -> set[str]:
    return {found[1] for line in lines if (found := _KEY.match(line))}


def _is_list(lines: Sequence[str]) -> bool:
    """Return True if the lines are list items and their continuation: independent entries, in any
    order.
    """
    return all(is_item(line) or not line.strip() or line[0].isspace() for line in lines)


def _is_blank(lines: Sequence[str]) -> bool:
    return not any(line.strip() for line in lines)


def _by_fields(
    merged: Sequence[str], base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], *, is_clash: bool, name: str
) -> tuple[list[str], bool] | None:
    """Merge front matter by fields: theirs with the changes that only ours made, and our replaced
    values as comments. Of two times of the last change the later one wins.

    Args:
        merged: the result of merging the lines; like the others lines of front matter with both
            fences, "\\\\n" at the end of each, or empty.
        is_clash: the merge of the lines had a conflict.
        name: the name of our version in comments.

    Returns:
        the lines, and True if something of ours was replaced. None if `merged` has all changes that
        only one side made, or if a side is unreadable.
    """
    if not ours or not theirs or list(ours) == list(theirs):
        return None
    one, other, found = (front_matter.parse("".join(lines)) for lines in (ours, theirs, merged))
    if one.problem or other.problem:
        return None
    known = front_matter.parse("".join(base)).fields
    wanted, clashing = _merge_fields(known, one.fields, other.fields, None if found.problem else found.fields)
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
    return _explain_replaced(head, base, ours, has_lost=has_lost, name=name)


def _merge_fields(
    known: Mapping[str, object],
    one: Mapping[str, object],
    other: Mapping[str, object],
    found: Mapping[str, object] | None,
) -> tuple[dict[str, object], list[str]]:
    """Return the value that each field is to have, and the fields that both sides have changed.
    `found`: the fields of the merged lines, None if these are no YAML.
    """
    wanted: dict[str, object] = {}
    clashing: list[str] = []
    for field in {**known, **one, **other}:
        before, mine, incoming = (fields.get(field) for fields in (known, one, other))
        if field == "updated" and isinstance(mine, str) and isinstance(incoming, str):
            wanted[field] = max(mine, incoming)
        elif before not in (mine, incoming) and mine != incoming:
            clashing.append(field)
            # For lists that both sides added to, the merged lines are right.
            wanted[field] = incoming if found is None else found.get(field)
        else:
            wanted[field] = mine if incoming == before else incoming
    return wanted, clashing


def _explain_replaced(
    head: str, base: Sequence[str], ours: Sequence[str], *, has_lost: bool, name: str
) -> tuple[list[str], bool]:
    """Return the lines of a front matter with our replaced lines as comments, and True if there are
    any.
    """
    lines = split_keeping_ends(head)
    gone = [line for line in ours if line not in lines]
    if not has_lost:  # except a user's comments beside the fields
        gone = [line for line in gone if line not in base and line.lstrip().startswith("#")]
    comments = clash_comments(gone, name)
    explained = [*lines[:-1], *comments, lines[-1]]
    again = front_matter.parse("".join(explained))
    is_right = again.problem is None and again.fields == front_matter.parse(head).fields
    return (explained if is_right else lines), has_lost or bool(comments)
