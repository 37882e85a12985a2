"""Names and texts of documents, and the digests of many of them."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.documents.document_names import ELSEWHERE, PROBES

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


@pytest.mark.parametrize(("path", "is_taken", "is_kept"), PROBES)
def test_names(path: str, is_taken: bool, is_kept: bool) -> None:
    """What a machine could not have as a file is refused; what earlier versions took of it can still be named."""
    assert (documents.path_problem(path) is None) == is_taken
    assert documents.is_memory(path) == is_taken
    assert (documents.stored_path_problem(path) is None) == is_kept
    assert (documents.unsafe(path) is None) == (is_kept or path == "sessions/x.md")


@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_place_is_not_a_name(path: str) -> None:
    """Others may be read by globs, and are no memory."""
    assert not documents.is_in_memory(path)
    assert not documents.is_memory(path)
    assert (documents.path_problem(path) is None) == (path != "memory.md/a.md")


@given(st.text(st.characters(exclude_characters="/"), min_size=1))
def test_a_composed_name_has_at_most_two_spellings(name: str) -> None:
    """Each composes to it again, so that a file is found by the name of its document."""
    path = documents.to_nfc(name)
    assert unicodedata.is_normalized("NFC", path)
    found = documents.spellings(path)
    assert found[0] == path
    assert {documents.to_nfc(spelled) for spelled in found} == {path}
    assert unicodedata.normalize("NFD", name) in found


STATES = [(f"memory/{number}.md", f"{number:064x}", number) for number in range(1000)]


def test_the_order_does_not_matter_and_every_part_does() -> None:
    """Path, hash and revision each change the digest of one bucket, and of no other."""
    all_of_them = documents.digests(STATES)
    assert all_of_them == documents.digests(reversed(STATES))
    path, digest, revision = STATES[7]
    for changed in ((path, digest, revision + 1), (path, "0" * 64, revision)):
        other = documents.digests([*STATES[:7], changed, *STATES[8:]])
        assert [n for n in range(documents.BUCKETS) if other[n] != all_of_them[n]] == [documents.bucket_of(path)]
    missing = documents.digests(STATES[:7] + STATES[8:])
    assert [n for n in range(documents.BUCKETS) if missing[n] != all_of_them[n]] == [documents.bucket_of(path)]


def test_as_the_document_says() -> None:
    """One file by hand: its bucket, its line, and nothing in the others."""
    told = documents.digests([("memory/é.md", "ab" * 32, 3)])
    bucket = hashlib.blake2b("memory/é.md".encode(), digest_size=32).digest()[0]
    line = b"memory/\xc3\xa9.md\0" + b"ab" * 32 + b"\x003\n"
    assert told[bucket] == hashlib.blake2b(line, digest_size=16).hexdigest()
    assert told.count("") == documents.BUCKETS - 1


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("after", ["", "\n", "\nand on thursday"])
def test_a_conflict_ends_where_its_marks_do_whatever_the_line_ends(ends: str, after: str) -> None:
    """A client asks which version holds, and the panel shows the lines: not the rest of the file with them."""
    ours, theirs = ["start on tuesday\n"], ["start on friday\n"]
    marked = documents.marked_clash(ours, theirs, ("ann, revision 2", "bob, revision 3"))
    text = f"# Plan\n\n{''.join(marked)[:-1]}{after}".replace("\n", ends)
    assert documents.clash_origins(text) == ("ann, revision 2", "bob, revision 3")
    assert documents.clash_version(text, "bob, revision 3") == f"start on friday{ends}"
    kept = documents.clash_kept(text, "bob, revision 3")
    assert kept.split() == f"# Plan start on friday {after}".split()
    assert [line.rstrip() for line in documents.conflict_lines(text)] == [line.rstrip() for line in marked]
