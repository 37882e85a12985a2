"""What time does to the tasks of a space: leases end, slots become due, devices leave, and a database may have been put back.

All of it runs in the transaction of whoever calls, whatever the clock says since the last time.
"""

from __future__ import annotations

import random

from confide_crypto.sealing.roster import Roster
from confide_daemon.store.store import Store
from confide_night.daemon.queue.tables import queue
from confide_night.daemon.slots import claims, planning, restored
from confide_night.daemon.slots.claims import Lease, Runner
from confide_night.order.wire import LEASE_S


def begin(store: Store, *, now: float) -> None:
    """What a daemon does that starts: nobody could renew a lease meanwhile, so every one gets one length more."""
    queue(store).slots.lengthen(now, LEASE_S)


def is_idle(store: Store) -> bool:
    """Whether there is nothing of tasks to look after."""
    return not queue(store).tasks.count_living() and not queue(store).slots.held() and restored.is_noted(store)


def look(store: Store, roster: Roster | None, *, now: float, draw: random.Random) -> None:
    """Has all be as it is by now. `roster`: the devices of the space; None: they are not known."""
    restored.note(store, now)
    if roster is not None:
        claims.pause_removed(store, roster)
    claims.end_leases(store, now=now, draw=draw)
    planning.look_after(store, now)


def claim(
    store: Store, runner: Runner, roster: Roster, *, monthly: int, now: float, draw: random.Random
) -> Lease | None:
    """As `claims.claim`, once what has ended meanwhile has."""
    restored.note(store, now)
    claims.end_leases(store, now=now, draw=draw)
    return claims.claim(store, runner, roster, monthly=monthly, now=now)
