"""How an error is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from confide_crypto.errors import ConfideError, RequestError, UnreachableError, where


def test_the_hint_stands_below_the_sentence_or_behind_it() -> None:
    error = ConfideError("it failed", hint="try again")
    assert error.with_hint == "it failed\nhint: try again"
    assert error.in_one_line == "it failed; try again"


def test_an_error_without_a_hint_is_its_sentence() -> None:
    error = ConfideError("it failed")
    assert error.with_hint == error.in_one_line == str(error) == "it failed"


def test_the_answer_for_an_error_has_its_code_sentence_and_hint() -> None:
    answer = RequestError.of(UnreachableError("host:1", "timed out", hint="is it up?"))
    assert (answer.code, str(answer), answer.hint) == (
        "unavailable",
        "cannot reach the daemon at host:1: timed out",
        "is it up?",
    )
    assert RequestError.of(answer) is answer


def test_a_fault_is_told_by_its_class_and_place_alone() -> None:
    """Its text may quote a note or a key. One that was never raised has no place."""

    def fail() -> None:
        int("canary-77")

    with pytest.raises(ValueError, match="canary") as caught:
        fail()
    assert where(caught.value).startswith(f"ValueError at {Path(__file__).parent.name}/{Path(__file__).name}:")
    assert where(ValueError("canary-77")) == "ValueError"
