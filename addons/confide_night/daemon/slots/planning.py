"""Slots are made a day ahead, and end where nobody begins them.

The daemon's clock may jump. A slot is made once, whatever the clock says, since it is known by its task and its moment; and one that has
ended stays so. Where it jumps ahead, slots are missed; where it jumps back, they wait.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Final

from confide_crypto.errors import ConfideError
from confide_daemon.store.store import Store
from confide_night.daemon.queue.slots import SlotRow
from confide_night.daemon.queue.tables import queue
from confide_night.daemon.queue.tasks import TaskRow
from confide_night.daemon.slots.ledger import is_over, order_in, order_of, step
from confide_night.order.order import Order
from confide_night.order.schedule import MOST_A_DAY
from confide_night.order.states import Event, Task

AHEAD_S: Final = 86_400
_AGAIN_S: Final = 3_600
"""So often more of them are made."""
LONGEST_GAP_S: Final = 7 * 86_400
"""After a longer time without a daemon, nothing from before is made any more."""
_MOST_AT_ONCE: Final = MOST_A_DAY * (AHEAD_S + LONGEST_GAP_S) // 86_400
LATE_S: Final = 12 * 3_600
"""By so much later a slot is made up for, where one is."""
GRACE_S: Final = 600
"""By so much later it is begun where it is not made up for: a runner may be busy, and retries take their time."""
MADE_UP: Final = 7
"""So many of a task are made up for at most."""
NOBODY: Final = "nobody could begin it in time"
STILL_RAN: Final = "the one before it still ran"
REPLACED: Final = "the next one took its place"


def plan(store: Store, task: TaskRow, order: Order, now: float) -> None:
    """Makes the slots of a task up to a day ahead. Raises ConfideError: its schedule or zone is not known here."""
    to = int(now) + AHEAD_S
    if to - _AGAIN_S < task.planned_to <= to:
        return
    # A clock that jumped back: what was made stays, and what is missing is made.
    begin = int(now) if task.planned_to > to else max(task.planned_to, int(now) - LONGEST_GAP_S)
    if order.at is not None:
        begin = order.at - 1  # however long nobody was there, what is due once has its slot
    for at in islice(order.times(after=begin), _MOST_AT_ONCE):
        if at > to or at >= order.expires:
            break
        queue(store).slots.add(task.id, at)
    queue(store).tasks.planned(task.id, to)


def settle_due(store: Store, task: TaskRow, order: Order, now: float) -> None:
    """Ends the slots of a task that are due and are not to be begun any more."""
    due = queue(store).slots.due(task.id, now=now)
    if not due:
        return
    ran_until = queue(store).slots.ended_last(task.id)
    held = [one for one in queue(store).slots.held() if one.task == task.id]
    if held and task.state is Task.ACTIVE:
        due = _beside(store, order, held, due, now)
    elif order.overlap == "queue":
        # Those that waited behind another one are late by that alone.
        queued = [one for one in due if one.at <= ran_until]
        due = [one for one in due if one.at > ran_until]
        _miss(store, queued[:-MADE_UP] + [one for one in queued if now > ran_until + LATE_S], now)
    _miss(store, _too_late(order, due, now), now)


def _too_late(order: Order, due: list[SlotRow], now: float) -> list[SlotRow]:
    """Of slots that nobody has begun, those that nobody is to begin any more."""
    if now >= order.expires:
        return due
    if order.missed == "all":
        return due[:-MADE_UP]
    late_s = LATE_S if order.missed == "once" else GRACE_S
    # One that is tried again was begun in time.
    newest, older = due[-1:], due[:-1]
    if order.missed == "skip":
        newest, older = due, []
    return older + [one for one in newest if now > max(one.at, one.next_try_at) + late_s]


def _beside(store: Store, order: Order, held: list[SlotRow], due: list[SlotRow], now: float) -> list[SlotRow]:
    """What is left of the slots that are due while one of the same task runs."""
    fresh = [one for one in due if one.attempt == 1 and one.at > max(each.at for each in held)]
    if order.overlap == "skip":
        for one in fresh:
            step(store, one, Event.SKIP, now=now, reason=STILL_RAN)
        return [one for one in due if one not in fresh]
    if order.overlap == "replace" and fresh:
        for each in held:
            if each.to_cancel is None:
                queue(store).slots.write(replace(each, to_cancel=REPLACED))
        return due
    return []  # they queue, and are looked at when it has ended


def _miss(store: Store, slots: list[SlotRow], now: float) -> None:
    for one in dict.fromkeys(slots):
        step(store, one, Event.MISS, now=now, reason=one.reason or NOBODY)


def look_after(store: Store, now: float) -> None:
    """Plans every task, ends what nobody is to begin any more, and sees which tasks are over."""
    for task in queue(store).tasks.living():
        order = order_in(task)
        if task.state in (Task.ACTIVE, Task.PROPOSED):
            try:
                plan(store, task, order_of(task), now)
            except ConfideError as error:
                queue(store).tasks.stand(task.id, Task.PAUSED, error.message)
                continue
        settle_due(store, task, order, now)
        if is_over(store, task, now):
            queue(store).tasks.stand(task.id, Task.DONE)
