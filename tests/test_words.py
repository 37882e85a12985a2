"""The words of the pages that users read: short sentences, the field's terms, and no idiom of our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tests.phrases import PHRASES, in_text

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "daemon/ranking.md",
        ROOT / "release/README.md",
    ]
)
PAGES = [page for page in PAGES if page.parent.name != "decisions"]
MOST_WORDS = 30
MOST_COLUMNS = 100
MOST_PAGES, MOST_WORDS_IN_ALL = 34, 40_000
NOT_FOR_USERS = {"README.md": "the index"}
"""Pages in docs/ that do not count among the pages; their words do."""
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_END = re.compile(r"(?<=[.!?])[\"')”]*\s+(?=[\"'(“]*[^\s])")
_WORD = re.compile(r"[^\W_]")


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, heading, item and cell with its line, as plain text.

    A span of code is the word "code"; blocks of code are left out.
    """
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
    """Readers should not have to read one twice. Cells of tables count too."""
    long = [
        f"{page.name}:{line}: {words(sentence)} words: {sentence}"
        for page in PAGES
        for line, sentence in sentences(page)
        if words(sentence) > MOST_WORDS
    ]
    assert not long, "\n".join(long)


def test_lines_of_prose_are_short() -> None:
    """A line over 100 columns has no place to break it but in a span of code. Tables and code are as wide as they need."""
    found = []
    for page in PAGES:
        text = re.sub(
            r"^ *```.*?^ *```", lambda block: re.sub(r".", "", block[0]), page.read_text("utf-8"), flags=re.M | re.S
        )
        for number, line in enumerate(text.split("\n"), 1):
            unbroken = re.sub(r"`[^`]*`", lambda span: "x" * len(span[0]), line.strip())
            unbroken = re.sub(r"^([-*]|\d+\.) +", "", unbroken)
            if len(line) > MOST_COLUMNS and not unbroken.startswith(("|", "#", "!", ">")) and " " in unbroken:
                found.append(f"{page.name}:{number}: {len(line)} columns")
    assert not found, "\n".join(found)


def test_the_pages_are_few_and_short() -> None:
    """The README and all pages in docs/, but for the decisions. What only contributors read lies beside its code."""
    pages = [ROOT / "README.md", *(page for page in PAGES if page.parent.name == "docs")]
    assert len([page for page in pages if page.parent == ROOT or page.name not in NOT_FOR_USERS]) <= MOST_PAGES
    assert sum(len(page.read_text("utf-8").split()) for page in pages) <= MOST_WORDS_IN_ALL


TERMS: dict[str, tuple[str, ...]] = {
    "agent": (),
    "caller": ("peer",),
    "channel": (),
    "chunk": ("piece", "passage", "fragment"),
    "class": ("trust level",),
    "client": (),
    "conflict": ("clash", "clashe"),
    "credential": (),
    "custody": ("escrow",),
    "daemon": ("backend",),
    "device": (
        *("trusted machine", "client machine", "workstation", "machines"),
        *(f"{which} machine" for which in ("your", "this", "that", "each", "every", "another", "other", "a", "one")),
    ),
    "document": (),
    "embedding": (),
    "epoch": ("key generation",),
    "grant": (),
    "index": (),
    "invite": ("invitation", "enroll", "enrol"),
    "model": (),
    "note": ("memory entry", "memory entries"),
    "operator": (),
    "placeholder": ("place holder",),
    "project": ("workspace",),
    "provenance": (),
    "proxy": (),
    "queue": (),
    "recovery code": ("recovery key", "backup code", "paper key"),
    "redact": ("black out", "blacked out"),
    "result": ("hit",),
    "revision": ("file version", "document version"),
    "roster": ("list of devices", "list of its devices", "device list"),
    "score": (),
    "seal": (),
    "secret": (),
    "space": ("memory space", "tenant"),
    "toolset": ("group of tools", "tool group", "tool set", "tool-set"),
    "transcript": ("session log", "conversation log"),
}
"""The field's terms that a user has to know, with the words not to use for each; docs/concepts.md has the meanings."""
FIELD = {
    *(
        "administrator",
        "cache",
        "chunk",
        "client",
        "conflict",
        "conflict marker",
        "connection",
        "embedding",
        "fallback",
    ),
    *(
        "follower",
        "index",
        "lease",
        "mask",
        "merge",
        "operator",
        "outbox",
        "provenance",
        "query",
        "queue",
        "rate limit",
    ),
    *("replication", "request", "response", "result", "retry", "search result", "server", "session", "timeout", "user"),
}
"""Words that the field uses. No page is kept from them."""
OF_OTHERS = {
    "features.md": "quotes what other systems call their features",
    "importing.md": "names parts of other systems",
}


@cache
def plain(page: Path) -> str:
    return "\n".join(text for _, text in blocks(page)).lower()


def defined() -> list[str]:
    """The terms with a row in docs/concepts.md: among the ten words, or in the glossary."""
    rows = re.findall(
        r"^\| (?:\*\*)?([a-z ]+?)(?:\*\*)? \| .{12,}", (ROOT / "docs" / "concepts.md").read_text("utf-8"), re.MULTILINE
    )
    return [row for row in rows if row != "word"]


def test_every_term_is_defined_once() -> None:
    found = defined()
    assert sorted(found) == sorted(set(found))
    assert set(found) == TERMS.keys()


@pytest.mark.parametrize("term", [term for term in TERMS if term != "caller"])
def test_every_term_is_used(term: str) -> None:
    """A term that only its definition uses is one too many."""
    others = [page for page in PAGES if page.name != "concepts.md"]
    assert any(re.search(rf"\b{term}(s|es|ed)?\b", plain(page)) for page in others)


def test_no_page_is_kept_from_a_word_of_the_field() -> None:
    kept_from = {word for words in TERMS.values() for word in words}
    assert not FIELD & kept_from
    assert not any(re.fullmatch(idiom, word) for idiom in PHRASES for word in {*FIELD, *TERMS})


def test_nothing_has_a_second_name() -> None:
    """Outside of code: the name of a command or an option is a promise."""
    found = [
        f"{page.name}: {word} (say {term})"
        for page in PAGES
        if page.name not in OF_OTHERS
        for term, words in TERMS.items()
        for word in words
        if re.search(rf"\b{word}(s|ed|s')?\b", plain(page))
    ]
    assert not found, "\n".join(found)


def test_pages_have_no_idiom() -> None:
    """Outside of code, which may quote a message; `python -m tests.phrases` looks at that, and at the message itself."""
    found = [
        f"{page.name}: {phrase!r} (say {instead})" for page in PAGES for _, phrase, instead in in_text(plain(page))
    ]
    assert not found, "\n".join(found)


def test_a_term_is_written_in_one_way() -> None:
    """A reader who searches a page for a term finds it in one spelling."""
    ways = {"end to end encrypted": "end-to-end encrypted", "roll-back": "rollback"}
    found = [f"{page.name}: {way}" for page in PAGES for way in ways if re.search(rf"\b{way}s?\b", plain(page))]
    assert not found
