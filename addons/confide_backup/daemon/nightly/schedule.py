"""When the nightly snapshot is due, by this machine's clock, which may jump. Pure."""

from __future__ import annotations

import time
from typing import Final

_DAY_S: Final = 86_400


def last_due(now: float, minute: int) -> float:
    """The last moment at or before now at which one was due; `minute` is of the day, local time.

    A time that a change of the clock leaves out that day is the moment behind it.
    """
    for days in range(3):
        then = time.localtime(now - days * _DAY_S)
        due = time.mktime((then.tm_year, then.tm_mon, then.tm_mday, minute // 60, minute % 60, 0, 0, 0, -1))
        if due <= now:
            return due
    return now  # no clock has such a day


def is_due(now: float, minute: int, newest: float | None) -> bool:
    """Whether one is to be taken now; `newest`: when the newest was taken, None where there is none.

    One that was missed, since the machine was off, is taken as soon as it is on. One from a time that is yet to come says nothing: the
    clock was put right since.
    """
    return newest is None or newest > now or newest < last_due(now, minute)
