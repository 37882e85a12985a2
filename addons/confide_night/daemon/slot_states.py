"""What becomes of a slot, written down: the only place in which its state changes, by the one table of what may follow what.

All of it runs in the transaction of whoever calls.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from confide_crypto.errors import OrderError
from confide_daemon.store.space_store import Store
from confide_night.daemon.task_queue import SlotRow, TaskRow, queue
from confide_night.order.order import FINAL, MAX_LASTS_S, Order, Slot, SlotEvent, TaskStatus, after

FAILURES: Final = 3
"""So many in a row pause a task."""
FIRST_RETRY_S: Final = 60.0
LONGEST_RETRY_S: Final = 3_600.0
UNREADABLE: Final = "(an order that cannot be read)"
_BROKEN: Final = frozenset({Slot.FAILED, Slot.LOST})


def order_of(task: TaskRow) -> Order:
    """What a task orders. Raises OrderError: its order is damaged, or a newer version has written it."""
    order = _parsed(task.ordered)
    # What was noted when it was taken. A bit of the order may have become another one, and it can be read all the same.
    noted = (task.id, task.project, task.recipe, task.repo, task.priority, task.signer)
    if noted != (order.id, order.project, order.recipe, order.repo, order.priority, order.signer):
        raise OrderError("a task's order is damaged: it is not the one that was taken")
    return order


@lru_cache(maxsize=1024)
def _parsed(data: bytes) -> Order:
    return Order.parse(data)


def is_readable(task: TaskRow) -> bool:
    """Whether anybody can tell what a task orders."""
    try:
        order_of(task)
    except OrderError:
        return False
    return True


def order_in(task: TaskRow) -> Order:
    """What a task orders, and where nobody can read that, what takes its place: nothing of it is begun, and what is due of it is missed.

    One task that cannot be read must not keep the others from being looked after.
    """
    try:
        return order_of(task)
    except OrderError:
        added = int(task.created_at)
        return Order(
            id=task.id,
            project=task.project,
            recipe=task.recipe,
            description=UNREADABLE,
            signer=task.signer,
            added=added,
            expires=added + MAX_LASTS_S,
            zone="UTC",
            at=added,
            missed="skip",
            retries=0,
        )


def step(store: Store, slot: SlotRow, event: SlotEvent, *, now: float, **changes: Any) -> SlotRow:
    """The slot behind what happened to it, written down; with these other fields changed.

    Raises TaskStateError: it cannot happen to it any more.
    """
    state = after(slot.state, event)
    if state in FINAL:
        changes = {"lease_until": None, "reserved": 0, "to_cancel": None, "ended_at": now, **changes}
    found = replace(slot, state=state, **changes)
    queue(store).slots.write(found)
    if state in FINAL:
        _follow(store, found, now)
    return found


def again(store: Store, slot: SlotRow, order: Order, reason: str, *, now: float, draw: random.Random) -> SlotRow:
    """The slot once what never ran, or was turned away, is to be tried again: after a while, with full jitter. `failed` once its retries
    are used up."""
    if slot.attempt > order.retries:
        return step(store, slot, SlotEvent.FAIL, now=now, reason=reason)
    longest = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** (slot.attempt - 1))
    free = {"runner": None, "lease_until": None, "reserved": 0, "started_at": None}
    later = now + draw.uniform(0.0, longest)
    return step(
        store, slot, SlotEvent.AGAIN, now=now, attempt=slot.attempt + 1, next_try_at=later, reason=reason, **free
    )


def _follow(store: Store, slot: SlotRow, now: float) -> None:
    """What the end of a slot does to its task: one that fails again and again is paused, one of which nothing is left is done."""
    task = queue(store).tasks.find(slot.task)
    if task is None or task.state in (TaskStatus.CANCELLED, TaskStatus.DONE):
        return
    last = queue(store).slots.last_ended(task.id, since=task.fresh_since, limit=FAILURES)
    if task.state is TaskStatus.ACTIVE and len(last) == FAILURES and _BROKEN.issuperset(last):
        queue(store).tasks.stand(task.id, TaskStatus.PAUSED, f"{FAILURES} of its runs failed in a row")
    elif is_over(store, task, now):
        queue(store).tasks.stand(task.id, TaskStatus.DONE)


def is_over(store: Store, task: TaskRow, now: float) -> bool:
    """Whether nothing of a task is due any more."""
    order = order_in(task)
    if queue(store).slots.is_open(task.id):
        return False
    if now >= order.expires:
        return True
    only = queue(store).slots.find(task.id, order.at) if order.at is not None else None
    # One that stands still for a reason goes on telling it, unless it came to its end all the same.
    return only is not None and (task.state is not TaskStatus.PAUSED or only.state is Slot.SUCCEEDED)
