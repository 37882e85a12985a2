"""Markdown as far as this side needs it while the daemon is away: headings, small pieces to search, and what a store makes of a text.

The daemon reads the same with a real parser, and its reading is the one that lasts; here `#` headings, fences and blank lines are enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

PIECE_CHARS: Final = 320
"""About 80 tokens, as the daemon's pieces: small ones say what they are found for, and little else."""
MAX_PIECE_CHARS: Final = 1200
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]#+)?\s*$")
_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s")
_ASKED = re.compile(r"\s*(#{1,6})\s+(.*)")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading, and the line it is on, counted from 0."""

    line: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines of a text, counted from 1, both ends included; `heading` is "Outer > Inner"."""

    start_line: int
    end_line: int
    text: str
    heading: str


def lines_of(text: str) -> list[str]:
    """The lines; only "\\n" ends one, as in the daemon's count."""
    return text.removesuffix("\n").split("\n") if text else []


def headings(lines: list[str]) -> Iterator[Heading]:
    """The headings outside of fences, in order."""
    fence = ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not fence and (found := _HEADING.match(line)):
            yield Heading(number, len(found[1]), found[2].strip())


def cut(text: str) -> Iterator[Piece]:
    """Small pieces in order: a heading begins one, and so does a paragraph or an item that does not fit any more."""
    lines = lines_of(text)
    at = {heading.line: heading for heading in headings(lines)}
    stack: list[Heading] = []
    path, first, size = "", 0, 0
    has_text = False  # a heading alone would be found without saying anything

    def piece(end: int) -> Iterator[Piece]:
        yield from _pieces(lines, first, end, path)

    for number, line in enumerate(lines):
        heading = at.get(number)
        is_start = not line.strip() or _ITEM.match(line) is not None
        if (heading and has_text) or (size >= PIECE_CHARS and is_start) or size >= MAX_PIECE_CHARS:
            yield from piece(number)
            first, size, has_text = number, 0, False
        if heading:
            stack = [*(above for above in stack if above.level < heading.level), heading]
            path = " > ".join(above.title for above in stack if above.title)
        elif line.strip():
            has_text = True
        size += len(line) + 1
    yield from piece(len(lines))


def appended(text: str, addition: str, heading: str | None) -> str:
    """The text with the addition at its end, or at the end of the section, which is made where it is missing."""
    lines, added = lines_of(text), lines_of(addition.strip("\n"))
    section = _section(lines, heading) if heading else None
    if section is None:
        title = [_heading_line(heading), "", *added] if heading else added
        return _text(_joined(lines, title))
    start, end = section
    return _text([*lines[:start], *_joined(lines[start:end], added), *_spaced(lines[end:])])


def replaced(text: str, content: str, heading: str | None) -> str:
    """The text with the whole or one section replaced; as it was where there is no such section."""
    if heading is None:
        return content if content.endswith("\n") or not content else content + "\n"
    lines = lines_of(text)
    section = _section(lines, heading)
    if section is None:
        return text
    start, end = section
    return _text([*lines[: start + 1], "", *lines_of(content.strip("\n")), *_spaced(lines[end:])])


def _pieces(lines: list[str], first: int, end: int, heading: str) -> Iterator[Piece]:
    while first < end and not lines[first].strip():
        first += 1
    while end > first and not lines[end - 1].strip():
        end -= 1
    body = "\n".join(lines[first:end])
    # One line may be a whole minified file: it is shown in slices.
    for offset in range(0, len(body), MAX_PIECE_CHARS * 2):
        yield Piece(first + 1, end, body[offset : offset + MAX_PIECE_CHARS * 2], heading)


def _section(lines: list[str], heading: str) -> tuple[int, int] | None:
    asked = _ASKED.match(heading)
    level = len(asked[1]) if asked else None
    words = _plain(asked[2] if asked else heading)
    found = list(headings(lines))
    for index, one in enumerate(found):
        if _plain(one.title) == words and level in (None, one.level):
            later = (other.line for other in found[index + 1 :] if other.level <= one.level)
            return one.line, next(later, len(lines))
    return None


def _joined(before: list[str], added: list[str]) -> list[str]:
    while before and not before[-1].strip():
        before = before[:-1]
    if not before:
        return added
    both_items = added and _ITEM.match(before[-1]) and _ITEM.match(added[0])
    return [*before, *added] if both_items else [*before, "", *added]


def _spaced(after: list[str]) -> list[str]:
    return ["", *after] if after and after[0].strip() else after


def _heading_line(heading: str) -> str:
    words = heading.strip()
    return words if re.match(r"#{1,6}\s", words) else f"## {words}"


def _plain(title: str) -> str:
    return " ".join(title.strip().strip("#").split()).casefold()


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n" if lines else ""
