"""When tasks are due in nights in which clocks change, against a table of its own: every minute of them, asked of the zone alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from confide_memory.errors import ToolError
from confide_night.order import schedule

NIGHTS: Final = {
    # zone: nights (local dates) in which clocks go ahead, and back
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "America/St_Johns": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),  # by half an hour
    "Pacific/Auckland": ("2026-09-27", "2026-04-05"),
    "America/Santiago": ("2026-09-06", "2026-04-05"),  # at midnight
    "Africa/Casablanca": ("2026-03-22", "2026-02-15"),  # winter time in Ramadan, by a negative change
    "Pacific/Apia": ("2011-12-30", "2011-04-02"),  # a whole day that never was
    "Europe/Dublin": ("2026-03-29", "2026-10-25"),  # its summer time is the standard one
    "Asia/Tehran": ("2022-03-22", "2022-09-21"),  # at midnight
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),  # at midnight
    "UTC": ("2026-03-29", "2026-10-25"),
}
FIXED: Final = ("0 2 * * *", "30 2 * * *", "15,45 1 * * *", "0 0 * * *", "30 0 * * *")
"""(minute, hour) alone: once a day that is, at the first moment behind a gap."""
EVERY: Final = ("0 * * * *", "*/30 * * * *", "*/15 2 * * *")
"""Every minute that the clock shows."""


def minutes(zone: str, night: str) -> Iterator[tuple[int, datetime]]:
    """Every minute from the noon before to the noon after, by the count of UTC, with what the zone's clock shows."""
    place, noon = ZoneInfo(zone), datetime.fromisoformat(f"{night}T12:00").replace(tzinfo=UTC)
    for number in range(-2 * 24 * 60, 2 * 24 * 60):
        moment = noon + timedelta(minutes=number)
        yield int(moment.timestamp()), moment.astimezone(place)


@lru_cache(maxsize=2)  # the nights of one zone, of which each pattern is asked
def shown_minutes(zone: str, night: str) -> list[tuple[int, datetime, datetime]]:
    """The same as a list, and the clock without its zone."""
    return [(at, here, here.replace(tzinfo=None, fold=0)) for at, here in minutes(zone, night)]


def fields(pattern: str) -> tuple[set[int], set[int]]:
    """The minutes and hours of these patterns."""

    def read(text: str, most: int) -> set[int]:
        if text.startswith("*"):
            return set(range(0, most, int(text.removeprefix("*/")) if "/" in text else 1))
        return {int(one) for one in text.split(",")}

    minute, hour, *_ = pattern.split()
    return read(minute, 60), read(hour, 24)


def expected(zone: str, night: str, pattern: str) -> list[int]:
    """By the table: what the clock shows, minute for minute, and nothing of cron's own code."""
    shown = shown_minutes(zone, night)
    wanted_minutes, wanted_hours = fields(pattern)
    if pattern in EVERY:
        return [at for at, here, _ in shown if here.minute in wanted_minutes and here.hour in wanted_hours]
    found: set[int] = set()
    days = {wall.date() for _, _, wall in shown}
    every_day = {min(days) + timedelta(days=number) for number in range((max(days) - min(days)).days + 1)}
    for day in every_day:
        for hour in wanted_hours:
            for minute in wanted_minutes:
                wall = datetime(day.year, day.month, day.day, hour, minute)
                # The first moment at which the clock shows that, or, where it never does, anything later.
                at = next((at for at, _, clock in shown if clock >= wall), None)
                if at is not None and at > shown[0][0]:
                    found.add(at)
    return sorted(found)


@pytest.mark.parametrize("pattern", [*FIXED, *EVERY])
@pytest.mark.parametrize("zone", NIGHTS)
def test_nights_in_which_clocks_change(zone: str, pattern: str) -> None:
    for night in NIGHTS[zone]:
        table = expected(zone, night, pattern)
        first, last = next(minutes(zone, night))[0], table[-1]
        told = list(takewhile(lambda at: at <= last, schedule.times(pattern, zone, after=first)))  # noqa: B023
        assert told == [at for at in table if at > first], night


def test_the_table_has_nights_that_change() -> None:
    """Else it would prove nothing."""
    for zone, nights in NIGHTS.items():
        for night in nights:
            offsets = {here.utcoffset() for _, here in minutes(zone, night)}
            assert (len(offsets) == 2) == (zone != "UTC"), (zone, night)


@pytest.mark.parametrize(
    "wrong", ["", "x", "0 2 * *", "0 2 * * * *", "60 2 * * *", "0 2 30 2 *", "@daily", "0 2 * * *\n"]
)
def test_what_is_no_schedule_is_refused(wrong: str) -> None:
    if wrong.endswith("\n"):
        assert next(schedule.times(wrong, "UTC", after=0)) == 7200  # blanks around it mean nothing
        return
    with pytest.raises(ToolError):
        schedule.check(wrong, "UTC", now=0)


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "Europe/Berlin\0", "x" * 65])
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(ToolError):
        schedule.check("0 2 * * *", zone, now=0)


def test_nothing_is_due_too_often() -> None:
    schedule.check("*/15 * * * *", "Europe/Berlin", now=1_774_742_400)  # the longest night
    with pytest.raises(ToolError):
        schedule.check("*/10 * * * *", "UTC", now=0)


def test_the_next_night_is_the_next_two_oclock() -> None:
    """Also without cronsim, in the night in which there is none."""
    for zone, night in (("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"), ("UTC", "2026-10-25")):
        for at, _ in list(minutes(zone, night))[::90]:
            assert schedule.next_night(at, zone) == next(schedule.times("0 2 * * *", zone, after=at))
