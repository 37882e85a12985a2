"""Where the parts of a markdown text begin, what a change of one section makes of it, how its lines end, and whether it is to be sealed.

Read by a real parser (markdown-it-py): headings, paragraphs, list items, fences, table rows; inline markup is left alone. A machine that
answers for the daemon reads line by line instead (`line_headings`), which imports nothing and is enough there: the daemon's reading is the
one that lasts. Line numbers are counted from 0 here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

import yaml

from confide_memory.errors import NotFoundError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MARK = "\ufeff"
"""A byte order mark."""

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
class HeadingBlock:
    """The first line of a part, and what kind of part it is."""

    line: int
    kind: str  # heading, paragraph, item, fence, row, front, other


Reading = Callable[[str], Sequence[Heading]]
"""A way to find the headings of a text: `headings` or `line_headings`."""

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
    from markdown_it import MarkdownIt  # the daemon's; the base install has none

    parser = MarkdownIt("commonmark").enable("table")
    parser.disable("inline", ignoreInvalid=True)
    return parser


def structure(text: str) -> tuple[list[HeadingBlock], list[Heading]]:
    """The parts and the headings of the text, in order; front matter is one part and holds neither."""
    lines = text.removeprefix(MARK).split("\n")
    front = front_matter_lines(lines)
    blocks = [HeadingBlock(0, "front")] if front else []
    found: list[Heading] = []
    if len(text) > PARSE_CHARACTERS:
        found = list(_headings_by_line(lines, front))
        return blocks + [HeadingBlock(heading.line, "heading") for heading in found], found
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
            found.append(Heading(line, int(token.tag[1:]), tokens[index + 1].content.strip()))
        # An item and its first paragraph begin on the same line: the outer one names the part.
        if line not in seen:
            seen.add(line)
            blocks.append(HeadingBlock(line, kind))
    return blocks, found


def headings(text: str) -> list[Heading]:
    """The headings of the text, in order, as the parser reads them."""
    return structure(text)[1]


def line_headings(text: str) -> list[Heading]:
    """The `#` headings outside of fences, in order: without a parser, for who has little time or none installed."""
    return list(_headings_by_line(text.split("\n"), 0))


def _headings_by_line(lines: list[str], first: int) -> Iterator[Heading]:
    fence = ""
    for number, line in enumerate(lines[first:], first):
        if mark := FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not fence and (found := HEADING.match(line)):
            yield Heading(number, len(found[1]), found[2].strip())


def front_matter_lines(lines: list[str]) -> int:
    """How many leading lines are YAML front matter, fences included; 0 without any."""
    if not lines or lines[0].removeprefix(MARK).rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() in ("---", "..."):
            return number
    return 0


def lines_of(text: str) -> list[str]:
    """The lines without their ends; only "\\n" ends one."""
    return text.removesuffix("\n").split("\n") if text else []


def split_keeping_ends(text: str) -> list[str]:
    """The lines with their "\\n"; a last line without one gets it, so that joining lines of two sides never glues two of them."""
    return [line + "\n" for line in lines_of(text)]


def is_item(line: str) -> bool:
    return re.match(r"\s*([-*+]|\d+[.)])\s", line) is not None


def append_text(text: str, addition: str, *, heading: str | None, read: Reading = headings) -> str:
    """The document with the addition at its end, or at the end of the named section, which is made when it is missing."""
    lines = split_keeping_ends(text)
    added = split_keeping_ends(addition.strip("\n"))
    if heading is None:
        return "".join(_joined(lines, added))
    section = _section(read(text), heading, len(lines))
    if section is None:
        return "".join(_joined(lines, [_heading_line(heading), "\n", *added]))
    start, end = section
    return "".join(lines[:start] + _joined(lines[start:end], added) + _spaced(lines[end:]))


def replace_section(text: str, content: str, *, heading: str, read: Reading = headings) -> str:
    """The document with the lines below the heading replaced; its sub-sections go with it, the heading line stays.

    Raises NotFoundError: no such heading; the hint lists those there are.
    """
    lines = split_keeping_ends(text)
    found = read(text)
    section = _section(found, heading, len(lines))
    if section is None:
        names = [each.title for each in found][:12]
        raise NotFoundError(
            "no section of that heading in the document",
            hint=("headings there: " + "; ".join(names)) if names else "the document has no headings",
        )
    start, end = section
    below = start + (2 if _is_underlined(lines[start:end]) else 1)
    body = split_keeping_ends(content.strip("\n"))
    return "".join([*lines[:below], "\n", *body, *_spaced(lines[end:])])


def _section(found: Sequence[Heading], heading: str, total: int) -> tuple[int, int] | None:
    """The lines [start, end) of the section whose heading is the given words; `## Words` also asks for the level. The first one counts."""
    asked = re.match(r"\s*(#{1,6})\s+(.*)", heading)
    level = len(asked[1]) if asked else None
    words = _plain(asked[2] if asked else heading)
    for index, one in enumerate(found):
        if _plain(one.title) == words and level in (None, one.level):
            later = (other.line for other in found[index + 1 :] if other.level <= one.level)
            return one.line, next(later, total)
    return None


def _is_underlined(lines: list[str]) -> bool:
    return not lines[0].lstrip().startswith("#") and len(lines) > 1


def _joined(before: list[str], added: list[str]) -> list[str]:
    """The addition after the lines, with one blank line between, or none when both are list items."""
    while before and not before[-1].strip():
        before = before[:-1]
    if not before:
        return added
    both_items = is_item(before[-1]) and bool(added) and is_item(added[0])
    return before + ([] if both_items else ["\n"]) + added


def _spaced(after: list[str]) -> list[str]:
    return ["\n", *after] if after and after[0].strip() else after


def _heading_line(heading: str) -> str:
    words = heading.strip()
    return (words if re.match(r"#{1,6}\s", words) else f"## {words}") + "\n"


def _plain(title: str) -> str:
    return " ".join(title.strip().strip("#").split()).casefold()


@dataclass(frozen=True, slots=True)
class Style:
    """How a text is written apart from its lines; None where it is too short to tell.

    Editors change this without being asked. What compares or merges lines does so on the plain form, and puts the style back afterwards.
    """

    marked: bool | None  # begins with a byte order mark
    crlf: bool | None  # most of its lines end in "\r\n"
    ended: bool | None  # its last line has an end

    def apply(self, plain: str) -> str:
        """A plain text written in this style."""
        text = plain
        if self.ended is False:
            text = text.removesuffix("\n")
        if self.crlf:
            text = text.replace("\n", "\r\n")
        return MARK + text if self.marked and text else text


def style_of(text: str) -> Style:
    body = text.removeprefix(MARK)
    if not body:
        return Style(None, None, None)
    ends, windows = body.count("\n"), body.count("\r\n")
    return Style(body != text, windows * 2 > ends if ends else None, body.endswith("\n"))


def plain(text: str) -> str:
    """The text without a mark, its lines ending in "\\n", the last one too."""
    body = text.removeprefix(MARK).replace("\r\n", "\n")
    return body + "\n" if body and not body.endswith("\n") else body


def in_style_of(text: str | None, change: Callable[[str | None], str]) -> str:
    """What `change` makes of a text, with the mark and the line ends that the text had; it gets the plain form where they are special."""
    style = style_of(text or "")
    if text is None or not (style.marked or style.crlf):
        return change(text)
    return replace(style, ended=None).apply(change(plain(text)).replace("\r\n", "\n"))


def merged_style(base: str, ours: str, theirs: str) -> Style:
    """The style of a merge: what one side changed counts, theirs (the person's) before ours."""
    before, mine, incoming = style_of(base), style_of(ours), style_of(theirs)
    return Style(
        _merged(before.marked, mine.marked, incoming.marked),
        _merged(before.crlf, mine.crlf, incoming.crlf),
        _merged(before.ended, mine.ended, incoming.ended),
    )


def _merged(before: bool | None, ours: bool | None, theirs: bool | None) -> bool | None:
    if theirs is None or theirs == before:
        return ours if ours is not None else theirs
    return theirs


# Whether a text says in its front matter that all of it is to be sealed (PROTOCOL.md 9.7): one rule for the machine that seals and for the
# daemon that refuses what comes in clear. Said twice, in other words (`yes`, `"true"`) or beside what cannot be read it is meant all the
# same: better sealed than sent.

_MAX_CHARS: Final = 64 * 1024
_MAX_DEPTH: Final = 16
_NAMES: Final = frozenset({"sensitive"})
_WORDS: Final = frozenset({"true", "yes", "on"})
_FRONT_MATTER: Final = re.compile(rf"{MARK}?---[^\S\n]*\n((?:.*\n)*?)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)")
_LINE: Final = re.compile(
    r"^([^\S\n]*)[\"']?sensitive[\"']?\s*:\s*(?:[!&]\S*\s+|#.*\n\s*)*[\"']?(?:true|yes|on)\b",
    re.IGNORECASE | re.MULTILINE,
)


def end_of_front_matter(text: str) -> int:
    """Where the text behind the front matter begins; 0 without any."""
    found = _FRONT_MATTER.match(text)
    return found.end() if found else 0


def is_sensitive(text: str) -> bool:
    """Whether the front matter says so."""
    if not text.startswith(("---", f"{MARK}---")) or "sensitive" not in text.lower():
        return False
    found = _FRONT_MATTER.match(text)
    if found is None or "sensitive" not in found[1].lower():
        return False
    said = _says_sensitive(found[1])
    return bool(said) or any(said is None or not line[1].strip("\r") for line in _LINE.finditer(found[1]))


def _says_sensitive(inside: str) -> bool | None:
    """Whether one of the fields says so; None where they cannot be read."""

    if len(inside) > _MAX_CHARS:
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # Nesting is seen among the events, before anything is built of them.
        for event in yaml.parse(inside, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH or isinstance(event, yaml.AliasEvent):
                return None
        node = yaml.compose(inside, Loader=loader)
    except (yaml.YAMLError, ValueError):
        return None
    fields = node.value if isinstance(node, yaml.MappingNode) else ()
    return any(_is_word(name, _NAMES) and _is_word(value, _WORDS) for name, value in fields)


def _is_word(node: yaml.Node, words: frozenset[str]) -> bool:
    return isinstance(node.value, str) and node.value.strip().lower() in words
