"""The words of the pages that users read: short sentences, and one word for one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
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
                "code" if each.type == "code_inline" else " " if each.type in ("softbreak", "hardbreak", "html_inline") else each.content
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
