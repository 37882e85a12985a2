"""Names and texts of documents."""

from __future__ import annotations

import pytest

from confide_memory import documents
from confide_memory.errors import InvalidPathError, InvalidTextError, TooLargeError


@pytest.mark.parametrize("path", ["MEMORY.md", "memory/2026-11-21.md", "memory/notes/größe.md", "a b/c.md"])
def test_usual_paths_are_taken(path: str) -> None:
    """Files as people name them."""
    assert documents.check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd.md", "../x.md", "memory/../../x.md", "./x.md", "a//b.md", "C:/x.md", "a\\b.md", "notes.txt", ".md", "memory/.md",
        "a\0.md", "a\nb.md", "gro\u0308sse.md", "a\u2028.md", "x" * 253 + ".md", "a/" * 300 + "b.md", " a.md", "a /b.md", "\ud800.md",
    ],
)  # fmt: skip
def test_paths_that_could_leave_the_folder_or_break_a_machine_are_refused(path: str) -> None:
    """Traversal, absolute paths, control characters, other normal forms, other endings, and names no file system takes."""
    with pytest.raises(InvalidPathError):
        documents.check_path(path)


def test_text_that_is_no_text_is_refused() -> None:
    """NUL, lone surrogates and more than 4 MiB."""
    for text in ("a\0b", "\ud800"):
        with pytest.raises(InvalidTextError):
            documents.check_text(text)
    with pytest.raises(TooLargeError):
        documents.check_text("ä" * (2 * 1024 * 1024 + 1))


@pytest.mark.parametrize(
    ("path", "day"),
    [("memory/2026-11-21.md", "2026-11-21"), ("a/2026-13-01.md", None), ("a/2026-02-31.md", None), ("x.md", None)],
)
def test_daily_logs_are_dated_by_their_name(path: str, day: str | None) -> None:
    """A file without a date in its name is dated by its last change."""
    assert documents.day_of(path) == day
