"""When a task is due: once, or by a line of cron in a time zone.

cronsim, imported late, reads the line, and gives the times that a clock shows. When a zone's clock shows them is said here, by Debian
cron's rules for nights in which clocks change: a fixed time comes once in a night that has it twice, and at the first moment behind a gap;
where minute or hour is `*`, it comes as often as the clock shows it. All times are whole seconds since 1970.
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
"""Times within 24 hours: every 15 minutes."""
USUAL_HOUR: Final = 2
"""Where nothing is said, a task is due at the next two o'clock of the night."""
SPREAD_S: Final = 300
"""So many seconds later at most, by its id: not all of a night begin at the same second."""
_DAY_S: Final = 86_400
_LAST: Final = 253_370_764_800
"""The year 9999: no clock says more."""


def spread_s(task: str) -> int:
    """By how many seconds a task, whose id is in hex, is due later than its line says."""
    return int(task, 16) % (SPREAD_S + 1)


def next_night(now: float, zone: str) -> int:
    """The next two o'clock of the night there; without cronsim, which not every machine has. Raises ToolError: no such zone."""
    here = datetime.fromtimestamp(now, UTC).astimezone(_zone(zone))
    night = here.replace(hour=USUAL_HOUR, minute=0, second=0, microsecond=0, fold=0)
    found = (int((night + timedelta(days=days)).timestamp()) for days in range(3))
    return next(at for at in found if at > now)


def in_zone(moment: datetime, zone: str) -> datetime:
    """A time that names no zone, in this one. Raises ToolError: no such zone."""
    return moment.replace(tzinfo=_zone(zone))


def check(schedule: str, zone: str, *, now: float) -> None:
    """Check that a line of cron is one, has a time to come, and not more than `MOST_A_DAY` in a day.

    Raises ToolError.
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
    """The times of a line of cron behind a moment, each once, in order. Raises ToolError: it is none, or there is no such zone."""
    from cronsim import CronSim, CronSimError

    if len(schedule) > MAX_SCHEDULE_CHARS or len(schedule.split()) != 5 or not schedule.isascii():
        raise _no_schedule()
    place = _zone(zone)
    # From the day before: what stands in a gap comes later than it says, and so would be passed over.
    begin = datetime.fromtimestamp(max(0, min(after, _LAST)), UTC).astimezone(place) - timedelta(days=1)
    try:
        # Of what clocks show alone: where clocks go back by half an hour, cronsim passes over times of a zone.
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
        return  # behind the last year that a calendar has


def _moments(shown: Iterable[datetime], place: ZoneInfo, *, is_fixed: bool) -> Iterator[int]:
    """When a zone's clock shows these times, in order: fixed ones once, the others as often as it does."""
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
            # What is shown a second time comes behind what is shown for the first time until then.
            while later and later[0] < at:
                yield heappop(later)
            yield at
            if again > at:
                heappush(later, again)


def _is_in_gap(moment: datetime) -> bool:
    """Whether the zone's clock never shows that."""
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) != moment.replace(tzinfo=None)


def check_zone(zone: str) -> None:
    """Check that this is the name of a time zone. Raises ToolError."""
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
