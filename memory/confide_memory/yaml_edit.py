"""Edits a YAML mapping by changing only its text: unchanged parts stay the same byte for byte,
including comments and order.

The first attempt is the smallest edit (an item of a list, a field within a field); the calling code
checks it by parsing the result. If that is not the wanted value, the next attempt replaces whole
fields. If that fails too, the text stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

_BREAK = re.compile(r"\r\n|\n|\r")
_COMMENT = re.compile(r"[ \t]+#[^\r\n]*")
_COLON = re.compile(r"\s*:")
_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Patch:
    """An edit of a text: `text` replaces the characters from `start` up to, but not including,
    `end`.
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class YamlText:
    r"""A YAML text, with functions for changing it.

    Attributes:
        text: the text itself.
        dumped: a function that returns a value as YAML with lines that end in "\n".
        ends: the line end that this text uses.
    """

    text: str
    dumped: Callable[[Any], str]
    ends: str

    def patch(self, patches: Sequence[Patch]) -> str:
        """Return the text with all patches applied. Patches must not overlap."""
        text = self.text
        for patch in sorted(patches, key=lambda patch: -patch.start):
            text = text[: patch.start] + patch.text + text[patch.end :]
        return text

    def lines(self, text: str, indent: int) -> str:
        """Return `text` as lines to insert: with this indent, and with the line ends that the YAML
        text uses.
        """
        return "".join(" " * indent + line + self.ends for line in text.removesuffix("\n").split("\n"))

    def line_start(self, index: int) -> int:
        """Return the index of the first character of the line that contains the character at
        `index`.
        """
        return max((found.end() for found in _BREAK.finditer(self.text, 0, index)), default=0)

    def line_end(self, index: int, *, with_break: bool = False) -> int:
        """Return the index of the end of the line that contains the character at `index`: before
        its line break, or after it if `with_break` is true.
        """
        found = _BREAK.search(self.text, index)
        return len(self.text) if found is None else found.end() if with_break else found.start()


def edits(
    source: YamlText, node: yaml.MappingNode, old: Mapping[str, object], new: Mapping[str, object]
) -> Iterator[str]:
    """Yield versions of the text in which `new` replaces `old`, the smallest edit first. Use the
    first version that parses to the wanted value.
    """
    for is_gentle in (True, False):
        yield source.patch(list(_mapping(source, node, old, new, is_gentle=is_gentle, is_top=True)))


def _mapping(
    source: YamlText,
    node: yaml.MappingNode,
    old: Mapping[str, object],
    new: Mapping[str, object],
    *,
    is_gentle: bool,
    is_top: bool = False,
) -> Iterator[Patch]:
    pairs = {str(key.value): (key, value) for key, value in node.value}
    for name, (key, value) in pairs.items():
        if name not in new:
            yield _removal(source, key, value)
        elif old[name] != new[name] or isinstance(old[name], bool) != isinstance(new[name], bool):
            yield from _field(source, key, value, old[name], new[name], is_gentle=is_gentle)
    added = "".join(source.dumped({name: value}) for name, value in new.items() if name not in pairs)
    if added:
        last = node.value[-1][1]
        end = len(source.text) if is_top else source.line_end(_end(source, last), with_break=True)
        yield Patch(end, end, source.lines(added, node.value[0][0].start_mark.column))


def _field(
    source: YamlText, key: yaml.Node, value: yaml.Node, old: Any, new: Any, *, is_gentle: bool
) -> Iterator[Patch]:
    is_block = isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value
    if (
        is_gentle
        and is_block
        and isinstance(value, yaml.MappingNode)
        and _is_plain(value)
        and isinstance(new, dict)
        and new
    ):
        yield from _mapping(source, value, old, new, is_gentle=True)
    elif is_gentle and is_block and isinstance(value, yaml.SequenceNode) and isinstance(new, list) and new:
        yield from _items(source, value, old, new)
    else:
        yield _replacement(source, key, value, new)


def _is_plain(node: yaml.MappingNode) -> bool:
    """Return True if the mapping has only scalar names, all different."""
    return len({key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}) == len(node.value)


def _items(source: YamlText, node: yaml.SequenceNode, old: list[Any], new: list[Any]) -> Iterator[Patch]:
    """Yield the patches of a list with one item on each line; unchanged items keep their lines."""
    indent = node.start_mark.column
    place = 0  # index in `new`
    for item, value in zip(node.value, old, strict=True):
        start = source.line_start(item.start_mark.index)
        if value in new[place:]:
            found = new.index(value, place)
            if found > place:
                yield Patch(start, start, source.lines(source.dumped(new[place:found]), indent))
            place = found + 1
        else:
            yield Patch(start, source.line_end(_end(source, item), with_break=True), "")
    if place < len(new):
        end = source.line_end(_end(source, node.value[-1]), with_break=True)
        yield Patch(end, end, source.lines(source.dumped(new[place:]), indent))


def _removal(source: YamlText, key: yaml.Node, value: yaml.Node) -> Patch:
    start = source.line_start(key.start_mark.index)
    return Patch(start, source.line_end(_end(source, value, key), with_break=True), "")


def _replacement(source: YamlText, key: yaml.Node, value: yaml.Node, new: Any) -> Patch:
    """Replace the value of a field. A comment on its first line stays there, as does one after a
    value that ends a line.
    """
    start, end = key.end_mark.index, _end(source, value, key)
    first, *more = source.dumped({"k": new}).removeprefix("k").removesuffix("\n").split("\n")
    rest = source.text[end : source.line_end(end)]
    if isinstance(value, yaml.CollectionNode) or getattr(value, "style", None) in ("|", ">"):
        head = source.text[start : source.line_end(start)]
        comment = _COMMENT.search(head) if source.line_end(start) < end else None
        rest = (comment[0] if comment else "") + rest
    indent = " " * key.start_mark.column
    text = source.ends.join([first + rest, *(indent + line for line in more)])
    return Patch(start, source.line_end(end), text)


def _end(source: YamlText, node: yaml.Node, key: yaml.Node | None = None) -> int:
    """Return the index at which a value ends, without the comments and blank lines after it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(source, last[1], last[0]) if isinstance(last, tuple) else _end(source, last)
    end = len(source.text[: node.end_mark.index].rstrip(_BLANK))
    if key is None or end > key.end_mark.index:
        return end
    # Without a value, the field ends after its colon, if it has one.
    colon = _COLON.match(source.text, key.end_mark.index)
    return colon.end() if colon else key.end_mark.index
