"""Where the parts of a markdown text begin, by a real parser (markdown-it-py): headings, paragraphs, list items, fences, table rows.

Only block structure is read; inline markup is left alone. Line numbers are counted from 0 here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt

from confide_daemon.documents import front_matter_lines

# Texts longer than this, or with longer lines, are cut by lines alone: parsing takes about a second for each megabyte, and the parser's
# worst cases (deeply nested quotes) grow faster than the text.
PARSE_CHARACTERS = 1_000_000


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
    lines = text.split("\n")
    front = front_matter_lines(lines)
    blocks = [Block(0, "front")] if front else []
    headings: list[Heading] = []
    if len(text) > PARSE_CHARACTERS:
        return blocks, headings
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


def headings(text: str) -> Iterator[Heading]:
    """The headings of the text, in order."""
    yield from structure(text)[1]
