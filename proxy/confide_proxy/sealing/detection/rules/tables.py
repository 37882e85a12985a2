"""Values under a heading that indicates a credential: a column of a Markdown table or of CSV, or a
list under a plural name.

The heading is searched first, like any other name (`prefilter`). Then each row is read once, as
long as the rows have the same form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.key_names import Demand, Promise, promise_of
from confide_proxy.sealing.detection.plausibility import Context, is_unmistakable, judge_value
from confide_proxy.sealing.detection.prefilter import NAME_MARKS, compile_once, places
from confide_proxy.sealing.detection.rules.assignments import begin_of

_MOST_CELLS: Final = 64
_LONGEST_LINE: Final = 4096
_LONGEST_HEAD: Final = 40
_RULE: Final = r"[ \t>]*\|?[ \t]*:?-{2,}[-:| \t]*$"
"""The line below the head of a Markdown table."""
_SEPARATORS: Final = (",", ";", "\t")
_HEAD: Final = r"[^\W\d][\w -]*$"
_AROUND: Final = " \t`*_\"'"
_LIST: Final = (
    r"[\w-]{0,40}+[\"'`*]{0,4}[ \t]{0,4}(?:=>|:=|:|=)[ \t]{0,4}\*{0,2}"
    r"(?:(?P<inline>\[)|[ \t]*(?:\r?\n[ \t>]*){1,2}(?=(?:[-*+]|\d{1,3}[.)])[ \t]))"
)
_BULLET: Final = (
    r"(?:(?:[-*+]|\d{1,3}[.)])[ \t]{1,4})([`\"']?)([^\s`\"']{1,512})\1[,;.]?[ \t]*(?:#[^\n]*)?(?:\r?\n[ \t>]*|$)"
)
_ITEM: Final = r"[\s,]{0,40}(?:([\"'`])((?:(?!\1)[^\n\\]|\\.){1,512})\1|([^\s,\"'`\[\]{}()]{1,512}))"
_MARKS: Final = ("**", "`", '"', "'")
_QUOTES: Final = "`\"'"
_MOST_ITEMS: Final = 256
_OWN: Final = "pair"


class _Head(NamedTuple):
    column: int
    name: str
    promise: Promise


def find(text: str, lowered: str) -> Iterator[SecretFinding]:
    """Yield each credential in a table column or list whose heading indicates credentials.
    `lowered` is the text in lower case with the same positions.
    """
    behind = 0
    # End of the list items already read, by promise: an item of one list may be the name of
    # another.
    listed: dict[Promise, int] = {}
    for at in sorted(at for mark in NAME_MARKS for at in places(lowered, mark)):
        yield from _in_list(text, lowered, at, listed)
        if at < behind:
            continue
        start = text.rfind("\n", max(0, at - _LONGEST_LINE), at) + 1
        end = text.find("\n", at, at + _LONGEST_LINE)
        if end < 0:
            continue  # no row stands below
        found, behind = _columns(text, start, end)
        yield from found


def _columns(text: str, start: int, end: int) -> tuple[list[SecretFinding], int]:
    """Return the findings below the head that this line may be, and the end of what was read."""
    line = text[start:end].rstrip("\r")
    following = _line(text, end + 1)
    if "|" in line and compile_once(_RULE).match(following):
        separator, begin = "|", end + 1 + len(following) + 1
    else:
        separator = max(_SEPARATORS, key=line.count)
        begin = end + 1
        if not line.count(separator) or len(_cells(line, separator)) != len(_cells(following, separator)):
            return [], end
    cells = _cells(line, separator)
    names = [line[first:last].strip(_AROUND) for first, last in cells]
    if separator != "|" and not all(len(name) <= _LONGEST_HEAD and compile_once(_HEAD).match(name) for name in names):
        return [], end
    heads = [_Head(place, name, promise) for place, name in enumerate(names) if (promise := _promise(name))]
    found: list[SecretFinding] = []
    while heads and begin < len(text):
        row = _line(text, begin)
        spans = _cells(row, separator)
        if len(spans) != len(cells) or not row.strip() or len(row) == _LONGEST_LINE:
            break
        for head in heads:
            first, last = _bare(row, *spans[head.column])
            is_quoted = (first, last) != spans[head.column] and row[max(0, first - 1)] in _QUOTES
            if sure := _judge(row[first:last], head.name, head.promise, is_quoted=is_quoted):
                found.append(SecretFinding(sure[0], begin + first, begin + last, sure[1], "assignment"))
        begin += len(row) + 1
    return found, max(end, begin - 1) if heads else end


def _bare(row: str, first: int, last: int) -> tuple[int, int]:
    """Return the span of a cell's value without surrounding blanks and markup."""
    while first < last and row[first] in " \t":
        first += 1
    while last > first and row[last - 1] in " \t\r":
        last -= 1
    for mark in _MARKS:
        if last - first > 2 * len(mark) and row.startswith(mark, first) and row.endswith(mark, first, last):
            first, last = first + len(mark), last - len(mark)
    return first, last


