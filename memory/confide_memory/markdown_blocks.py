"""Markdown structure: the blocks and sections of a text, edits of a section, line ends, and the
`sensitive` field.

A parser (markdown-it-py) finds headings, paragraphs, list items, fences and table rows; it does not
interpret inline markup. A device that answers while the daemon is unreachable reads line by line
instead (`line_headings`). This needs no import and is good enough, since the daemon reads the text
again later. Line numbers count from 0 here.
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

# Longer texts are read line by line, for `#` headings alone. Prose parses in 20 ms a megabyte, but
# a table of one-letter cells in 9 s, and the space's writer waits for it.
PARSE_CHARACTERS = 400_000
# Deepest indent, in characters, that nests a list item in such a text.
DEEPEST = 40


FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]#+)?\s*$")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a text: its line, level and title."""

    line: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class HeadingBlock:
    """The position and kind of a block of markdown: its first line, the line after its end, and its
    kind.

    A list item ends after everything that is nested in it. A table row also has the line with the
    names of its columns; other blocks have -1 there.
    """

    line: int
    kind: str  # heading, paragraph, item, fence, row, front, other
    end: int
    names: int = -1


Reading = Callable[[str], Sequence[Heading]]
"""A function that finds the headings of a text: `headings` or `line_headings`."""

# Block kinds by the parser's tokens; other tokens begin no block of their own.
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
    from markdown_it import MarkdownIt  # a dependency of the daemon, not of the base install

    parser = MarkdownIt("commonmark").enable("table")
    parser.disable("inline", ignoreInvalid=True)
    return parser


def structure(text: str) -> tuple[list[HeadingBlock], list[Heading]]:
    """Return the blocks and the headings of the text, in order. The front matter counts as one
    block without headings.
    """
    lines = text.removeprefix(MARK).split("\n")
    front = front_matter_lines(lines)
    blocks = [HeadingBlock(0, "front", front)] if front else []
    found: list[Heading] = []
    if len(text) > PARSE_CHARACTERS:
        found = list(_headings_by_line(lines, front))
        return blocks + _blocks_by_line(lines, front, found), found
    # The parser treats a lone carriage return as a line end; lines here end in \n only.
    body = "\n" * front + "\n".join(lines[front:]).replace("\r\n", "\n").replace("\r", " ")
    tokens = _parser().parse(body)
    seen = set()
    names = -1
    for index, token in enumerate(tokens):
        if token.type == "table_open" and token.map is not None:
            names = token.map[0]
        kind = KINDS.get(token.type)
        if kind is None or token.map is None:
            continue
        line, end = token.map
        if kind == "heading":
            found.append(Heading(line, int(token.tag[1:]), tokens[index + 1].content.strip()))
        # An item and its first paragraph begin on the same line: the outer one gives the kind.
        if line not in seen:
            seen.add(line)
            blocks.append(HeadingBlock(line, kind, end, names if kind == "row" else -1))
    return blocks, found


def _blocks_by_line(lines: list[str], front: int, found: list[Heading]) -> list[HeadingBlock]:
    """Return the headings and, outside of fences, the list items of a text that is not parsed. An
    item ends before the next line that is no deeper than its mark.
    """
    titles = {heading.line for heading in found}
    blocks: list[HeadingBlock] = []
    open_items: list[tuple[int, int]] = []  # (line, indent)

    def close(number: int, indent: int) -> None:
        while open_items and open_items[-1][1] >= indent:
            blocks.append(HeadingBlock(open_items.pop()[0], "item", number))

    is_fenced = False
    for number, line in enumerate(lines[front:], front):
        if number in titles:
            close(number, 0)
            blocks.append(HeadingBlock(number, "heading", number + 1))
        elif FENCE.match(line):
            is_fenced = not is_fenced
        elif not is_fenced and line and not line.isspace():
            indent = min(len(line) - len(line.lstrip()), DEEPEST)
            if is_item(line):
                close(number, indent)
                open_items.append((number, indent))
            elif not lines[number - 1].strip():
                close(number, indent)
    close(len(lines), 0)
    return sorted(blocks, key=lambda block: block.line)


def headings(text: str) -> list[Heading]:
    """Return the headings of the text, in order, found by a markdown parser."""
    return structure(text)[1]


