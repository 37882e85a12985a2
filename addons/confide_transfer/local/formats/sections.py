"""Cuts markdown into notes: each section below a heading, and each item of a list that stands
alone.

A real parser (markdown-it-py) reads the block structure; the text itself stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_CHARACTERS = 2**20
"""Limit of a text to parse; prose takes 20 ms a megabyte, but a table of one-letter cells several
seconds.
"""
_FEW_WORDS = 3
"""Limit for short items: a list that mostly has shorter ones is one note, not one for each item."""
_TITLE_CHARS = 80
_LINE_CHARS = 500
"""Limit of characters read of a heading or a first line."""
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|\[\[(?:[^\]|]*\|)?([^\]]*)\]\]")
_MARKS = re.compile(r"[*_`~]{1,3}(?=\S)|(?<=\S)[*_`~]{1,3}")
_MARKER = re.compile(r"\s{0,3}[-*+](?:\s{1,4}|$)")
_TASK = re.compile(r"\[([ xX])\]\s+")


@dataclass(frozen=True, slots=True)
class Item:
    """A list item. `text` is its markdown without the marker; `is_done` is True or False for a
    task, and None for any other item.
    """

    text: str
    is_done: bool | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """The text between a heading and the next.

    Attributes:
        headings: from the outermost to its own, as plain words; empty above the first heading.
        text: without the heading; "" if the next heading follows at once.
        items: filled if the text is only an unordered list with items that make sense alone.
    """

    headings: tuple[str, ...]
    text: str
    items: tuple[Item, ...] = ()


def sections(text: str) -> list[Section]:
    """Return the sections in order, also the one above the first heading. Raise ValueError if the
    text is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError("too long")
    tokens = _parser().parse(text)
    lines = text.split("\n")
    heads = [
        (number, token)
        for number, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    found: list[Section] = []
    above: list[tuple[int, str]] = []
    first_line, first_token = 0, 0
    for number, token in heads:
        assert token.map is not None
        found.append(_section(above, lines[first_line : token.map[0]], tokens[first_token:number], first_line))
        level = int(token.tag[1:])
        above = [*(one for one in above if one[0] < level), (level, plain(tokens[number + 1].content))]
        first_line, first_token = token.map[1], number + 3
    found.append(_section(above, lines[first_line:], tokens[first_token:], first_line))
    return [one for one in found if one.headings or one.text]


def plain(markup: str) -> str:
    """Return the beginning of a markdown line without markup."""
    words = _LINK.sub(lambda match: match[1] or match[2] or "", markup[:_LINE_CHARS])
    return " ".join(_MARKS.sub("", words).split())


def title_of(text: str) -> str:
    """Make a title for a text: its bold beginning, its first sentence, or as many words as fit."""
    first = next((line.strip()[:_LINE_CHARS] for line in text.split("\n") if line.strip()), "")
    if bold := re.match(r"(?:\*\*|__)(.{2,78}?)(?:\*\*|__)", first):
        return plain(bold[1]).rstrip(":. ")
    words = plain(first.lstrip("#>-*+ "))
    sentence = re.match(r".{8,78}?(?=[.;:!?](?:\s|$))", words)
    if sentence:
        return sentence[0]
    if len(words) <= _TITLE_CHARS:
        return words
    return words[:_TITLE_CHARS].rsplit(" ", 1)[0].rstrip(",;: ") + "…"


def _section(above: list[tuple[int, str]], lines: list[str], tokens: list[Token], first_line: int) -> Section:
    text = "\n".join(lines).strip("\n").rstrip()
    if not re.search(r"\w", _without_comments(text)):
        text = ""
    items = tuple(_items(tokens, lines, first_line)) if text else ()
    titles = tuple(title for _, title in above if title)
    is_telling = sum(len(item.text.split()) >= _FEW_WORDS for item in items) * 2 > len(items) > 1
    return Section(titles, text, items if is_telling else ())


def _without_comments(text: str) -> str:
    parts: list[str] = []
    start = 0
    # A regular expression would be slow with many comments that start and never end.
    while (opened := text.find("<!--", start)) >= 0 and (closed := text.find("-->", opened)) >= 0:
        parts.append(text[start:opened])
        start = closed + 3
    return "".join([*parts, text[start:]])


def _items(tokens: list[Token], lines: list[str], first_line: int) -> Iterator[Item]:
    outer = [token for token in tokens if token.level == 0 and token.nesting >= 0]
    # The steps of an ordered list belong together, as do a list and the words that introduce it.
    if not outer or any(token.type != "bullet_list_open" for token in outer):
        return
    for token in tokens:
        if token.type == "list_item_open" and token.level == 1 and token.map:
            start, end = (number - first_line for number in token.map)
            text = _without_marker(lines[start:end])
            task = _TASK.match(text)
            text = text[task.end() :] if task else text
            if text.strip():
                yield Item(text, task[1] in "xX" if task else None)


def _without_marker(lines: list[str]) -> str:
    marker = _MARKER.match(lines[0])
    width = marker.end() if marker else 0
    rest = [line[width:] if not line[:width].strip() else line.lstrip() for line in lines[1:]]
    return "\n".join([lines[0][width:], *rest]).strip("\n").rstrip()


@cache
def _parser() -> MarkdownIt:
    # Inline markup is not needed, and its parsing is quadratic in hostile texts.
    return MarkdownIt("commonmark").disable("inline")
