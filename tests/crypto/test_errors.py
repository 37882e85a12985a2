"""How an error is told."""

from __future__ import annotations

from confide_crypto.errors import ConfideError


def test_the_hint_stands_below_the_sentence_or_behind_it() -> None:
    error = ConfideError("it failed", hint="try again")
    assert error.with_hint == "it failed\nhint: try again"
    assert error.in_one_line == "it failed; try again"


def test_an_error_without_a_hint_is_its_sentence() -> None:
    error = ConfideError("it failed")
    assert error.with_hint == error.in_one_line == str(error) == "it failed"
