"""Where the parts of a markdown text begin, by a real parser (markdown-it-py): headings, paragraphs, list items, fences, table rows.

Only block structure is read; inline markup is left alone. Line numbers are counted from 0 here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt

from confide_daemon.documents import front_matter_lines
from confide_daemon.line_ends import MARK

# Longer texts are read line by line for `#` headings and blank lines alone. Prose parses in 20 ms a megabyte, but a table of one-letter
# cells in 9 s, and the writer of the space waits for it.
PARSE_CHARACTERS = 400_000


FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]#+)?\s*$")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading and the line it begins on."""

    line: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Block:
    """The first line of a part, and what kind of part it is."""

    line: int
    kind: str  # heading, paragraph, item, fence, row, front, other


# Our names for the parser's tokens; everything else starts no part of its own.
KINDS = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "list_item_open": "item",
    "fence": "fence",
    "code_block": "fence",
    "tr_open": "row",
    "html_block": "other",
    "hr": "other",
    "blockquote_open": "other",
}


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.disable("inline", ignoreInvalid=True)
    return parser


def structure(text: str) -> tuple[list[Block], list[Heading]]:
    """The parts and the headings of the text, in order; front matter is one part and holds neither."""
    lines = text.removeprefix(MARK).split("\n")
    front = front_matter_lines(lines)
    blocks = [Block(0, "front")] if front else []
    headings: list[Heading] = []
    if len(text) > PARSE_CHARACTERS:
        headings = list(_plain_headings(lines, front))
        return blocks + [Block(heading.line, "heading") for heading in headings], headings
    # The parser takes a lone carriage return for a line end; lines here end in \n only.
    body = "\n" * front + "\n".join(lines[front:]).replace("\r\n", "\n").replace("\r", " ")
    tokens = _parser().parse(body)
    seen = set()
    for index, token in enumerate(tokens):
        kind = KINDS.get(token.type)
        if kind is None or token.map is None:
            continue
        line = token.map[0]
        if kind == "heading":
            headings.append(Heading(line, int(token.tag[1:]), tokens[index + 1].content.strip()))
        # An item and its first paragraph begin on the same line: the outer one names the part.
        if line not in seen:
            seen.add(line)
            blocks.append(Block(line, kind))
    return blocks, headings


def _plain_headings(lines: list[str], front: int) -> Iterator[Heading]:
    fence = ""
    for number, line in enumerate(lines[front:], front):
        if mark := FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not fence and (found := HEADING.match(line)):
            yield Heading(number, len(found[1]), found[2].strip())


def headings(text: str) -> Iterator[Heading]:
    """The headings of the text, in order."""
    yield from structure(text)[1]
