"""Answers the runners' requests (PROTOCOL.md 9.10), each in one transaction.

At most one runner has a slot at a time. A lease that expires and a fencing number that only grows
ensure this. The highest price of a run is reserved before it starts.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from confide_crypto.errors import OrderError, RequestError
from confide_crypto.sealing.roster import Roster
from confide_daemon.store.space_store import Store
from confide_memory.errors import NotFoundError
from confide_night.daemon import planning, slot_states
from confide_night.daemon.slot_states import order_in, order_of
from confide_night.daemon.task_queue import RunnerRow, SlotRow, TaskRow, queue
from confide_night.order.order import FINAL, Order, Slot, SlotEvent, TaskStatus
from confide_night.order.wire import AGAIN, LEASE_S

LEAST_MICROUSD: Final = 10_000
"""Smallest remaining budget (one cent) with which a run that costs money may start."""
_LOOKED_AT: Final = 32
_LOOKS: Final = 8
"""Passes of one claim over the claimable slots; slots found too late in a pass are ended, and the
rest waits for the next claim.
"""
UNLIMITED: Final = 2**53 - 1
NO_MONEY: Final = "the money of the month is spent"
LAST_FENCE: Final = "task_fence"
NEEDS_APPROVAL: Final = "its recipe takes the approval of a second device"
LEASE_ENDED: Final = "its runner was not heard of any more"
_SAID: Final = {
    "succeeded": SlotEvent.SUCCEED,
    "failed": SlotEvent.FAIL,
    "cancelled": SlotEvent.CANCEL,
    "lost": SlotEvent.LOSE,
}


@dataclass(frozen=True, slots=True)
class Runner:
    """A runner that asks for a slot: what it reports about itself, and the projects that it may
    use.
    """

    key: str  # of the device, hex
    name: str
    projects: frozenset[str] | None  # None: all
    recipes: Mapping[str, tuple[int, bool]]  # by name: highest price of a run, and whether it needs an approval
    busy: Collection[str]  # repositories
    tries_left: int  # remaining budget, in millionths of a dollar


@dataclass(frozen=True, slots=True)
class SlotId:
    """A slot, its attempt and its fencing number, as a runner names them in a request."""

    task: str
    at: int
    attempt: int
    fence: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of a run, as its runner reports it."""

    state: str
    reason: str = ""
    microusd: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ms: int = 0
    commit: str = ""
    checked: bool | None = None


@dataclass(frozen=True, slots=True)
class SlotLease:
    """A slot leased to a runner."""

    slot: SlotRow
    task: TaskRow
    limit: int  # highest price of the run, in millionths of a dollar


def is_idle(store: Store) -> bool:
    """Return True if no task needs attention and no restore of the database is unhandled."""
    living = queue(store).tasks.count_living() or queue(store).slots.list_held()
    return not living and planning.is_restore_noted(store)


def lengthen_leases(store: Store, *, now: float) -> None:
    """Extend every lease by one lease length. Called when the daemon starts, since no runner could
    renew its lease while the daemon was down.
    """
    queue(store).slots.lengthen(now, LEASE_S)


def look(store: Store, roster: Roster | None, *, now: float, draw: random.Random) -> None:
    """Update all tasks to the current time: handle a restored database, pause tasks of removed
    devices, end expired leases, and plan and end slots.

    Args:
        roster: the devices of the space; None if unknown: then no task is paused.
    """
    planning.note_restore(store, now)
    if roster is not None:
        pause_removed(store, roster)
    end_leases(store, now=now, draw=draw)
    planning.look_after(store, now)


def claim(
    store: Store, runner: Runner, roster: Roster, *, monthly: int, now: float, draw: random.Random
) -> SlotLease | None:
    """Lease the best due slot to a runner, after ending expired leases; return None if no slot is
    claimable or the budget does not cover it.

    Args:
        roster: the devices of the space; orders of devices that are not on it are paused.
        monthly: the budget of all runners of the space for one month, in millionths of a dollar.
    """
    planning.note_restore(store, now)
    end_leases(store, now=now, draw=draw)
    seen = RunnerRow(runner.key, runner.name, {name: needs for name, (_, needs) in runner.recipes.items()}, now)
    queue(store).runners.note(seen)
    pause_removed(store, roster)
    _ask_for_approvals(store, runner)
    mine = [one for one in queue(store).slots.list_held() if one.runner == runner.key]
    if any(one.state is Slot.RUNNING for one in mine):
        return None  # one run at a time
    if mine and mine[0].to_cancel is None:
        # The answer to the earlier claim was lost: lease the same slot again, under a new fencing
        # number.
        return _lease(store, mine[0], runner, mine[0].reserved, now)
    left = min(
        runner.tries_left,
        monthly - queue(store).runners.monthly_spending(month_of(now)) - queue(store).slots.reserved_budget(),
    )
    for _ in range(_LOOKS):
        found = queue(store).slots.claimable(runner.projects, runner.recipes, runner.busy, now=now, limit=_LOOKED_AT)
        are_settled = False
        for slot in found:
            task = _task(store, slot)
            try:
                order = order_of(task)
            except OrderError as error:
                queue(store).tasks.stand(task.id, TaskStatus.PAUSED, error.message)
                are_settled = True
                continue
            planning.settle_due(store, task, order, now)
            if queue(store).slots.find(slot.task, slot.at) != slot:
                are_settled = True  # it may no longer start
                continue
            wanted = _price(runner, task, order)
            if left >= min(wanted, LEAST_MICROUSD):
                claimed = slot_states.step(store, slot, SlotEvent.CLAIM, now=now)
                return _lease(store, claimed, runner, min(wanted, max(left, 0)), now)
            if slot.reason != NO_MONEY:
                queue(store).slots.write(replace(slot, reason=NO_MONEY))
        if not are_settled:
            break
    return None


