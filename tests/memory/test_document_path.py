"""The rule of what documents may be called."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.documents.document_names import ELSEWHERE, PROBES

from confide_memory import document_path


@pytest.mark.parametrize(("path", "is_taken", "is_kept"), PROBES)
def test_names(path: str, is_taken: bool, is_kept: bool) -> None:
    """What a machine could not have as a file is refused; what earlier versions took of it can still be named."""
    assert (document_path.problem(path) is None) == is_taken
    assert document_path.is_memory(path) == is_taken
    assert (document_path.stored_problem(path) is None) == is_kept
    assert (document_path.unsafe(path) is None) == (is_kept or path == "sessions/x.md")


@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_place_is_not_a_name(path: str) -> None:
    """Others may be read by globs, and are no memory."""
    assert not document_path.is_in_memory(path)
    assert not document_path.is_memory(path)
    assert (document_path.problem(path) is None) == (path != "memory.md/a.md")


@given(st.text(st.characters(exclude_characters="/"), min_size=1))
def test_a_composed_name_has_at_most_two_spellings(name: str) -> None:
    """Each composes to it again, so that a file is found by the name of its document."""
    path = document_path.composed(name)
    assert unicodedata.is_normalized("NFC", path)
    found = document_path.spellings(path)
    assert found[0] == path
    assert {document_path.composed(spelled) for spelled in found} == {path}
    assert unicodedata.normalize("NFD", name) in found
