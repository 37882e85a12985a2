"""Actions of users and agents on tasks: add, list, approve, pause, resume, cancel. Each runs in its
caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from confide_crypto.errors import OrderError, RequestError
from confide_crypto.sealing.roster import Roster
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.errors import GrantError
from confide_daemon.store.space_store import Store
from confide_memory.errors import NotFoundError, ToolError
from confide_night.daemon import planning
from confide_night.daemon.claims import NEEDS_APPROVAL, mark_cancelled, name_of
from confide_night.daemon.slot_states import is_readable, order_in, order_of, step
from confide_night.daemon.task_queue import LIVING, RunnerRow, TaskRow, queue
from confide_night.order import schedule
from confide_night.order.order import MAX_APPROVALS, Approval, Order, SlotEvent, TaskStatus, check_approvals, open_order

MAX_LIVING: Final = 1_000
"""Most unfinished tasks of a space."""
LEAST_LETTERS: Final = 4
"""Shortest accepted prefix of a task id, in characters."""
CANCELLED: Final = "it was cancelled"
_MOST_NAMED: Final = 8
"""Most recipes of runners that a message lists."""


def nobody_for(row: TaskRow, runners: Sequence[RunnerRow]) -> str:
    """Explain why no known runner executes a task that is still due; return "" if one does, or if
    nothing is due.
    """
    if row.state is not TaskStatus.ACTIVE and row.state is not TaskStatus.PROPOSED:
        return ""
    if not runners:
        start = "start confide task runner on one of your devices, behind confide task runner --init"
        return f"no runner has worked here, so it is not done yet: {start}"
    if any(row.recipe in one.recipes for one in runners):
        return ""
    known = sorted({name for one in runners for name in one.recipes})
    return f"no runner has the recipe {row.recipe}; they have: {', '.join(known[:_MOST_NAMED])}"


def add(
    store: Store, grants: Grants, roster: Roster | None, key: bytes, data: bytes, signature: bytes, *, now: float
) -> tuple[TaskRow, bool]:
    """Add a signed order. Return its task, and True if it is new. An order that was added before,
    but is sent again since the answer was lost, stays as it was, even if the device has signed it
    again.

    Args:
        key: the public key of the calling device, which must have signed the order.

    Raises OrderError, GrantError or ToolError if the order is refused, and RequestError if another
    task has its id.
    """
    if roster is None or key not in roster.devices:
        hint = "approve this device on one that is: confide device approve"
        raise GrantError("only a device of the space can order a task", hint=hint)
    order = _check_order(grants, roster, key, data, signature, now=now)
    known = queue(store).tasks.find(order.id)
    if known is not None:
        return _accept_again(store, known, order, data, signature), False
    schedule.check_zone(order.zone)
    if order.schedule is not None:
        schedule.check(order.schedule, order.zone, now=now)
    if queue(store).tasks.count_living() >= MAX_LIVING:
        hint = "confide task ls shows them; confide task cancel ID ends one"
        raise ToolError(f"there are {MAX_LIVING:,} tasks already", hint=hint)
    needs = any(one.recipes.get(order.recipe) for one in queue(store).runners.list_runners())
    state, why = (TaskStatus.PROPOSED, NEEDS_APPROVAL) if needs else (TaskStatus.ACTIVE, "")
    noted = (order.id, order.project, order.recipe, order.repo, order.priority)
    row = TaskRow(*noted, data, signature, order.signer, (), state, why, min(order.added, int(now)), 0.0, now)
    queue(store).tasks.add(row)
    planning.plan(store, row, order, now)
    planning.note_order(store, row, order, now)
    return queue(store).tasks.find(row.id) or row, True


def _accept_again(store: Store, known: TaskRow, order: Order, data: bytes, signature: bytes) -> TaskRow:
    """Return the existing task of an order that was sent again; if its device has a new key, that
    key becomes the signer.

    Raises RequestError if the id belongs to a different task.
    """
    if known.signer == order.signer or (known.project == order.project and not is_readable(known)):
        return known  # an unreadable task is shown as such, and never starts
    if replace(order_in(known), signer=order.signer) != order:
        raise RequestError("conflict", "there is another task of that id", "add it again: it gets an id of its own")
    return _by_another(store, known, order, data, signature) if known.state in LIVING else known


def _check_order(grants: Grants, roster: Roster, key: bytes, data: bytes, signature: bytes, *, now: float) -> Order:
    """Check and parse an order that a device sends. Raises OrderError if another device signed it,
    GrantError if the caller may not write to its project.
    """
    order = open_order(roster, data, signature, now=now)
    if bytes.fromhex(order.signer) != key:
        raise OrderError("a task is brought by another device than ordered it")
    grants.require_write(order.project, _RESULT_PATH)
    return order


def sign_again(
    store: Store, grants: Grants, roster: Roster | None, key: bytes, data: bytes, signature: bytes, *, now: float
) -> TaskRow:
    """Replace the signature of a task by that of the calling device, as after a change of its key.
    Nothing else of the order may change.

    Earlier approvals are deleted, since they cover the old bytes.

    Args:
        key: the public key of the calling device, which must have signed the order.

    Raises OrderError, GrantError, NotFoundError or RequestError if the order is refused.
    """
    if roster is None:
        raise OrderError("this space has no list of devices")
    order = _check_order(grants, roster, key, data, signature, now=now)
    known = find_task(store, grants, order.id)
    _require_living(known)
    if replace(order_of(known), signer=order.signer) != order:
        raise RequestError("conflict", "it is another order than the task has", "add it as a task of its own")
    if known.signer == order.signer:
        return known
    return _by_another(store, known, order, data, signature)


def _by_another(store: Store, known: TaskRow, order: Order, data: bytes, signature: bytes) -> TaskRow:
    queue(store).tasks.sign(known.id, data, signature, order.signer)
    if known.approvals and known.state is TaskStatus.ACTIVE:
        queue(store).tasks.stand(known.id, TaskStatus.PROPOSED, NEEDS_APPROVAL)
    return queue(store).tasks.find(known.id) or known


_RESULT_PATH: Final = "memory/tasks/result.md"
"""Example path of a result note, to check the caller's grants with."""