def _line(text: str, at: int) -> str:
    end = text.find("\n", at)
    return text[at : end if end >= 0 else len(text)][:_LONGEST_LINE]


def _cells(line: str, separator: str) -> list[tuple[int, int]]:
    """Return the spans of a line's cells, without a table's outer bars. A separator in quotes
    doesn't separate.
    """
    spans: list[tuple[int, int]] = []
    at, end = 0, len(line.rstrip())
    if separator == "|":
        at = len(line) - len(line.lstrip(" \t>"))
        at += line.startswith("|", at)
        end -= line.endswith("|", 0, end) and end > at
    while len(spans) < _MOST_CELLS:
        stop = at
        while stop < end and line[stop] in " \t" and line[stop] != separator:
            stop += 1
        if separator != "|" and stop < end and line[stop] == '"':
            stop = line.find('"', stop + 1, end)
            stop = end if stop < 0 else stop
        elif separator == "|" and line.startswith("`", stop) and (close := line.find("`", stop + 1, end)) > 0:
            stop = close
        stop = line.find(separator, stop, end)
        spans.append((at, stop if stop >= 0 else end))
        if stop < 0:
            break
        at = stop + 1
    return spans


def _promise(name: str) -> Promise | None:
    """Return the promise of a head such as `DB Password`, `apiKey` or `x-api-key`, also in the
    plural.
    """
    joined = "_".join(name.split())
    return promise_of(joined) or (promise_of(joined[:-1]) if joined[-1:] in ("s", "S") else None)


def _in_list(text: str, lowered: str, at: int, read: dict[Promise, int]) -> Iterator[SecretFinding]:
    """Yield the credentials of a list under the name at this position.

    `read` maps each promise to the end of the items already read under it.
    """
    match = compile_once(_LIST).match(lowered, at)
    if match is None:
        return
    begin = begin_of(text, lowered, at)
    name = text[begin : compile_once(r"[\w-]{0,40}+").match(text, at).end()]  # type: ignore[union-attr]
    promise = _promise(name)
    if promise is None or at < read.get(promise, 0):
        return
    place, groups = match.end(), ((2,), (2, 3))[match["inline"] is not None]
    for _ in range(_MOST_ITEMS):
        item = compile_once(_ITEM if match["inline"] else _BULLET).match(text, place)
        if item is None:
            return
        group = next(one for one in groups if item[one] is not None)
        if found := _judge(item[group], name, promise, is_quoted=bool(item[1])):
            yield SecretFinding(found[0], *item.span(group), found[1], "assignment")
        place = read[promise] = item.end()


def _judge(value: str, name: str, promise: Promise, *, is_quoted: bool) -> tuple[str, float] | None:
    context = Context(_OWN, is_quoted, is_line=True)
    if promise.demand is Demand.PASSWORD:
        name = "password"  # "pass" alone says less elsewhere, as in "PASS: 3 of 4"
    if found := judge_value(value, name, promise, context):
        return found
    # Under such a head, values too short for a generated key count too if they are distinctive.
    if promise.demand is Demand.RANDOM and is_unmistakable(value):
        return judge_value(value, name, replace(promise, demand=Demand.PASSWORD), context)
    return None
