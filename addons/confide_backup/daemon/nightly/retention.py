"""Which snapshots may go, in restic's words: the newest of so many days, weeks and months are kept.

Only what was proven lets an older one go. A space of which an older snapshot has what no newer proven one has keeps that one, so a space
that was locked when it was copied, and has changed since, is not lost. Pure: what there is in, names out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Keep:
    """How many of each are kept; all 0: nothing is ever let go."""

    daily: int
    weekly: int
    monthly: int


@dataclass(frozen=True, slots=True)
class Kept:
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


def let_go(there: Sequence[Kept], keep: Keep) -> list[str]:
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


def _newest_of_each(sound: Sequence[Kept], count: int, period: Callable[[time.struct_time], Any]) -> set[str]:
    found: dict[Any, str] = {}
    for one in sound:
        found.setdefault(period(time.gmtime(one.at)), one.id)
    return set(list(found.values())[:count])


def _is_covered(one: Kept, newer: Sequence[Kept]) -> bool:
    """Whether each of its spaces is in a newer one that stays: proven, or byte by byte the same, or gone from the newest."""
    return all(
        space_id not in newer[0].contents
        or any(space_id in other.proven or other.contents.get(space_id) == content for other in newer)
        for space_id, content in one.contents.items()
    )
