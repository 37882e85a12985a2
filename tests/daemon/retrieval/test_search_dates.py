"""The days that a question speaks of."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_memory.tools.days import days_of

SATURDAY = date(2026, 11, 21)


@pytest.mark.parametrize(
    ("asked", "days"),
    [
        ("what did we do yesterday?", "2026-11-20"),
        ("what was decided the day before yesterday", "2026-11-19"),
        ("last week's decisions", "2026-11-09 to 2026-11-15"),
        ("what broke this week", "2026-11-16 to 2026-11-21"),
        ("on Monday we deployed", "2026-11-16"),
        ("last Saturday", "2026-11-14"),
        ("what changed in May", "2026-05-01 to 2026-05-31"),
        ("what changed in December", "2025-12-01 to 2025-12-31"),
        ("everything since June", "2026-06-01 to 2026-11-21"),
        ("the outage of March 2025", "2025-03-01 to 2025-03-31"),
        ("the outage of 7 May 2023", "2023-05-07"),
        ("the outage of May 7, 2023", "2023-05-07"),
        ("the outage of 2026-05-03", "2026-05-03"),
        ("in the last 10 days", "2026-11-11 to 2026-11-21"),
        ("three days ago", "2026-11-18"),
        ("two weeks ago", "2026-11-04 to 2026-11-10"),
        ("last month", "2026-10-01 to 2026-10-31"),
        ("last year", "2025-01-01 to 2025-12-31"),
    ],
)
def test_words_that_name_days(asked: str, days: str) -> None:
    """As a person means them: calendar weeks and months, the last such weekday or month."""
    found = days_of(asked, SATURDAY)
    assert found is not None
    assert found.name == days


@pytest.mark.parametrize(
    "asked",
    [
        "who may march",
        "Sunday school",
        'the song "last week"',
        "what does `yesterday()` return",
        "the file memory/2026-05-03.md",
        "yesterday and last month",  # two different times
        "on 31 February",
        "2026-13-45",
        "",
    ],
)
def test_words_that_name_none(asked: str) -> None:
    """Verbs, quoted text, code, paths, dates that do not exist, and what could mean two times."""
    assert days_of(asked, SATURDAY) is None


@given(st.text(max_size=100), st.dates(date(1990, 1, 1), date(2100, 1, 1)))
def test_no_text_is_too_strange(text: str, today: date) -> None:
    """Whatever is asked, and whenever."""
    found = days_of(f"in the last {text} days, {text} ago, in May {text}", today)
    assert found is None or found.first <= found.last