def _price(runner: Runner, task: TaskRow, order: Order) -> int:
    most = runner.recipes[task.recipe][0]
    return most if order.max_microusd is None else min(most, order.max_microusd)


def _lease(store: Store, slot: SlotRow, runner: Runner, limit: int, now: float) -> SlotLease:
    # The clock keeps the number above every earlier one even if an older copy of the database was
    # restored.
    fence = max(int(store.marks.find(LAST_FENCE)) + 1, int(now * 1000))
    store.marks.put(LAST_FENCE, fence)
    given = replace(slot, runner=runner.key, fence=fence, lease_until=now + LEASE_S, reserved=limit)
    queue(store).slots.write(given)
    return SlotLease(given, _task(store, given), limit)


def _ask_for_approvals(store: Store, runner: Runner) -> None:
    needing = [name for name, (_, needs) in runner.recipes.items() if needs]
    for identity in queue(store).tasks.list_unapproved(needing, runner.projects) if needing else ():
        queue(store).tasks.stand(identity, TaskStatus.PROPOSED, NEEDS_APPROVAL)


def pause_removed(store: Store, roster: Roster) -> None:
    """Pause the tasks of devices that are no longer on the roster, and mark their runs to be
    killed.

    Delete the approvals of such devices. An active task that then lacks an approval is proposed
    again.
    """
    for task in queue(store).tasks.list_approved():
        kept = tuple(one for one in task.approvals if one.key in roster.devices)
        if len(kept) < len(task.approvals):
            queue(store).tasks.approve(task.id, kept)
            if not kept and task.state is TaskStatus.ACTIVE:
                queue(store).tasks.stand(task.id, TaskStatus.PROPOSED, NEEDS_APPROVAL)
    gone = [signer for signer in queue(store).tasks.signers() if bytes.fromhex(signer) not in roster.devices]
    for task in queue(store).tasks.living() if gone else ():
        if task.state is TaskStatus.PAUSED or task.signer not in gone:
            continue
        why = f"its device, {name_of(roster, task.signer)}, was removed from the space"
        queue(store).tasks.stand(task.id, TaskStatus.PAUSED, why)
        mark_cancelled(store, task.id, why)


def mark_cancelled(store: Store, task: str, why: str) -> list[SlotRow]:
    """Mark the slots of a task that runners hold, so that the runners kill them; return these
    slots.
    """
    found = [one for one in queue(store).slots.list_held() if one.task == task]
    for one in found:
        if one.to_cancel is None:
            queue(store).slots.write(replace(one, to_cancel=why))
    return found


def name_of(roster: Roster | None, key: str) -> str:
    """Return the name of a device that is or was on the roster; "unknown" if it never was."""
    known = (entry.device for entry in (roster.entries if roster else ()) if entry.device is not None)
    return next((one.name for one in known if one.key.hex() == key), "unknown")


def take_over(store: Store, earlier: Collection[str], runner: str) -> None:
    """Transfer to a runner the slots that were leased to it under earlier keys of its device."""
    for slot in queue(store).slots.list_held():
        if slot.runner is not None and slot.runner in earlier:
            queue(store).slots.write(replace(slot, runner=runner))
            if (known := queue(store).runners.find(slot.runner)) is not None:
                queue(store).runners.note(replace(known, key=runner))


def begin(store: Store, name: SlotId, runner: str, *, is_repeatable: bool, now: float) -> None:
    """Mark a leased slot as running. Raises RequestError if the run is to be killed or the slot
    belongs to another runner.
    """
    slot = _held_slot(store, name, runner)
    if slot.to_cancel is not None:
        raise _stale()
    if slot.state is Slot.RUNNING:
        queue(store).slots.write(replace(slot, lease_until=now + LEASE_S))  # the answer was lost
        return
    values = {"lease_until": now + LEASE_S, "started_at": now, "is_repeatable": is_repeatable}
    slot_states.step(store, slot, SlotEvent.START, now=now, **values)


