"""Mentions in a markdown file as notes apps write them: `#tags`, `[[wiki links]]`, `[text](file.md)`,
and the aliases and tags of its front matter or its properties (`tags:: a, b`).

They are read as Obsidian (https://help.obsidian.md/tags, https://help.obsidian.md/links) and Logseq
do, line by line, without a parser: a file of 4 kB takes 0.1 ms. Code holds no mentions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

from confide_memory import front_matter
from confide_memory.documents import to_nfc
from confide_memory.markdown_blocks import FENCE, is_item

MAX_TAGS: Final = 64
MAX_LINKS: Final = 500
MAX_ALIASES: Final = 32
MAX_PROPERTIES: Final = 32
MAX_NAME: Final = 255  # characters of a tag, an alias, or a link's target

_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_TAG = re.compile(r"(?<!\S)#([\w/-]+)")
_LINK = re.compile(r"\[\[([^\[\]\n]{1,1000})\]\]")
_INLINE = re.compile(r"\]\([ \t]*(?:<([^<>\n]{1,1000})>|([^\s<>()]{1,1000}(?:\([^\s()]{0,200}\)[^\s()]{0,200})*))")
_ENDING = re.compile(r"\.(?:md|markdown)$", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WORDED_TAG = re.compile(r"(?<!\S)#\[\[([^\[\]\n]{1,255})\]\]")
_PROPERTY = re.compile(r"\s*(?:[-*+][ \t]+)?([A-Za-z][\w-]*)::(?:[ \t]+(.*?))?\s*")
_JOURNAL = re.compile(r"(\d{4})_(\d{2})_(\d{2})")
_INDENTED = re.compile(r"(?: {4}|\t)")


# The beginning of a question about one thing, which the rest names.
_ABOUT: Final = re.compile(
    r"(?:(?:what|who|where)(?:['’]s|\s+(?:is|are|was|were))|(?:\w+\s+me\s+|what\s+do\s+we\s+know\s+)?about|define"
    r"|(?:was|wer|wo)\s+(?:ist|sind|war)|(?:qu['’]est[ -]ce\s+que|qui\s+est|où\s+est)|(?:qué|quién|dónde)\s+(?:es|son|está))\s+"
    r"(?:(?:the|an?|der|die|das|eine?|le|la|les|une?|el|los|las)\s+)?",
    re.IGNORECASE,
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Mentions:
    """The tags, aliases and links of one file, as written and without duplicates. A link is given
    as its target path or name, without heading, alias and `.md`.
    """

    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


def read(path: str, text: str) -> Mentions:
    """Return the mentions in a file; of each kind, at most the first `MAX_TAGS`, `MAX_ALIASES` and
    `MAX_LINKS`. Never raises.
    """
    parts = front_matter.parse(text)
    tags = _listed_words(parts.fields, "tags", "tag")
    # Links occur in properties too, between quotes.
    links = [target_of(path, found) for found in _LINK.findall(parts.head)]
    properties: dict[str, object] = {}
    if any(mark in parts.body for mark in ("#", "[[", "](", "::")):
        is_top = True
        for line in _prose(parts.body):
            links += _links_in(path, line)
            if "#" in line:
                tags += [tag for tag in _TAG.findall(line) if re.search(r"[^\W\d]|[-_]", tag)]
                tags += [" ".join(tag.split()) for tag in _WORDED_TAG.findall(line)]
            found = _PROPERTY.fullmatch(line) if "::" in line else None
            # Names are properties of the page, which are above its text.
            is_top = is_top and (found is not None or line.startswith("#"))
            if found and (is_top or found[1] in ("tags", "tag")):
                tags += _listed_words({found[1]: _plain(found[2])}, "tags", "tag", between=",")
                properties.setdefault(found[1], _plain(found[2]))
    aliases = _listed_words(parts.fields, "aliases", "alias", between=",")
    aliases += _listed_words(properties, "aliases", "alias", between=",")
    for stated in (parts.fields, properties):
        if isinstance(title := stated.get("title"), str):
            aliases.append(" ".join(title.split()))  # basic-memory and Logseq link by titles
    return Mentions(
        _first(MAX_TAGS, (tag.strip("/") for tag in tags)),
        _first(MAX_ALIASES, [*_names_of(path), *aliases]),
        _first(MAX_LINKS, links),
    )


def properties_of(text: str) -> dict[str, str]:
    """Return the properties at the beginning of a page in Logseq's format, one `name:: value` on
    each line. The values are without the marks of tags and links.
    """
    found: dict[str, str] = {}
    for line in text.lstrip("\n").split("\n", MAX_PROPERTIES)[:MAX_PROPERTIES]:
        if (match := _PROPERTY.fullmatch(line)) is None:
            break
        found.setdefault(match[1], _plain(match[2]))
    return found


def name_of(path: str) -> str:
    """Return the name by which links refer to a file: the last part of its path, without `.md`."""
    return path.rsplit("/", 1)[-1].removesuffix(".md")


def _names_of(path: str) -> list[str]:
    """Return the names by which Logseq links to a file whose name cannot be the page's: `a___b.md`,
    `a%2Fb.md`, and `2026_11_24.md` of a journal.
    """
    name = name_of(path)
    found = [unquote(name.replace("___", "/"))] if "___" in name or "%" in name else []
    if day := _JOURNAL.fullmatch(name):
        found.append("-".join(day.groups()))
        try:
            then = date(*map(int, day.groups()))
        except ValueError:
            return found
        ending = "th" if 11 <= then.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(then.day % 10, "th")
        found.append(f"{_MONTHS[then.month - 1]} {then.day}{ending}, {then.year}")  # Logseq's usual title
    return found


def _links_in(path: str, line: str) -> Iterator[str]:
    """Yield the targets of the links in a line, wiki links first."""
    if "[[" in line:
        for found in _LINK.findall(line):
            yield target_of(path, found)
    if "](" in line:
        for bracketed, plain in _INLINE.findall(line):
            file = unquote((bracketed or plain).partition("#")[0]).strip()
            if _ENDING.search(file) and not _SCHEME.match(file) and "\n" not in file:
                # Not by `target_of`: other signs than `#` belong to the name.
                yield _target_path(path, file)


def _plain(value: str | None) -> str:
    """Return the value of a property without the marks of tags and links."""
    return " ".join(re.sub(r"#?\[\[|\]\]|(?<![^\s,])#", "", value or "").split())


def names_in(question: str) -> list[str]:
    """Return the names that a question may be about: its whole text, and the text after words such
    as "what is". Empty if the text is too long for a name.
    """
    text = " ".join(question.split()).strip(" ?？!.\"'“”„«»[]#")
    if not text or len(text) > MAX_NAME:
        return []
    return list(dict.fromkeys((text, _ABOUT.sub("", text, count=1) if _ABOUT.match(text) else text)))


def target_of(path: str, written: str) -> str:
    """Return the file name or path that a link points to; "" for a link within the same file.

    Args:
        path: the path of the file that contains the link.
        written: the text between the brackets of the link.
    """
    return _target_path(path, re.split(r"\\?\||#|\^", written, maxsplit=1)[0].strip())


def _target_path(path: str, name: str) -> str:
    name = _ENDING.sub("", name)
    if name.startswith(("./", "../")):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return to_nfc(name.strip("/"))


def fold_name(word: str) -> str:
    """Return a tag or a name in a normalized form for comparison, without differences of case and
    blanks.
    """
    return " ".join(word.casefold().split())


def _listed_words(fields: dict[str, object], *names: str, between: str = ", ") -> list[str]:
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
