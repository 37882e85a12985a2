"""Names, merging and sections of documents."""

from __future__ import annotations

import pytest

from confide_daemon import documents
from confide_daemon.errors import InvalidPathError, InvalidTextError, NotFoundError, TooLargeError


@pytest.mark.parametrize(
    "path", ["MEMORY.md", "memory/2026-11-21.md", "memory/notes/größe.md", "a b/c.md", "memory/.hidden.md"]
)
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


def test_appending_under_a_heading_goes_to_the_end_of_its_section() -> None:
    """Sub-sections belong to it; list items stay one list."""
    text = "# Log\n\n## Facts\n\n- one\n\n## Other\n\ntext\n"
    assert (
        documents.append_text(text, "- two", heading="facts")
        == "# Log\n\n## Facts\n\n- one\n- two\n\n## Other\n\ntext\n"
    )


def test_appending_under_a_missing_heading_makes_it() -> None:
    """At the end, at the level asked for, two by default."""
    assert documents.append_text("# Log\n", "text", heading="New") == "# Log\n\n## New\n\ntext\n"
    assert documents.append_text("", "text", heading="### New") == "### New\n\ntext\n"


def test_appending_without_a_heading_leaves_one_blank_line() -> None:
    """However the file ended."""
    for text in ("a", "a\n", "a\n\n\n"):
        assert documents.append_text(text, "b\n", heading=None) == "a\n\nb\n"
    assert documents.append_text("", "b", heading=None) == "b\n"


def test_replacing_a_section_leaves_the_rest() -> None:
    """The heading line stays, in either style; headings in fences are none."""
    text = "Top\n---\n\nold\n\n### Sub\n\nold too\n\n## Next\n\nkept\n\n```\n## Next\n```\n"
    replaced = documents.replace_section(text, "new", heading="Top")
    assert replaced == "Top\n---\n\nnew\n\n## Next\n\nkept\n\n```\n## Next\n```\n"


def test_replacing_a_section_that_is_not_there_names_those_that_are() -> None:
    """So that an agent can correct itself."""
    with pytest.raises(NotFoundError) as caught:
        documents.replace_section("# A\n\n## B\n", "x", heading="C")
    assert "A; B" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("path", "day"),
    [("memory/2026-11-21.md", "2026-11-21"), ("a/2026-13-01.md", None), ("a/2026-02-31.md", None), ("x.md", None)],
)
def test_daily_logs_are_dated_by_their_name(path: str, day: str | None) -> None:
    """A file without a date in its name is dated by its last change."""
    assert documents.day_of(path) == day