def renew(store: Store, name: SlotId, runner: str, *, now: float) -> bool:
    """Renew the lease of a slot, unless its run is to be killed; return True if it is. Raises
    RequestError if the slot no longer belongs to this runner.
    """
    slot = _held_slot(store, name, runner)
    if slot.to_cancel is None:
        queue(store).slots.write(replace(slot, lease_until=now + LEASE_S))
    return slot.to_cancel is not None


def end(
    store: Store, name: SlotId, runner: str, ending: Ending, *, now: float, draw: random.Random
) -> tuple[SlotRow, bool]:
    """Record the outcome of a run. Return the slot, and True if this outcome was recorded before,
    which means that the answer to the first request was lost.

    Raises RequestError if the slot no longer belongs to this runner.
    """
    slot = queue(store).slots.find(name.task, name.at)
    if slot is not None and slot.state in FINAL and _is(slot, name, runner) and slot.reason != LEASE_ENDED:
        return slot, True
    is_later = slot is not None and (slot.attempt - 1, slot.fence) == (name.attempt, name.fence)
    if slot is not None and is_later and slot.state is Slot.READY and ending.state == AGAIN:
        return slot, True
    slot = _held_slot(store, name, runner)
    task = _task(store, slot)
    if ending.microusd or ending.tokens_in or ending.tokens_out:
        queue(store).runners.spend(month_of(now), runner, ending.microusd, ending.tokens_in + ending.tokens_out)
    spent = {
        "microusd": slot.microusd + ending.microusd,
        "tokens_in": slot.tokens_in + ending.tokens_in,
        "tokens_out": slot.tokens_out + ending.tokens_out,
        "duration_ms": ending.duration_ms,
        "commit_id": ending.commit,
        "is_checked": ending.checked,
    }
    slot = replace(slot, **spent)  # type: ignore[arg-type]
    if slot.to_cancel is not None:
        return slot_states.step(store, slot, SlotEvent.CANCEL, now=now, reason=slot.to_cancel), False
    if ending.state == AGAIN:
        return slot_states.schedule_again(store, slot, order_in(task), ending.reason, now=now, draw=draw), False
    event = _SAID[ending.state]
    if event is SlotEvent.SUCCEED and slot.state is not Slot.RUNNING:
        raise RequestError("invalid", "what was never begun cannot have succeeded")
    return slot_states.step(store, slot, event, now=now, reason=ending.reason), False


def may_log(store: Store, name: SlotId, runner: str) -> None:
    """Check that a runner may upload log parts for this run. Raises RequestError if the slot
    belongs to another runner or run.
    """
    slot = queue(store).slots.find(name.task, name.at)
    if slot is None or not _is(slot, name, runner) or not (slot.state in FINAL or slot.is_held):
        raise _stale()


def end_leases(store: Store, *, now: float, draw: random.Random) -> None:
    """End the slots whose lease has expired. Depending on their state they are cancelled, tried
    again, or marked as lost.
    """
    for slot in queue(store).slots.list_held():
        if slot.lease_until is not None and now < slot.lease_until:
            continue
        if slot.to_cancel is not None:
            slot_states.step(store, slot, SlotEvent.CANCEL, now=now, reason=slot.to_cancel)
        elif slot.state is Slot.LEASED or slot.is_repeatable:
            slot_states.schedule_again(store, slot, order_in(_task(store, slot)), LEASE_ENDED, now=now, draw=draw)
        else:
            slot_states.step(store, slot, SlotEvent.LOSE, now=now, reason=LEASE_ENDED)


def month_of(now: float) -> str:
    """Return the UTC month of a time, as YYYY-MM."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def _task(store: Store, slot: SlotRow) -> TaskRow:
    task = queue(store).tasks.find(slot.task)
    assert task is not None, "a slot refers to its task"
    return task


def _is(slot: SlotRow, name: SlotId, runner: str) -> bool:
    return (slot.attempt, slot.fence, slot.runner) == (name.attempt, name.fence, runner)


def _held_slot(store: Store, name: SlotId, runner: str) -> SlotRow:
    slot = queue(store).slots.find(name.task, name.at)
    if slot is None:
        raise NotFoundError("there is no such slot of a task")
    if not slot.is_held or not _is(slot, name, runner):
        raise _stale()
    return slot


def _stale() -> RequestError:
    return RequestError("conflict", "this run is not this runner's any more", "kill it: nothing of it counts")
