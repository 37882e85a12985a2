"""Slots are made a day ahead, and end where nobody begins them; and nothing is begun that a database which was put back has forgotten.

The daemon's clock may jump. A slot is made once, whatever the clock says, since it is known by its task and its moment; and one that has
ended stays so. Where it jumps ahead, slots are missed; where it jumps back, they wait. What was put back from an older copy does not know
which slots runners have begun since. That holds for what the copy knows, and for orders that come once more from machines that never had
an answer: the copy may not know them, and a runner may have done them all the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import islice
from typing import Final

from confide_crypto.errors import ConfideError
from confide_daemon.store.space_store import Store
from confide_night.daemon import slot_states
from confide_night.daemon.slot_states import is_over, order_in, order_of, step
from confide_night.daemon.task_queue import SlotRow, TaskRow, queue
from confide_night.order.order import CLOCK_SKEW_S, Order, SlotEvent, TaskStatus
from confide_night.order.schedule import MOST_A_DAY

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
    if held and task.state is TaskStatus.ACTIVE:
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
            step(store, one, SlotEvent.SKIP, now=now, reason=STILL_RAN)
        return [one for one in due if one not in fresh]
    if order.overlap == "replace" and fresh:
        for each in held:
            if each.to_cancel is None:
                queue(store).slots.write(replace(each, to_cancel=REPLACED))
        return due
    return []  # they queue, and are looked at when it has ended


def _miss(store: Store, slots: list[SlotRow], now: float) -> None:
    for one in dict.fromkeys(slots):
        step(store, one, SlotEvent.MISS, now=now, reason=one.reason or NOBODY)


def look_after(store: Store, now: float) -> None:
    """Plans every task, ends what nobody is to begin any more, and sees which tasks are over."""
    for task in queue(store).tasks.living():
        order = order_in(task)
        if task.state in (TaskStatus.ACTIVE, TaskStatus.PROPOSED):
            try:
                plan(store, task, order_of(task), now)
            except ConfideError as error:
                queue(store).tasks.stand(task.id, TaskStatus.PAUSED, error.message)
                continue
        settle_due(store, task, order, now)
        if is_over(store, task, now):
            queue(store).tasks.stand(task.id, TaskStatus.DONE)


RESTORES: Final = "task_restores"
"""So many are noted."""
RESTORED_AT: Final = "task_restored_at"
"""When the last one was, by the daemon's clock."""
BEHIND_S: Final = 2 * 3_600 + 120
"""By so much a clock may be behind when a folder is put back: what is due until then may have been begun by runners whose clocks are right.
Of 2,000 drawn nights one had a clock that had jumped back by two hours before that."""
RESTORED: Final = "restored: nobody knows whether it was begun"


def is_restore_noted(store: Store) -> bool:
    """Whether nothing was put back that `note_restore` has not seen."""
    return _restores(store) <= store.marks.find(RESTORES)


def note_restore(store: Store, now: float) -> None:
    """Of a database that was put back, begin nothing that was due before that was known: it may have been, and by whom is forgotten."""
    restores = _restores(store)
    if restores <= store.marks.find(RESTORES):
        return
    store.marks.put(RESTORES, restores)
    forget_begun(store, now)
    for task in queue(store).tasks.living():
        with contextlib.suppress(ConfideError):
            plan(store, task, order_of(task), now)
    for slot in queue(store).slots.unended(due=int(now) + BEHIND_S):
        slot_states.step(store, slot, SlotEvent.LOSE, now=now, reason=RESTORED)


def forget_begun(store: Store, now: float) -> None:
    """What runners have begun until now is not known here: an order from before that comes once more may have been followed."""
    store.marks.put(RESTORED_AT, now)


def note_order(store: Store, task: TaskRow, order: Order, now: float) -> None:
    """Of an order that comes now, and may have been here in the time that is forgotten, begin nothing that was due then.

    One that its machine has given just now, behind the restore by both clocks, is new.
    """
    restored_at = store.marks.find(RESTORED_AT)
    is_new = order.added > restored_at and abs(now - order.added) <= CLOCK_SKEW_S
    if not restored_at or is_new or order.added > restored_at + BEHIND_S:
        return
    for slot in queue(store).slots.waiting(task.id):
        if slot.at <= restored_at + BEHIND_S:
            slot_states.step(store, slot, SlotEvent.LOSE, now=now, reason=RESTORED)


def _restores(store: Store) -> int:
    life = store.lives.newest()
    return life.restores if life is not None else 0
