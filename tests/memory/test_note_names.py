"""What notes are called, and how short."""

from __future__ import annotations

import pytest

from confide_memory.note_names import LEAST_DIGITS, first_words, is_id, is_named, may_mean, path_of, short_of, title_of

ID = "mem_auth-service_1795258800_3f9a2c1b"


@pytest.mark.parametrize(
    ("before", "after", "short"),
    [
        (None, None, "mem_3f9a2"),
        ("00000000", "ffffffff", "mem_3f9a2"),
        ("3f980000", None, "mem_3f9a2"),
        (None, "3f9b0000", "mem_3f9a2"),
        # One digit more than tells it from the next.
        ("3f9a0000", None, "mem_3f9a2c"),
        ("3f9a2000", "3f9b0000", "mem_3f9a2c1"),
        (None, "3f9a2c1f", "mem_3f9a2c1b"),
        ("3f9a2c10", None, "mem_3f9a2c1b"),
        ("3f9a", None, "mem_3f9a2c"),
        # Another one has all of them.
        ("3f9a2c1b", None, ID),
        (None, "3f9a2c1b", ID),
        (None, "3f9a2c1b77", ID),
    ],
)
def test_a_short_id_is_as_long_as_it_must_be(before: str | None, after: str | None, short: str) -> None:
    assert short_of(ID, before, after) == short
    assert may_mean(short, ID)
    assert is_id(short)


def test_an_id_of_few_digits_has_them_all() -> None:
    assert short_of("mem_x_1_0a1b", None, None) == "mem_0a1b"
    assert len("0a1b") < LEAST_DIGITS


@pytest.mark.parametrize(
    "said", ["mem_3f9", "mem_", "3f9a2c", "mem_3F9A2", "mem_3f9a2c1b3f9a2c1b3", "mem_auth", "x_3f9a2"]
)
def test_what_is_no_id_means_no_note(said: str) -> None:
    assert not is_id(said)
    assert not may_mean(said, ID)


def test_a_short_id_means_what_begins_so() -> None:
    assert may_mean("mem_3f9a", ID)
    assert not may_mean("mem_3f9b", ID)
    assert not may_mean("mem_3f9a2c1b0", ID)
    assert not may_mean("mem_auth-service_1795258800_3f9a", ID)
    path = path_of(ID, "Auth", None)
    assert is_named(path, "mem_3f9a2")
    assert is_named(path, ID)
    assert not is_named(path, "mem_9a2c")


def test_a_byte_order_mark_is_no_part_of_a_title() -> None:
    """Lists showed it as a question mark, with the mark of the heading behind it."""
    text = "\ufeff# Plan\n\nWe begin on Monday.\n"
    assert (title_of(text), first_words(text, besides="Plan")) == ("Plan", "We begin on Monday.")
    assert title_of("\ufeffMonday\n") == "Monday"
