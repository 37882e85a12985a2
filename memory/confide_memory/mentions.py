"""Mentions in a markdown file as notes apps write them: `#tags`, `[[wiki links]]`, and the aliases
and tags of its front matter.

They are read as Obsidian does (https://help.obsidian.md/tags, https://help.obsidian.md/links), line
by line, without a parser: a file of 4 kB takes 0.1 ms. Code holds no mentions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from confide_memory import front_matter
from confide_memory.documents import composed
from confide_memory.markdown_blocks import FENCE, is_item

MAX_TAGS: Final = 64
MAX_LINKS: Final = 500
MAX_ALIASES: Final = 32
MAX_NAME: Final = 255  # characters of a tag, an alias, or a link's target

_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_TAG = re.compile(r"(?<!\S)#([\w/-]+)")
_LINK = re.compile(r"\[\[([^\[\]\n]{1,1000})\]\]")
_INDENTED = re.compile(r"(?: {4}|\t)")


@dataclass(frozen=True, slots=True)
class Mentions:
    """The mentions of one file, each once, as written. A link is its target path or name, without
    heading, alias and `.md`.
    """

    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


def read(path: str, text: str) -> Mentions:
    """Return the mentions of a file, at most the first `MAX_…` of each kind. Never raises."""
    parts = front_matter.parse(text)
    tags = _stated(parts.fields, "tags", "tag")
    # Links occur in properties too, between quotes.
    links = [target_of(path, found) for found in _LINK.findall(parts.head)]
    if "#" in parts.body or "[[" in parts.body:
        for line in _prose(parts.body):
            links += [target_of(path, found) for found in _LINK.findall(line)] if "[[" in line else []
            if "#" in line:
                tags += [tag for tag in _TAG.findall(line) if re.search(r"[^\W\d]|[-_]", tag)]
    aliases = _stated(parts.fields, "aliases", "alias", between=",")
    if isinstance(title := parts.fields.get("title"), str):
        aliases.append(" ".join(title.split()))  # basic-memory links by titles
    return Mentions(
        _first(MAX_TAGS, (tag.strip("/") for tag in tags)),
        _first(MAX_ALIASES, aliases),
        _first(MAX_LINKS, links),
    )


def name_of(path: str) -> str:
    """Return the name by which links refer to a file: the last part of its path, without `.md`."""
    return path.rsplit("/", 1)[-1].removesuffix(".md")


def target_of(path: str, written: str) -> str:
    """Return the name or path that a link's text names; "" for a link to its own file.

    `path` is the path of the file that contains the link.
    """
    name = re.split(r"\\?\||#|\^", written, maxsplit=1)[0].strip().removesuffix(".md")
    if name.startswith(("./", "../")):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return composed(name.strip("/"))


def folded(word: str) -> str:
    """Return a tag or a name in the form for comparison."""
    return " ".join(word.casefold().split())


def _stated(fields: dict[str, object], *names: str, between: str = ", ") -> list[str]:
    """Return the items of a property that is a list, or words separated by one of the characters
    `between`.
    """
    found: list[str] = []
    for name in names:
        value = fields.get(name)
        items = re.split(f"[{between}]", value) if isinstance(value, str) else value
        for item in items if isinstance(items, list) else [items]:
            if isinstance(item, str | int | float) and not isinstance(item, bool):
                found.append(" ".join(str(item).split()).lstrip("#" if name.startswith("tag") else ""))
    return found


def _first(most: int, words: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word and len(word) <= MAX_NAME))[:most]


def _prose(body: str) -> Iterator[str]:
    """Yield the lines that are not code, without inline code."""
    fence, is_listed, is_code, was_blank = "", False, False, True
    for line in body.split("\n"):
        if mark := FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if fence:
            continue
        if not line.strip():
            was_blank = True
            continue
        if is_item(line):
            is_listed = True
        elif not line[0].isspace():
            is_listed = False
        # Indented text after a blank line is code, but in a list it belongs to the item.
        is_code = not is_listed and _INDENTED.match(line) is not None and (was_blank or is_code)
        was_blank = False
        if not is_code:
            yield _CODE.sub(" ", line) if "`" in line else line