def line_headings(text: str) -> list[Heading]:
    """Return the `#` headings outside of code fences, in order, without a parser. Use it where
    speed matters or no parser is installed.
    """
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
    """Return the number of lines that the YAML front matter has, including its fences; 0 if there
    is no front matter.
    """
    if not lines or lines[0].removeprefix(MARK).rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() in ("---", "..."):
            return number
    return 0


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text without their line ends. Only "\n" ends a line."""
    return text.removesuffix("\n").split("\n") if text else []


def split_keeping_ends(text: str) -> list[str]:
    r"""Return the lines of a text, each with its "\n". The last line gets one if it has none, so
    that lines of two texts can be joined.
    """
    return [line + "\n" for line in lines_of(text)]


def is_item(line: str) -> bool:
    return re.match(r"\s*([-*+]|\d+[.)])\s", line) is not None


def append_text(text: str, addition: str, *, heading: str | None, read: Reading = headings) -> str:
    """Return the document with `addition` at the end of the section with this heading, which is
    created if missing. Without a heading (None), append to the end of the document.
    """
    lines = split_keeping_ends(text)
    added = split_keeping_ends(addition.strip("\n"))
    if heading is None:
        return "".join(_append_lines(lines, added))
    heading = " ".join(heading.split())  # a heading is one line: the rest would be text, and not be found again
    section = _section(read(text), heading, len(lines))
    if section is None:
        return "".join(_append_lines(lines, [_heading_line(heading), "\n", *added]))
    start, end = section
    return "".join(lines[:start] + _append_lines(lines[start:end], added) + _space_out(lines[end:]))


def replace_section(text: str, content: str, *, heading: str, read: Reading = headings) -> str:
    """Return the document with the text below a heading replaced by `content`, including
    subsections. The heading stays.

    Raises NotFoundError if there is no such heading; the hint lists the existing ones.
    """
    lines = split_keeping_ends(text)
    found = read(text)
    section = _section(found, " ".join(heading.split()), len(lines))
    if section is None:
        names = [each.title for each in found][:12]
        raise NotFoundError(
            "no section of that heading in the document",
            hint=("headings there: " + "; ".join(names)) if names else "the document has no headings",
        )
    start, end = section
    below = start + (2 if _is_underlined(lines[start:end]) else 1)
    body = split_keeping_ends(content.strip("\n"))
    return "".join([*lines[:below], "\n", *body, *_space_out(lines[end:])])


def _section(found: Sequence[Heading], heading: str, total: int) -> tuple[int, int] | None:
    """Return the lines [start, end) of the first section with this heading; `## Words` also matches
    the level. None if there is no such section.
    """
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


def _append_lines(before: list[str], added: list[str]) -> list[str]:
    """Append the addition after one blank line, or after none if both are list items."""
    while before and not before[-1].strip():
        before = before[:-1]
    if not before:
        return added
    both_items = is_item(before[-1]) and bool(added) and is_item(added[0])
    return before + ([] if both_items else ["\n"]) + added


def _space_out(after: list[str]) -> list[str]:
    return ["\n", *after] if after and after[0].strip() else after


def _heading_line(heading: str) -> str:
    words = heading.strip()
    return (words if re.match(r"#{1,6}\s", words) else f"## {words}") + "\n"


def _plain(title: str) -> str:
    return " ".join(title.strip().strip("#").split()).casefold()


@dataclass(frozen=True, slots=True)
class Style:
    """The byte order mark and the line ends of a text. None stands for a property that the text is
    too short to show.

    Editors change these silently. So comparisons and merges use the text in plain form (`plain`),
    and restore the style afterwards.
    """

    marked: bool | None  # begins with a byte order mark
    crlf: bool | None  # most of its lines end in "\r\n"
    ended: bool | None  # its last line has an end

    def apply(self, plain: str) -> str:
        """Return a text in plain form with this byte order mark and these line ends."""
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
    r"""Return the text without a byte order mark, with every line ended by "\n", including the last."""
    body = text.removeprefix(MARK).replace("\r\n", "\n")
    return body + "\n" if body and not body.endswith("\n") else body


def in_style_of(text: str | None, change: Callable[[str | None], str]) -> str:
    """Return the result of `change(text)` with the byte order mark and the line ends that `text`
    had.

    If the text has a byte order mark or Windows line ends, `change` gets it without them.
    """
    style = style_of(text or "")
    if text is None or not (style.marked or style.crlf):
        return change(text)
    return replace(style, ended=None).apply(change(plain(text)).replace("\r\n", "\n"))


def merged_style(base: str, ours: str, theirs: str) -> Style:
    """Return the style for a merge of `ours` and `theirs`, which both come from `base`. If only one
    of them changed the style, that change is used; if both did, the one in `theirs`, the user's
    text.
    """
    before, mine, incoming = style_of(base), style_of(ours), style_of(theirs)
    return Style(
        _merge_mark(before.marked, mine.marked, incoming.marked),
        _merge_mark(before.crlf, mine.crlf, incoming.crlf),
        _merge_mark(before.ended, mine.ended, incoming.ended),
    )


def _merge_mark(before: bool | None, ours: bool | None, theirs: bool | None) -> bool | None:
    if theirs is None or theirs == before:
        return ours if ours is not None else theirs
    return theirs


# The front matter field that requires a whole text to be sealed (PROTOCOL.md 9.7): one rule for the
# device that seals and for the daemon that refuses plain text. A repeated field, another spelling
# (`yes`, `"true"`) or a field beside unreadable YAML counts too: sealing by mistake is better than
# sending by mistake.

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
    """Return the index at which the text after the front matter begins; 0 if there is no front
    matter.
    """
    found = _FRONT_MATTER.match(text)
    return found.end() if found else 0


def is_sensitive(text: str) -> bool:
    """Return True if the front matter says `sensitive: true`, so that the whole text must be
    encrypted. In doubt, such as in unreadable YAML, the result is also True.
    """
    if not text.startswith(("---", f"{MARK}---")) or "sensitive" not in text.lower():
        return False
    found = _FRONT_MATTER.match(text)
    if found is None or "sensitive" not in found[1].lower():
        return False
    said = _says_sensitive(found[1])
    return bool(said) or any(said is None or not line[1].strip("\r") for line in _LINE.finditer(found[1]))


def _says_sensitive(inside: str) -> bool | None:
    """Return True if a field marks the text as sensitive; None if the fields cannot be read."""

    if len(inside) > _MAX_CHARS:
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # The depth is checked on events, before any object is built.
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
