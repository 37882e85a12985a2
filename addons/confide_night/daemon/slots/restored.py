"""What a database that was put back from an older copy has forgotten: which slots runners have begun since. Nothing of that is begun again.

It holds for what the copy knows, and for orders that come once more from machines that never had an answer: the copy may not know them,
and a runner may have done them all the same.
"""

from __future__ import annotations

import contextlib
from typing import Final

from confide_crypto.errors import ConfideError
from confide_daemon.store.store import Store
from confide_night.daemon.queue.tables import queue
from confide_night.daemon.queue.tasks import TaskRow
from confide_night.daemon.slots import ledger, planning
from confide_night.daemon.slots.ledger import order_of
from confide_night.order.order import CLOCK_SKEW_S, Order
from confide_night.order.states import Event

RESTORES: Final = "task_restores"
"""So many are noted."""
RESTORED_AT: Final = "task_restored_at"
"""When the last one was, by the daemon's clock."""
BEHIND_S: Final = 2 * 3_600 + 120
"""By so much a clock may be behind when a folder is put back: what is due until then may have been begun by runners whose clocks are right.
Of 2,000 drawn nights one had a clock that had jumped back by two hours before that."""
RESTORED: Final = "restored: nobody knows whether it was begun"


def is_noted(store: Store) -> bool:
    """Whether nothing was put back that `note` has not seen."""
    return _restores(store) <= store.marks.find(RESTORES)


def note(store: Store, now: float) -> None:
    """Of a database that was put back, begin nothing that was due before that was known: it may have been, and by whom is forgotten."""
    restores = _restores(store)
    if restores <= store.marks.find(RESTORES):
        return
    store.marks.put(RESTORES, restores)
    forget(store, now)
    for task in queue(store).tasks.living():
        with contextlib.suppress(ConfideError):
            planning.plan(store, task, order_of(task), now)
    for slot in queue(store).slots.unended(due=int(now) + BEHIND_S):
        ledger.step(store, slot, Event.LOSE, now=now, reason=RESTORED)


def forget(store: Store, now: float) -> None:
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
            ledger.step(store, slot, Event.LOSE, now=now, reason=RESTORED)


def _restores(store: Store) -> int:
    life = store.lives.newest()
    return life.restores if life is not None else 0
