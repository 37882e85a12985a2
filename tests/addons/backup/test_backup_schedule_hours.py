"""The nightly hour, by a clock that jumps."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from confide_backup.daemon.backup_schedule import is_due, last_due

HALF_PAST_TWO = 150


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone whose clocks change twice a year, at night."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    """Local time."""
    return time.mktime((*time.strptime(text, "%Y-%m-%d %H:%M")[:8], -1))


def test_one_is_due_each_night_and_once() -> None:
    assert last_due(at("2026-11-22 12:00"), HALF_PAST_TWO) == at("2026-11-22 02:30")
    assert last_due(at("2026-11-22 02:29"), HALF_PAST_TWO) == at("2026-11-21 02:30")
    assert is_due(at("2026-11-22 02:30"), HALF_PAST_TWO, at("2026-11-21 02:30"))
    assert not is_due(at("2026-11-22 02:31"), HALF_PAST_TWO, at("2026-11-22 02:30"))
    assert not is_due(at("2026-11-23 02:29"), HALF_PAST_TWO, at("2026-11-22 02:30"))


def test_a_night_that_was_slept_through_is_made_up_for() -> None:
    assert is_due(at("2026-11-24 09:00"), HALF_PAST_TWO, at("2026-11-22 02:30"))
    assert is_due(at("2026-11-24 09:00"), HALF_PAST_TWO, None)


def test_the_nights_on_which_clocks_change_have_one_each() -> None:
    """02:30 is left out in March, and comes twice in October."""
    march = last_due(at("2026-03-29 12:00"), HALF_PAST_TWO)
    assert at("2026-03-29 01:59") < march <= at("2026-03-29 03:30")
    october = last_due(at("2026-10-25 12:00"), HALF_PAST_TWO)
    assert is_due(at("2026-10-25 12:00"), HALF_PAST_TWO, at("2026-10-24 02:30"))
    assert not is_due(at("2026-10-25 12:00"), HALF_PAST_TWO, october)


def test_a_snapshot_from_the_future_says_nothing() -> None:
    """The clock was put right since."""
    assert is_due(at("2026-11-22 12:00"), HALF_PAST_TWO, at("2030-01-01 00:00"))