def find_task(store: Store, grants: Grants, name: str) -> TaskRow:
    """Find a task by its id or a prefix of it, in the projects that the caller can access. Raises
    NotFoundError if there is none; ToolError if several match.
    """
    letters = name.strip().lower()
    is_id = len(letters) >= LEAST_LETTERS and all(letter in "0123456789abcdef" for letter in letters)
    rows = queue(store).tasks.beginning(letters, grants.projects, limit=2) if is_id else []
    if not rows:
        raise NotFoundError("there is no task of that id", hint="confide task ls lists them")
    if len(rows) > 1:
        raise ToolError("several tasks have an id that begins so", hint="write more of it")
    return rows[0]


def writable(store: Store, grants: Grants, name: str) -> TaskRow:
    """Find a task like `find_task`, for a caller that may change it. Raises GrantError if it may not."""
    grants.require_scope()
    grants.require_source("memory")
    return find_task(store, grants, name)


def approve(store: Store, task: TaskRow, roster: Roster | None, approval: Approval) -> TaskRow:
    """Add another device's approval to a task and activate the task if it was proposed. Raises
    OrderError if the approval is invalid.
    """
    if roster is None:
        raise OrderError("this space has no list of devices")
    check_approvals(roster, task.ordered, bytes.fromhex(task.signer), [approval])
    kept = tuple(one for one in task.approvals if one.key in roster.devices)
    if all(one.key != approval.key for one in kept):
        if len(kept) >= MAX_APPROVALS:
            raise OrderError(f"an order has at most {MAX_APPROVALS} approvals")
        queue(store).tasks.approve(task.id, (*kept, approval))
    if task.state is TaskStatus.PROPOSED:
        queue(store).tasks.stand(task.id, TaskStatus.ACTIVE)
    return queue(store).tasks.find(task.id) or task


def pause(store: Store, task: TaskRow, *, by: str) -> TaskRow:
    """Pause a task: no slot of it starts until it is resumed; a current run continues. Raises
    RequestError if the task has ended.
    """
    _require_living(task)
    if task.state is not TaskStatus.PAUSED:
        queue(store).tasks.stand(task.id, TaskStatus.PAUSED, f"{by} paused it")
    return queue(store).tasks.find(task.id) or task


def resume(store: Store, task: TaskRow, roster: Roster | None, *, now: float) -> TaskRow:
    """Resume a paused task. Of the slots missed meanwhile, only those start that the order allows
    to start late.

    Raises RequestError if the task has ended or its device was removed; OrderError if its order
    cannot be read.
    """
    _require_living(task)
    order_of(task)
    if roster is None or bytes.fromhex(task.signer) not in roster.devices:
        problem = f"its device, {name_of(roster, task.signer)}, is not among the devices of the space"
        raise RequestError("conflict", problem, "give the order again on one that is: confide task add")
    if task.state is TaskStatus.PAUSED:
        queue(store).tasks.stand(task.id, TaskStatus.ACTIVE)
        queue(store).tasks.refresh(task.id, now)
        queue(store).tasks.record_planned(task.id, max(task.planned_to, int(now)))
    return queue(store).tasks.find(task.id) or task


def cancel(store: Store, task: TaskRow, *, now: float, why: str = CANCELLED) -> tuple[bool, int]:
    """Cancel a task for good. Return True unless it had ended before, and the number of runs that
    are to be killed.
    """
    if task.state in (TaskStatus.DONE, TaskStatus.CANCELLED):
        return False, 0
    queue(store).tasks.stand(task.id, TaskStatus.CANCELLED, why)
    for slot in queue(store).slots.waiting(task.id):
        step(store, slot, SlotEvent.CANCEL, now=now, reason=why)
    return True, len(mark_cancelled(store, task.id, why))


def _require_living(task: TaskRow) -> None:
    if task.state in (TaskStatus.DONE, TaskStatus.CANCELLED):
        raise RequestError(
            "conflict", f"the task is {task.state} already", "confide task add --again ID does it once more"
        )


def next_at(store: Store, task: TaskRow) -> int | None:
    """Return the time of the next slot that waits, in seconds since 1970; None if no slot is
    planned for the next day.
    """
    waiting = queue(store).slots.waiting(task.id)
    return waiting[0].at if waiting else None
