"""The words of the pages that users read: short sentences, and one word for one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "clients").glob("*.md")])
MOST_WORDS = 30
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_END = re.compile(r"(?<=[.!?])[\"')”]*\s+(?=[\"'(“]*[^\s])")
_WORD = re.compile(r"[^\W_]")


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Each paragraph, heading, item and cell with its line, as plain text; a span of code is one word, blocks of code are left out."""
    line = 0
    for token in _MARKDOWN.parse(page.read_text("utf-8")):
        if token.map:
            line = token.map[0] + 1
        if token.type == "inline":
            parts = [
                "code"
                if each.type == "code_inline"
                else " "
                if each.type in ("softbreak", "hardbreak", "html_inline")
                else each.content
                for each in token.children or ()
            ]
            yield line, "".join(parts)


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    for line, text in blocks(page):
        for sentence in _END.split(text):
            yield line, sentence


def words(sentence: str) -> int:
    return sum(1 for each in sentence.split() if _WORD.search(each))


def test_no_sentence_is_long() -> None:
    """Readers should not have to read one twice. Cells of tables count too; docs/decisions/ is for who changes the code."""
    long = [
        f"{page.name}:{line}: {words(sentence)} words: {sentence}"
        for page in PAGES
        for line, sentence in sentences(page)
        if words(sentence) > MOST_WORDS
    ]
    assert not long, "\n".join(long)


TERMS: dict[str, tuple[str, ...]] = {
    "agent": (),
    "caller": ("peer",),
    "channel": (),
    "clash": ("conflict",),
    "class": ("trust level", "provenance"),
    "client": (),
    "credential": (),
    "custody": ("escrow",),
    "daemon": ("backend",),
    "device": ("trusted machine",),
    "document": (),
    "epoch": ("key generation",),
    "fingerprint": (),
    "grant": (),
    "hit": ("search result",),
    "index": (),
    "invite": ("invitation", "enroll", "enrol"),
    "machine": ("client machine", "workstation"),
    "model": (),
    "note": ("memory entry", "memory entries"),
    "operator": ("administrator",),
    "piece": ("chunk", "passage", "fragment"),
    "pin": (),
    "placeholder": (),
    "project": ("workspace",),
    "proxy": (),
    "queue": ("outbox",),
    "recovery code": ("recovery key", "backup code", "paper key"),
    "redact": ("black out", "blacked out", "mask"),
    "revision": ("file version", "document version"),
    "roster": ("list of devices", "list of its devices", "device list"),
    "score": (),
    "seal": (),
    "secret": (),
    "space": ("memory space", "tenant"),
    "store": (),
    "toolset": ("group of tools", "tool group"),
    "transcript": ("session log", "conversation log"),
    "working copy": (),
}
"""What a user has to know, with the words that would be a second name for it."""
OF_OTHERS = {
    "features.md": "quotes what other systems call their features",
    "importing.md": "names parts of other systems",
}


@cache
def plain(page: Path) -> str:
    return "\n".join(text for _, text in blocks(page)).lower()


def test_every_term_is_defined_once() -> None:
    """In a row of docs/concepts.md: among the ten words, or in the glossary."""
    rows = re.findall(
        r"^\| (?:\*\*)?([a-z ]+?)(?:\*\*)? \| .{12,}", (ROOT / "docs" / "concepts.md").read_text("utf-8"), re.MULTILINE
    )
    defined = [row for row in rows if row != "word"]
    assert sorted(defined) == sorted(set(defined))
    assert set(defined) == TERMS.keys()


def test_nothing_has_a_second_name() -> None:
    """Outside of code: what a command or an option is called is a promise."""
    found = [
        f"{page.name}: {word} (say {term})"
        for page in PAGES
        if page.name not in OF_OTHERS
        for term, words in TERMS.items()
        for word in words
        if re.search(rf"\b{word}(s|ed|s')?\b", plain(page))
    ]
    assert not found


def test_a_term_is_written_in_one_way() -> None:
    """No page says `tool set` or `roll-back` where others write one word."""
    ways = {
        "tool set": "toolset",
        "tool-set": "toolset",
        "place holder": "placeholder",
        "end to end encrypted": "end-to-end encrypted",
    }
    found = [f"{page.name}: {way}" for page in PAGES for way in ways if re.search(rf"\b{way}s?\b", plain(page))]
    assert not found
