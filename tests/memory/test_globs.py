"""One meaning of a glob, compared with that of Python's own."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_memory.globs import fixed_part, is_deep, leaves_out, matches

TREE = (
    "a.md", "ab.md", "MEMORY.md", "docs/a.md", "docs/b/a.md", "docs/b/c/ab.md", "a/a.md", "a/docs/a.md",
    "a/docs/x/a.md", "memory/2026-11-21.md", "memory/private/a.md", "memory/private/x/ab.md",
)  # fmt: skip


@pytest.mark.parametrize(
    ("glob", "taken", "left"),
    [
        ("**/*.md", ["a.md", "docs/a.md", "docs/b/c/a.md"], ["a.txt"]),
        ("docs/**/*.md", ["docs/a.md", "docs/b/a.md"], ["a.md", "a/docs/a.md", "docsx/a.md"]),
        ("docs/**", ["docs/a.md", "docs/b/a.md"], ["docs", "a.md"]),
        ("**", ["a.md", "docs/b/a.md"], []),
        ("**/docs/**/*.md", ["docs/a.md", "x/docs/a.md", "x/y/docs/z/a.md"], ["a.md", "x/docsy/a.md"]),
        ("**/a.md", ["a.md", "x/a.md"], ["ba.md", "x/ba.md"]),
        ("a/**/**/b.md", ["a/b.md", "a/x/b.md", "a/x/y/b.md"], ["b.md"]),
        ("*.md", ["a.md"], ["docs/a.md"]),
        ("docs/*.md", ["docs/a.md"], ["docs/b/a.md"]),
        ("docs/*/a.md", ["docs/b/a.md"], ["docs/a.md", "docs/b/c/a.md"]),
        ("docs/a**.md", ["docs/a.md", "docs/ab.md"], ["docs/a/b.md"]),
        ("docs/?.md", ["docs/a.md"], ["docs/ab.md", "docs//.md"]),
        ("docs/[ab].md", ["docs/a.md", "docs/[ab].md"], ["docs/c.md"]),
        ("docs/[!a].md", ["docs/b.md"], ["docs/a.md"]),
        ("./docs//**/*.md", ["docs/a.md"], ["a.md"]),
        ("docs", ["docs/a.md", "docs/b/a.md", "docs"], ["docsx/a.md", "x/docs/a.md"]),
        ("docs/", ["docs/a.md"], ["docs.md"]),
        ("docs/a.md", ["docs/a.md"], ["docs/a.md.md", "docs/b/a.md"]),
        ("", ["a.md"], []),
        ("gro\u0308\u00dfe/*.md", ["gr\u00f6\u00dfe/a.md"], ["grosse/a.md"]),
    ],
)  # fmt: skip
def test_what_a_glob_takes(glob: str, taken: list[str], left: list[str]) -> None:
    """A star stays in its folder, two stand for any number of folders, also for none; a folder stands for what is in it."""
    assert [path for path in (*taken, *left) if matches(path, glob)] == taken


_NAMES = st.sampled_from(["a", "b", "ab", "docs", "a.md", "b.md", "ab.md"])
_PARTS = st.sampled_from(["**", "*", "*.md", "a*", "?", "[ab]", "[!a]*", "docs", "a", "a.md", "*a*b*.md"])


@given(st.lists(_PARTS, min_size=1, max_size=5), st.lists(_NAMES, min_size=1, max_size=5))
def test_it_is_that_of_python(parts: list[str], names: list[str]) -> None:
    """As `full_match` where there is one; else as a reading of its rule in a few lines, which may take as long as it likes."""
    path, glob = "/".join(names), "/".join(parts)
    if not any(mark in glob for mark in "*?["):
        return  # a folder, which to Python is a file

    def slowly(names: list[str], parts: list[str]) -> bool:
        if not parts:
            return not names
        if parts[0] == "**":
            if len(parts) == 1:
                return bool(names)
            return slowly(names, parts[1:]) or (bool(names) and slowly(names[1:], parts))
        return bool(names) and PurePosixPath(names[0]).match(parts[0]) and slowly(names[1:], parts[1:])

    if sys.version_info >= (3, 13):
        assert matches(path, glob) == PurePosixPath(path).full_match(glob)
    assert matches(path, glob) == slowly(names, parts)


def test_it_finds_what_a_walk_by_python_finds() -> None:
    """On real files."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in TREE:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("x")
        for glob in (
            "**/*.md",
            "docs/**/*.md",
            "*.md",
            "docs/*.md",
            "*/a.md",
            "**/docs/**/a.md",
            "a/*/a*.md",
            "**/*a*",
        ):
            found = {file.relative_to(root).as_posix() for file in root.glob(glob) if file.is_file()}
            assert {path for path in TREE if matches(path, glob)} == found, glob


def test_no_glob_takes_long() -> None:
    """What an agent sends is answered whatever it is: with expressions that backtrack, this would run for years."""
    assert not matches("/".join(["a"] * 250), "/".join(["**", "a"] * 120 + ["b"]))
    assert not matches("a" * 255, "*a" * 120 + "b")


@given(st.lists(_PARTS, min_size=1, max_size=4), st.lists(_NAMES, min_size=1, max_size=4))
def test_what_is_kept_back_is_never_less(parts: list[str], names: list[str]) -> None:
    """All that a glob takes, all in a folder that it takes, and what it took where a star stood for folders too."""
    path, glob = "/".join(names), "/".join(parts)
    if matches(path, glob):
        assert leaves_out(path, glob)
        assert leaves_out(f"{path}/x.md", glob)


@pytest.mark.parametrize(
    "glob", ["memory/**/secret.md", "memory/*-draft.md", "*private*", "memory/p*", "memory/private/**"]
)
def test_what_is_kept_back(glob: str) -> None:
    """Also at the top of the folder before `**/`."""
    paths = {
        "memory/**/secret.md": ["memory/secret.md", "memory/a/b/secret.md"],
        "memory/*-draft.md": ["memory/a-draft.md", "memory/old/a-draft.md"],
        "*private*": ["memory/private/a.md", "memory/my-private.md"],
        "memory/p*": ["memory/private/a.md", "memory/private/x/a.md"],
        "memory/private/**": ["memory/private/a.md", "memory/private/x/a.md"],
    }
    assert all(leaves_out(path, glob) for path in paths[glob])
    assert not leaves_out("memory/open.md", glob)


@pytest.mark.parametrize(
    ("glob", "fixed", "deep"),
    [
        ("**/*.md", "", True),
        ("**", "", True),
        ("*.md", "", False),
        ("*/*.md", "", True),
        ("docs/**/*.md", "docs", True),
        ("docs/*.md", "docs", False),
        ("./docs/a/b*.md", "docs/a", False),
        ("docs", "docs", True),
        ("docs/a.md", "docs", True),
        ("../x/*.md", "", True),
    ],
)
def test_where_a_walk_begins(glob: str, fixed: str, deep: bool) -> None:
    """As deep as can be."""
    assert (fixed_part(glob), is_deep(glob)) == (fixed, deep)
