"""Changes the states of slots. No other module writes a slot's state; the allowed transitions are
in `order`.

Every function runs in its caller's transaction.
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
"""Number of failed or lost runs in a row that pauses a task."""
FIRST_RETRY_S: Final = 60.0
LONGEST_RETRY_S: Final = 3_600.0
UNREADABLE: Final = "(an order that cannot be read)"
_BROKEN: Final = frozenset({Slot.FAILED, Slot.LOST})


def order_of(task: TaskRow) -> Order:
    """Parse the order of a task. Raises OrderError if it is damaged or written by a newer version."""
    order = _parse(task.ordered)
    # Compare with the fields recorded when the order was added: an order with a flipped bit may
    # still parse.
    noted = (task.id, task.project, task.recipe, task.repo, task.priority, task.signer)
    if noted != (order.id, order.project, order.recipe, order.repo, order.priority, order.signer):
        raise OrderError("a task's order is damaged: it is not the one that was taken")
    return order


@lru_cache(maxsize=1024)
def _parse(data: bytes) -> Order:
    return Order.parse(data)


def is_readable(task: TaskRow) -> bool:
    """Return True if the order of a task can be parsed."""
    try:
        order_of(task)
    except OrderError:
        return False
    return True


def order_in(task: TaskRow) -> Order:
    """Return the order of a task, or a substitute if it cannot be read. With the substitute no slot
    starts, and due slots count as missed.

    One unreadable task must not stop the processing of the others.
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
    """Apply an event to a slot and store it, together with other changed fields. Return the new
    slot.

    Raises TaskStateError if the event is not allowed in the slot's state.
    """
    state = after(slot.state, event)
    if state in FINAL:
        changes = {"lease_until": None, "reserved": 0, "to_cancel": None, "ended_at": now, **changes}
    found = replace(slot, state=state, **changes)
    queue(store).slots.write(found)
    if state in FINAL:
        _follow(store, found, now)
    return found


def schedule_again(
    store: Store, slot: SlotRow, order: Order, reason: str, *, now: float, draw: random.Random
) -> SlotRow:
    """Schedule another attempt of a slot that never ran or was refused, after an exponential delay
    with full jitter. Mark it `failed` once its retries are used up.
    """
    if slot.attempt > order.retries:
        return step(store, slot, SlotEvent.FAIL, now=now, reason=reason)
    longest = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** (slot.attempt - 1))
    free = {"runner": None, "lease_until": None, "reserved": 0, "started_at": None}
    later = now + draw.uniform(0.0, longest)
    return step(
        store, slot, SlotEvent.AGAIN, now=now, attempt=slot.attempt + 1, next_try_at=later, reason=reason, **free
    )


def _follow(store: Store, slot: SlotRow, now: float) -> None:
    """Update a task after the end of a slot: pause it after `FAILURES` failed runs in a row, or
    mark it done if nothing remains.
    """
    task = queue(store).tasks.find(slot.task)
    if task is None or task.state in (TaskStatus.CANCELLED, TaskStatus.DONE):
        return
    last = queue(store).slots.last_outcomes(task.id, since=task.fresh_since, limit=FAILURES)
    if task.state is TaskStatus.ACTIVE and len(last) == FAILURES and _BROKEN.issuperset(last):
        queue(store).tasks.stand(task.id, TaskStatus.PAUSED, f"{FAILURES} of its runs failed in a row")
    elif is_over(store, task, now):
        queue(store).tasks.stand(task.id, TaskStatus.DONE)


def is_over(store: Store, task: TaskRow, now: float) -> bool:
    """Return True if no slot of a task waits, runs, or will become due."""
    order = order_in(task)
    if queue(store).slots.is_open(task.id):
        return False
    if now >= order.expires:
        return True
    only = queue(store).slots.find(task.id, order.at) if order.at is not None else None
    # A paused task stays paused to show its reason, unless its only run succeeded.
    return only is not None and (task.state is not TaskStatus.PAUSED or only.state is Slot.SUCCEEDED)
