"""Plans slots one day ahead, ends slots that no runner starts, and prevents a slot from starting
twice after the database was restored.

The daemon's clock may jump. A task and a time identify a slot, so it is created once whatever the
clock says, and an ended slot stays ended. If the clock jumps ahead, slots are missed; if it jumps
back, they wait. A database that was restored from an older copy does not know which slots runners
have started since. So slots that it knows are marked as lost, and so are those of older orders that
devices send again: the copy may not know such an order although a runner has executed it.
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
"""Interval at which a task's plan is extended, in seconds."""
LONGEST_GAP_S: Final = 7 * 86_400
"""Longest downtime of the daemon for which slots of recurring tasks are still planned afterwards,
in seconds.
"""
_MOST_AT_ONCE: Final = MOST_A_DAY * (AHEAD_S + LONGEST_GAP_S) // 86_400
LATE_S: Final = 12 * 3_600
"""How late a missed slot may still start if the order allows it (`missed`), in seconds."""
GRACE_S: Final = 600
"""How late a slot may start if the order skips missed ones, in seconds: a runner may be busy, and
retries take time.
"""
MADE_UP: Final = 7
"""Most missed or queued slots of a task that still start."""
NOBODY: Final = "no runner could begin it in time"
STILL_RAN: Final = "the one before it still ran"
REPLACED: Final = "the next one took its place"


def plan(store: Store, task: TaskRow, order: Order, now: float) -> None:
    """Create the slots of a task up to one day ahead. Raises ConfideError if its schedule or time
    zone is unknown here.
    """
    to = int(now) + AHEAD_S
    if to - _AGAIN_S < task.planned_to <= to:
        return
    # After a clock jumped back, existing slots stay, and missing ones are created.
    begin = int(now) if task.planned_to > to else max(task.planned_to, int(now) - LONGEST_GAP_S)
    if order.at is not None:
        begin = order.at - 1  # a one-time task gets its slot after any downtime
    for at in islice(order.times(after=begin), _MOST_AT_ONCE):
        if at > to or at >= order.expires:
            break
        queue(store).slots.add(task.id, at)
    queue(store).tasks.record_planned(task.id, to)


def settle_due(store: Store, task: TaskRow, order: Order, now: float) -> None:
    """End the due slots of a task that may no longer start, by the order's rules for late slots and
    for slots that overlap a run.
    """
    due = queue(store).slots.due(task.id, now=now)
    if not due:
        return
    ran_until = queue(store).slots.last_end(task.id)
    held = [one for one in queue(store).slots.list_held() if one.task == task.id]
    if held and task.state is TaskStatus.ACTIVE:
        due = _apply_overlap(store, order, held, due, now)
    elif order.overlap == "queue":
        # Queued slots are late only because they waited for a run of the same task.
        queued = [one for one in due if one.at <= ran_until]
        due = [one for one in due if one.at > ran_until]
        _miss(store, queued[:-MADE_UP] + [one for one in queued if now > ran_until + LATE_S], now)
    _miss(store, _too_late(order, due, now), now)


def _too_late(order: Order, due: list[SlotRow], now: float) -> list[SlotRow]:
    """Return the waiting slots that may no longer start, by the order's expiry and its `missed`
    rule.
    """
    if now >= order.expires:
        return due
    if order.missed == "all":
        return due[:-MADE_UP]
    late_s = LATE_S if order.missed == "once" else GRACE_S
    # A slot that is retried was started in time.
    newest, older = due[-1:], due[:-1]
    if order.missed == "skip":
        newest, older = due, []
    return older + [one for one in newest if now > max(one.at, one.next_try_at) + late_s]


def _apply_overlap(store: Store, order: Order, held: list[SlotRow], due: list[SlotRow], now: float) -> list[SlotRow]:
    """Apply the order's `overlap` rule to slots that are due while the task runs; return those
    still to be checked for lateness.
    """
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
    return []  # they stay queued until the run has ended


def _miss(store: Store, slots: list[SlotRow], now: float) -> None:
    for one in dict.fromkeys(slots):
        step(store, one, SlotEvent.MISS, now=now, reason=one.reason or NOBODY)


def look_after(store: Store, now: float) -> None:
    """Plan the slots of every task, end slots that may no longer start, and mark finished tasks as
    done.
    """
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
"""Mark: number of database restores that have been handled."""
RESTORED_AT: Final = "task_restored_at"
"""Mark: time of the last restore, by the daemon's clock."""
BEHIND_S: Final = 2 * 3_600 + 120
"""How far the clock may be behind when a database is restored, in seconds: runners with correct
clocks may have started whatever is due until then. In a simulation of 2,000 random nights, one had
a clock that had jumped back by two hours before the restore.
"""
RESTORED: Final = "restored: it is not known whether it was begun"


def is_restore_noted(store: Store) -> bool:
    """Return True if `note_restore` has handled every restore of the database."""
    return _restores(store) <= store.marks.find(RESTORES)


def note_restore(store: Store, now: float) -> None:
    """After a restore of the database, mark as lost every unended slot that is due within
    `BEHIND_S` from now or earlier: a runner may have started it, and the restored copy has no
    record of that.
    """
    restores = _restores(store)
    if restores <= store.marks.find(RESTORES):
        return
    store.marks.put(RESTORES, restores)
    forget_begun(store, now)
    for task in queue(store).tasks.living():
        with contextlib.suppress(ConfideError):
            plan(store, task, order_of(task), now)
    for slot in queue(store).slots.list_due(due=int(now) + BEHIND_S):
        slot_states.step(store, slot, SlotEvent.LOSE, now=now, reason=RESTORED)


def forget_begun(store: Store, now: float) -> None:
    """Record that the database does not know which runs were started before `now`, so that an older
    order that is sent again may have been executed.
    """
    store.marks.put(RESTORED_AT, now)


def note_order(store: Store, task: TaskRow, order: Order, now: float) -> None:
    """Mark the slots of an order that was just added as lost if they were due before a restore of
    the database and the order may have been added before it.

    An order that its device created just now and after the restore, by the clocks of both, is new
    and stays unchanged.
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
