"""What time does to the tasks of a space: leases end, slots become due, devices leave, and a database may have been put back.

All of it runs in the transaction of whoever calls, whatever the clock says since the last time.
"""

from __future__ import annotations

import contextlib
import random
from typing import Final

from confide_crypto.errors import ConfideError
from confide_crypto.sealing.roster import Roster
from confide_daemon.store.store import Store
from confide_daemon.tasks import claims, ledger, planning
from confide_daemon.tasks.claims import Lease, Runner
from confide_daemon.tasks.ledger import order_of
from confide_memory.tasks.states import Event
from confide_memory.tasks.wire import LEASE_S

RESTORES: Final = "task_restores"
BEHIND_S: Final = 2 * 3_600 + 120
"""By so much a clock may be behind when a folder is put back: what is due until then may have been begun by runners whose clocks are right.
Of 2,000 drawn nights one had a clock that had jumped back by two hours before that."""
RESTORED: Final = "restored: nobody knows whether it was begun"


def begin(store: Store, *, now: float) -> None:
    """What a daemon does that starts: nobody could renew a lease meanwhile, so every one gets one length more."""
    store.slots.lengthen(now, LEASE_S)


def look(store: Store, roster: Roster | None, *, now: float, draw: random.Random) -> None:
    """Has all be as it is by now. `roster`: the devices of the space; None: they are not known."""
    note_restores(store, now)
    if roster is not None:
        claims.pause_removed(store, roster)
    claims.end_leases(store, now=now, draw=draw)
    planning.look_after(store, now)


def claim(
    store: Store, runner: Runner, roster: Roster, *, monthly: int, now: float, draw: random.Random
) -> Lease | None:
    """As `claims.claim`, once what has ended meanwhile has."""
    note_restores(store, now)
    claims.end_leases(store, now=now, draw=draw)
    return claims.claim(store, runner, roster, monthly=monthly, now=now)


def note_restores(store: Store, now: float) -> None:
    """Of a database that was put back, begin nothing that was due before that was known: it may have been, and by whom is forgotten."""
    life = store.lives.newest()
    restores = life.restores if life is not None else 0
    if restores <= store.marks.find(RESTORES):
        return
    store.marks.put(RESTORES, restores)
    for task in store.tasks.living():
        with contextlib.suppress(ConfideError):
            planning.plan(store, task, order_of(task.ordered), now)
    for slot in store.slots.unended(due=int(now) + BEHIND_S):
        ledger.step(store, slot, Event.LOSE, now=now, reason=RESTORED)
