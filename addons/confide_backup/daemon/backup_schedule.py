"""The schedule of snapshots by the local clock, which may jump; the retention rules; and the
operator's programs that copy a snapshot elsewhere and fetch it.

Retention follows restic: of each of the configured numbers of days, weeks and months, the newest
snapshot is kept. Only a verified snapshot allows an older one to be removed. A snapshot stays if it
has data of a space that no newer verified snapshot has, so data is kept even if the space was
locked during a later copy and has changed since.

Programs run without a shell and with a timeout. Their output goes to the daemon's stderr, since the
operator chose them and it explains their failures.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confide_backup.errors import HookError

END_S: Final = 5.0
"""Seconds between SIGTERM and SIGKILL of a program."""
_PLACE: Final = re.compile(r"\{(snapshot|name|folder)\}")
_STDERR: Final = 2

_DAY_S: Final = 86_400


def last_due(now: float, minute: int) -> float:
    """Return the last time at or before `now` when a snapshot was due. `minute` is the configured
    minute of the day, in local time.

    If a clock change skips that time of day, the time just after the gap counts.
    """
    for days in range(3):
        then = time.localtime(now - days * _DAY_S)
        due = time.mktime((then.tm_year, then.tm_mon, then.tm_mday, minute // 60, minute % 60, 0, 0, 0, -1))
        if due <= now:
            return due
    return now  # no clock has such a day


def is_due(now: float, minute: int, newest: float | None) -> bool:
    """Return True if a snapshot is due. `minute` is the configured minute of the day; `newest` is
    the time of the newest snapshot, or None if there is no snapshot.

    A snapshot that was missed while the computer was off is due at once. A newest snapshot with a
    time in the future does not count, since the clock was corrected since then.
    """
    return newest is None or newest > now or newest < last_due(now, minute)


@dataclass(frozen=True, slots=True)
class Keep:
    """The number of snapshots to keep of each period. If all are 0, no snapshot is ever removed."""

    daily: int
    weekly: int
    monthly: int


@dataclass(frozen=True, slots=True)
class ScheduledSnapshot:
    """The data of a snapshot that the schedule and the retention rules need."""

    id: str
    number: int  # counts up, independent of the clock
    at: int  # seconds since 1970
    is_sound: bool  # it was verified, and nothing was found wrong
    proven: frozenset[str]  # the spaces that are proven
    contents: Mapping[str, bytes]  # hash of each space's bytes, by its id


# Days, weeks and months in UTC, so that no change of the time zone splits a day in two.
_SPANS: Final[Mapping[str, Callable[[time.struct_time], Any]]] = {
    "daily": lambda then: then[:3],
    "weekly": lambda then: time.strftime("%G-%V", then),
    "monthly": lambda then: then[:2],
}


def let_go(there: Sequence[ScheduledSnapshot], keep: Keep) -> list[str]:
    """Return the names of the snapshots that the retention rules remove, oldest first."""
    newest_first = sorted(there, key=lambda one: one.number, reverse=True)
    sound = [one for one in newest_first if one.is_sound]
    if not sound or not (keep.daily or keep.weekly or keep.monthly):
        return []
    staying = {sound[0].id} | {one.id for one in newest_first if one.number > sound[0].number}
    # Keeps the newest snapshot with every part proven: it restores a daemon whose devices and their
    # keys are lost.
    staying |= {one.id for one in [one for one in sound if one.proven == one.contents.keys()][:1]}
    for span, period in _SPANS.items():
        staying |= _newest_of_each(sound, getattr(keep, span), period)
    going = []
    for one in reversed(newest_first):
        newer = [other for other in sound if other.id in staying and other.number > one.number]
        if one.id not in staying and newer and _is_covered(one, newer):
            going.append(one.id)
    return going


def _newest_of_each(
    sound: Sequence[ScheduledSnapshot], count: int, period: Callable[[time.struct_time], Any]
) -> set[str]:
    found: dict[Any, str] = {}
    for one in sound:
        found.setdefault(period(time.gmtime(one.at)), one.id)
    return set(list(found.values())[:count])


def _is_covered(one: ScheduledSnapshot, newer: Sequence[ScheduledSnapshot]) -> bool:
    """Return True if a newer snapshot that stays covers each space: proven there, byte by byte the
    same, or missing in the newest.
    """
    return all(
        space_id not in newer[0].contents
        or any(space_id in other.proven or other.contents.get(space_id) == content for other in newer)
        for space_id, content in one.contents.items()
    )


async def run(argv: Sequence[str], places: Mapping[str, str], *, timeout_s: float, folder: Path) -> None:
    """Run a program in a folder and wait for its end; on timeout or cancellation, kill its whole
    process group.

    `places` has the values for `{snapshot}`, `{name}` and `{folder}` in the arguments; other braces
    stay as they are.

    Raise HookError if the program cannot be started, fails, or takes too long.
    """
    command = [_PLACE.sub(lambda found: places.get(found[1], found[0]), argument) for argument in argv]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,
            stderr=_STDERR,
            cwd=folder,
            start_new_session=True,  # own process group, which is killed as one
        )
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or type(error).__name__).lower()
        raise HookError(command[0], f"cannot be started: {why}") from None
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
    except TimeoutError:
        await _end(process)
        raise HookError(command[0], f"has not ended within {timeout_s:g} s, and was ended") from None
    except BaseException:
        await _end(process)
        raise
    if code:
        why = f"has failed: it ended with {code}" if code > 0 else f"was killed by signal {-code}"
        raise HookError(command[0], why)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process group, also processes that outlive the first one."""
    # `asyncio.timeout` does not work in a task that is being cancelled (Python 3.11.2).
    ended = asyncio.ensure_future(process.wait())
    # ProcessLookupError: the group has ended, and another may have its number; macOS reports EPERM
    # for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(process.pid, number)
            deadline = time.monotonic() + END_S
            await asyncio.wait([ended], timeout=END_S)
            while time.monotonic() < deadline:
                os.killpg(process.pid, 0)
                await asyncio.sleep(0.02)
    await ended
