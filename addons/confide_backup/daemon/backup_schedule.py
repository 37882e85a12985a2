"""What comes with a night: when a snapshot is due, by this machine's clock, which may jump; which snapshots may go for it, in restic's
words: the newest of so many days, weeks and months are kept; and programs of the operator's that carry one elsewhere, and bring it back.

Only what was proven lets an older one go. A space of which an older snapshot has what no newer proven one has keeps that one, so a space
that was locked when it was copied, and has changed since, is not lost.

Programs are argv without a shell, with a deadline. What they print goes to the daemon's stderr: it is the operator's own, and says why
one has failed.
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

from confide_daemon.errors import HookError

END_S: Final = 5.0
"""Between asking a program to end and ending it."""
_PLACE: Final = re.compile(r"\{(snapshot|name|folder)\}")
_STDERR: Final = 2

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


@dataclass(frozen=True, slots=True)
class Keep:
    """How many of each are kept; all 0: nothing is ever let go."""

    daily: int
    weekly: int
    monthly: int


@dataclass(frozen=True, slots=True)
class ScheduledSnapshot:
    """A snapshot, as far as it matters here."""

    id: str
    number: int  # rising, whatever the clock says
    at: int  # seconds since 1970
    is_sound: bool  # it was verified, and nothing was found wrong
    proven: frozenset[str]  # the spaces that opened and gave what they gave
    contents: Mapping[str, bytes]  # by the ids of all its spaces: the same where the bytes are


# A day, a week and a month as they are counted: UTC, so that no change of the clock's zone makes a day two.
_SPANS: Final[Mapping[str, Callable[[time.struct_time], Any]]] = {
    "daily": lambda then: then[:3],
    "weekly": lambda then: time.strftime("%G-%V", then),
    "monthly": lambda then: then[:2],
}


def let_go(there: Sequence[ScheduledSnapshot], keep: Keep) -> list[str]:
    """The names of those that may go, the oldest first. Those that are not listed here stay in any case."""
    newest_first = sorted(there, key=lambda one: one.number, reverse=True)
    sound = [one for one in newest_first if one.is_sound]
    if not sound or not (keep.daily or keep.weekly or keep.monthly):
        return []
    staying = {sound[0].id} | {one.id for one in newest_first if one.number > sound[0].number}
    # The newest of which every part is proven is the one to go back to when the daemon is lost with its machines' keys.
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
    """Whether each of its spaces is in a newer one that stays: proven, or byte by byte the same, or gone from the newest."""
    return all(
        space_id not in newer[0].contents
        or any(space_id in other.proven or other.contents.get(space_id) == content for other in newer)
        for space_id, content in one.contents.items()
    )


async def run(argv: Sequence[str], places: Mapping[str, str], *, timeout_s: float, folder: Path) -> None:
    """Runs one in a folder, until it ends; where that takes too long, or this is cancelled, it is ended with all that it has started.

    `places`: what is put for `{snapshot}`, `{name}` and `{folder}` in its arguments; other braces are left alone.

    Raises HookError: it cannot be started, fails, or takes too long.
    """
    command = [_PLACE.sub(lambda found: places.get(found[1], found[0]), argument) for argument in argv]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,
            stderr=_STDERR,
            cwd=folder,
            start_new_session=True,  # a group of its own, to be ended as one
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
    """Ends the group, also what of it outlives its first process."""
    # Not `asyncio.timeout`, which does not work in a task that is being cancelled (Python 3.11.2).
    ended = asyncio.ensure_future(process.wait())
    # ProcessLookupError: all of it has ended, and its number may be another's; macOS says EPERM of a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(process.pid, number)
            deadline = time.monotonic() + END_S
            await asyncio.wait([ended], timeout=END_S)
            while time.monotonic() < deadline:
                os.killpg(process.pid, 0)
                await asyncio.sleep(0.02)
    await ended
