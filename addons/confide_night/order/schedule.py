"""Computes when a task is due: once, or by a cron expression in a time zone.

The library cronsim, imported late, parses the expression and yields local times. This module maps
them to absolute times by the rules of Debian's cron for changes of the clock: a fixed time occurs
once in a night that has it twice, and at the first moment after a gap; a time with `*` as minute or
hour occurs as often as the clock shows it. All times are whole seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from confide_memory.errors import ToolError

MAX_SCHEDULE_CHARS: Final = 128
MAX_ZONE_CHARS: Final = 64
MOST_A_DAY: Final = 96
"""Most times within 24 hours: every 15 minutes."""
USUAL_HOUR: Final = 2
"""Default hour: a task without a time is due at the next 02:00."""
SPREAD_S: Final = 300
"""Largest delay in seconds, derived from the task's id, so that not all tasks of a night start at
the same second.
"""
_DAY_S: Final = 86_400
_LAST: Final = 253_370_764_800
"""The year 9999, the latest that `datetime` supports."""


def spread_s(task: str) -> int:
    """Return the delay in seconds by which a task's default time is shifted, so that tasks do not
    all start at once. It is derived from the task's hexadecimal id.
    """
    return int(task, 16) % (SPREAD_S + 1)


def next_night(now: float, zone: str) -> int:
    """Return the next 02:00 in a zone. Works without cronsim, which is not installed everywhere.
    Raises ToolError if the zone is unknown.
    """
    here = datetime.fromtimestamp(now, UTC).astimezone(_zone(zone))
    night = here.replace(hour=USUAL_HOUR, minute=0, second=0, microsecond=0, fold=0)
    found = (int((night + timedelta(days=days)).timestamp()) for days in range(3))
    return next(at for at in found if at > now)


def in_zone(moment: datetime, zone: str) -> datetime:
    """Interpret a time without a zone in this zone. Raises ToolError if the zone is unknown."""
    return moment.replace(tzinfo=_zone(zone))


def check(schedule: str, zone: str, *, now: float) -> None:
    """Check that a cron expression is valid, has a future time, and at most `MOST_A_DAY` times a
    day.

    Raises ToolError if not.
    """
    first = None
    for number, moment in enumerate(times(schedule, zone, after=int(now))):
        first = moment if first is None else first
        if moment >= first + _DAY_S:
            return
        if number >= MOST_A_DAY:
            raise ToolError("a task cannot be due so often", hint=f"at most {MOST_A_DAY} times a day")
    if first is None:
        raise ToolError("the schedule has no time to come", hint="does that day exist?")


def times(schedule: str, zone: str, *, after: int) -> Iterator[int]:
    """Yield the times of a cron expression after `after`, each once, in order. Raises ToolError if
    the expression or the zone is invalid.
    """
    from cronsim import CronSim, CronSimError

    if len(schedule) > MAX_SCHEDULE_CHARS or len(schedule.split()) != 5 or not schedule.isascii():
        raise _no_schedule()
    place = _zone(zone)
    # Start one day earlier: a time in a gap is shifted to later, and would otherwise be missed.
    begin = datetime.fromtimestamp(max(0, min(after, _LAST)), UTC).astimezone(place) - timedelta(days=1)
    try:
        # Pass local times without a zone: cronsim skips times where clocks go back by half an hour.
        shown = CronSim(schedule, begin.replace(tzinfo=None))
    except (CronSimError, ValueError, OverflowError):
        raise _no_schedule() from None
    minute, hour = schedule.split()[:2]
    is_fixed = not minute.startswith("*") and not hour.startswith("*")
    last = after
    try:
        for at in _moments(shown, place, is_fixed=is_fixed):
            if at > last:
                yield at
                last = at
    except (OverflowError, ValueError):
        return  # after the last year of `datetime`


def _moments(shown: Iterable[datetime], place: ZoneInfo, *, is_fixed: bool) -> Iterator[int]:
    """Yield the absolute times of local times in order: fixed ones once, others as often as the
    clock shows them.
    """
    later: list[int] = []
    for wall in shown:
        first = wall.replace(tzinfo=place, fold=0)
        if is_fixed:
            while _is_in_gap(first):
                wall += timedelta(minutes=1)
                first = wall.replace(tzinfo=place, fold=0)
            yield int(first.timestamp())
        elif not _is_in_gap(first):
            at, again = int(first.timestamp()), int(first.replace(fold=1).timestamp())
            # A repeated local time comes after every first occurrence before it.
            while later and later[0] < at:
                yield heappop(later)
            yield at
            if again > at:
                heappush(later, again)


def _is_in_gap(moment: datetime) -> bool:
    """Return True if the zone's clock never shows this local time."""
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) != moment.replace(tzinfo=None)


def check_zone(zone: str) -> None:
    """Check that this is the name of a time zone. Raises ToolError if not."""
    _zone(zone)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:

    try:
        if not 0 < len(name) <= MAX_ZONE_CHARS or not name.isascii():
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        problem = "there is no time zone of that name here"
        raise ToolError(problem, hint="as in Europe/Berlin; where even UTC is not known, install tzdata") from None


def _no_schedule() -> ToolError:
    return ToolError("the schedule is no line of cron", hint='minute hour day month weekday, as "30 2 * * 1-5"')
