"""What a person says of a time, as commands read it: in the zone of this device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import typer

from confide_proxy.cli.listing import moment_of


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("said", "begins", "ends"),
    [
        ("2026-07-20", "2026-07-19T22:00:00", "2026-07-20T21:59:59.999999"),
        ("20260720", "2026-07-19T22:00:00", "2026-07-20T21:59:59.999999"),
        ("2026-10-25", "2026-10-24T22:00:00", "2026-10-25T22:59:59.999999"),  # a day of 25 hours
        ("2026-07-20 14:30", "2026-07-20T12:30:00", "2026-07-20T12:30:00"),
        ("2026-07-20T14:30:00+00:00", "2026-07-20T14:30:00", "2026-07-20T14:30:00"),
    ],
)
def test_a_date_is_its_beginning_or_its_end(said: str, begins: str, ends: str) -> None:
    for is_end, expected in ((False, begins), (True, ends)):
        found = datetime.fromisoformat(moment_of(said, is_end=is_end))
        assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)


def test_today_ends_now() -> None:
    today = datetime.now().astimezone()
    found = datetime.fromisoformat(moment_of(today.date().isoformat(), is_end=True))
    assert today <= found <= datetime.now().astimezone()


@pytest.mark.parametrize("said", ["2099-01-01", "2099-01-01 10:00"])
def test_no_memory_is_of_a_time_to_come(said: str) -> None:
    with pytest.raises(typer.BadParameter, match="still to come"):
        moment_of(said, option="--at", is_end=True)
    assert datetime.fromisoformat(moment_of(said)) > datetime.now().astimezone() + timedelta(days=1)


@pytest.mark.parametrize("said", ["", "yesterday", "2026-13-01", "9999999999d", "0d", "-1d", "2026-02-30"])
def test_what_is_no_time_is_said_to_be_none(said: str) -> None:
    with pytest.raises(typer.BadParameter, match="a time looks like"):
        moment_of(said, option="--at", is_end=True)
