"""Every glob that a page, an example or a hint shows takes the files that a reader expects."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from confide_memory.globs import leaves_out, matches

ROOT = Path(__file__).parents[1]
SHOWN_IN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "configs").glob("*.toml"))]
CODE = sorted((ROOT / "proxy/confide_proxy").rglob("*.py"))
EXAMPLE = re.compile(r"\b(extra|exclude) ?= ?(\[[^\]\n]*\])")

EXTRA = {
    "**/*.md": (["Inbox.md", "Daily/a.md", "a/b/c.md"], ["Inbox.txt"]),
    "docs/**/*.md": (["docs/a.md", "docs/adr/1.md"], ["a.md", "src/docs/a.md"]),
    "notes/**/*.md": (["notes/Home.md", "notes/sub/Pool.md"], ["Home.md"]),
}
EXCLUDE = {
    "sessions": (["sessions/2026-11-20-codex-a.md"], ["memory/sessions.md"]),
    "memory/private": (["memory/private/a.md", "memory/private/x/a.md"], ["memory/privately.md"]),
    "memory/*-draft.md": (["memory/a-draft.md", "memory/old/a-draft.md"], ["memory/draft.md"]),
    "memory/private/*.md": (["memory/private/a.md"], ["memory/a.md"]),
}
MEANT = {"extra": EXTRA, "exclude": EXCLUDE}


def shown() -> set[tuple[str, str]]:
    """(option, glob) of every example; what a hint fills in is none."""
    found = set()
    for page in [*SHOWN_IN, *CODE]:
        for option, value in EXAMPLE.findall(page.read_text(encoding="utf-8")):
            try:
                globs = tomllib.loads(f"x = {value}")["x"]
            except tomllib.TOMLDecodeError:
                continue  # code, or a template of one
            found |= {(option, glob) for glob in globs if glob}
    return found


def test_every_example_is_one_of_these() -> None:
    """A page with a new one says here which files it takes, and which not."""
    assert shown() == {(option, glob) for option, meant in MEANT.items() for glob in meant}


def test_each_takes_what_its_page_says() -> None:
    for glob, (taken, left) in EXTRA.items():
        assert [path for path in (*taken, *left) if matches(path, glob)] == taken
    for glob, (taken, left) in EXCLUDE.items():
        assert [path for path in (*taken, *left) if leaves_out(path, glob)] == taken


def test_the_table_of_globs_is_true() -> None:
    """docs/notes.md, row by row."""
    text = (ROOT / "docs/notes.md").read_text(encoding="utf-8").partition("### Globs\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)`[^|]*\|", text, re.MULTILINE)
    paths = ["a.md", "docs/a.md", "docs/b/c.md", "docs/x.txt"]
    assert {row: [path for path in paths if matches(path, row)] for row in rows} == {
        "docs": ["docs/a.md", "docs/b/c.md", "docs/x.txt"],
        "docs/*.md": ["docs/a.md"],
        "docs/**/*.md": ["docs/a.md", "docs/b/c.md"],
        "**/*.md": ["a.md", "docs/a.md", "docs/b/c.md"],
        "[ab]": [],
    }
    assert matches("docs/a.md", "docs/[ab].md")
    assert not matches("docs/a.md", "docs/[!ab].md")
