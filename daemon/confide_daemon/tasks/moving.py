"""Tasks that go to another daemon with their space (PROTOCOL.md 9.8), so that no slot is begun at both.

They go last. The daemon that is left hands them out once it is closed for good, and begins nothing from then on; the one that they go to
rests until it has all of them. So a move that was broken off between the two leaves tasks that wait, and none that runs twice.

What is damaged stays where it is: an order that nobody can read would be refused where it comes to, and the others with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from confide_crypto.errors import OrderError, RequestError
from confide_daemon.documents.moving import AWAITED, LEFT
from confide_daemon.store.queue.runners import RunnerRow
from confide_daemon.store.queue.slots import SlotRow
from confide_daemon.store.queue.tasks import TaskRow
from confide_daemon.store.store import Store
from confide_daemon.tasks.claims import LAST_FENCE
from confide_daemon.tasks.ledger import order_of
from confide_memory.forms import encoded
from confide_memory.tasks.order import Order
from confide_memory.tasks.states import Slot, Task
from confide_memory.tasks.wire import LEASE_S, MAX_LOG_PART, MAX_MOVED, MAX_REASON_CHARS, approvals_of, is_log

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 3 * 1024 * 1024
"""Of orders and logs in one page; one of each fits always."""
_MOST_LOGS: Final = PAGE_BYTES // MAX_LOG_PART
_MOST_ORDERS: Final = 32
_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Page:
    """Some of all that is known of tasks, as the wire has it. `following`: where to go on; None: that was all."""

    tasks: Sequence[Mapping[str, Any]] = ()
    slots: Sequence[Mapping[str, Any]] = ()
    logs: Sequence[Mapping[str, Any]] = ()
    runners: Sequence[Mapping[str, Any]] = ()
    spent: Sequence[Mapping[str, Any]] = ()
    following: str | None = None

    def told(self) -> dict[str, Any]:
        """The answer to `move-tasks`."""
        kinds = ("tasks", "slots", "logs", "runners", "spent")
        return {**{name: list(getattr(self, name)) for name in kinds}, "next": self.following}


def rests(store: Store) -> bool:
    """Whether nothing of tasks is done here: they have gone to another daemon, or are still on their way from one."""
    return store.marks.find(LEFT) > 0 or store.marks.find(AWAITED) > 0


def require_here(store: Store) -> None:
    """Raises RequestError: as `rests`."""
    if rests(store):
        problem = "the tasks of this memory are still on their way here from the daemon that it left"
        raise RequestError("unavailable", problem, "run confide move again on the machine that moved it")


def page(store: Store, after: str) -> Page:
    """What is known of tasks, from a place on: first the tasks, then their slots, their logs, and what is known of runners.

    Raises RequestError: the space has not left; there is no such place.
    """
    if not store.marks.find(LEFT):
        raise RequestError("conflict", "tasks go last, once the space has left", "move-leave comes first")
    kind, _, place = after.partition(" ")
    try:
        match kind:
            case "" | "tasks":
                return _tasks(store, place)
            case "slots":
                task, _, at = place.partition(" ")
                return _slots(store, task, int(at or -1))
            case "logs":
                task, at, part = place.split(" ") if place else ("", "-1", "-1")
                return _logs(store, task, int(at), int(part))
            case "spent":
                spent = [one._asdict() for one in store.runners.all_spent(limit=MAX_MOVED)]
                return Page(runners=[_runner(one) for one in store.runners.listed()[:MAX_MOVED]], spent=spent)
    except ValueError:
        pass
    raise RequestError("invalid", "'after' is no place to go on from")


def _tasks(store: Store, after: str) -> Page:
    found = store.tasks.behind(after, limit=_MOST_ORDERS)
    whole = [row for row in found if _is_whole(row)]
    if len(whole) < len(found):
        log.warning("%d damaged tasks stay where the space has left", len(found) - len(whole))
    rows = [
        {
            "order": encoded(row.ordered),
            "signature": encoded(row.signature),
            "approvals": [{"key": one.key.hex(), "signature": encoded(one.signature)} for one in row.approvals],
            "state": row.state,
            "why": row.why[:MAX_REASON_CHARS],
            "plannedTo": row.planned_to,
            "freshSince": _micros(row.fresh_since),
            "created": _micros(row.created_at),
        }
        for row in whole
    ]
    return Page(tasks=rows, following=f"tasks {found[-1].id}" if found else "slots")


def _slots(store: Store, task: str, at: int) -> Page:
    found = store.slots.behind(task, at, limit=MAX_MOVED)
    whole = _whole(store, {row.task for row in found})
    rows = [
        {
            "task": row.task,
            "at": row.at,
            "state": row.state,
            "attempt": row.attempt,
            "fence": row.fence,
            "nextTry": _micros(row.next_try_at),
            "runner": row.runner,
            "repeatable": row.is_repeatable,
            "toCancel": None if row.to_cancel is None else row.to_cancel[:MAX_REASON_CHARS],
            "reserved": row.reserved,
            "microusd": row.microusd,
            "tokensIn": row.tokens_in,
            "tokensOut": row.tokens_out,
            "durationMs": row.duration_ms,
            "started": _maybe_micros(row.started_at),
            "ended": _maybe_micros(row.ended_at),
            "reason": row.reason[:MAX_REASON_CHARS],
            "note": row.note,
            "commit": row.commit_id,
            "checked": row.is_checked,
            "seen": _maybe_micros(row.seen_at),
        }
        for row in found
        if row.task in whole
    ]
    return Page(slots=rows, following=f"slots {found[-1].task} {found[-1].at}" if found else "logs")


def _logs(store: Store, task: str, at: int, part: int) -> Page:
    found = store.task_logs.behind(task, at, part, limit=_MOST_LOGS)
    whole = _whole(store, {one.task for one in found})
    rows = [
        {**one._asdict(), "record": encoded(one.record), "time": _micros(one.time)}
        for one in found
        if one.task in whole and is_log(one.record)
    ]
    last = found[-1] if found else None
    return Page(logs=rows, following=f"logs {last.task} {last.at} {last.part}" if last else "spent")


def _is_whole(task: TaskRow) -> bool:
    """Whether it can be read, and is the task that it says."""
    try:
        return order_of(task.ordered).id == task.id
    except OrderError:
        return False


def _whole(store: Store, tasks: set[str]) -> set[str]:
    found = (store.tasks.find(task) for task in tasks)
    return {row.id for row in found if row is not None and _is_whole(row)}


def _runner(row: RunnerRow) -> dict[str, Any]:
    recipes = [{"name": name, "approval": needs} for name, needs in row.recipes.items()]
    return {"key": row.key, "name": row.name, "recipes": recipes, "seen": _micros(row.seen_at)}


def take(store: Store, page: Page) -> None:
    """Keeps a page. What is there already stays as it is: the daemon that was left changes nothing any more.

    Raises RequestError: nothing is awaited here, or it does not belong together; OrderError: an order is damaged; SpaceFullError.
    """
    if not store.marks.find(AWAITED):
        raise RequestError("conflict", "no tasks are awaited here")
    store.moving.require_room()
    for one in page.tasks:
        store.tasks.add(_task(one))
    for one in page.slots:
        if store.tasks.find(one["task"]) is None:
            raise RequestError("invalid", "a slot comes before its task")
        store.slots.put(_slot(one))
    for one in page.logs:
        store.task_logs.put(one["task"], one["at"], one["part"], one["record"], now=one["time"] / _MICRO)
    for one in page.runners:
        recipes = {each["name"]: each["approval"] for each in one["recipes"]}
        if store.runners.find(one["key"].hex()) is None:
            store.runners.note(RunnerRow(one["key"].hex(), one["name"], recipes, one["seen"] / _MICRO))
    for one in page.spent:
        store.runners.had_spent(one["month"], one["runner"].hex(), one["microusd"], one["tokens"])


def settle(store: Store, *, now: float) -> None:
    """All are here: from now on they are looked after. Nobody could renew a lease meanwhile, so every one begins anew."""
    store.marks.put(AWAITED, 0.0)
    held = store.slots.held()
    for one in held:
        store.slots.write(replace(one, lease_until=now + LEASE_S))
    # No slot gets a smaller fence than it had where it comes from.
    store.marks.put(LAST_FENCE, max([store.marks.find(LAST_FENCE), float(store.slots.largest_fence())]))


def _task(one: Mapping[str, Any]) -> TaskRow:
    order = Order.parse(one["order"])
    return TaskRow(
        order.id,
        order.project,
        order.recipe,
        order.repo,
        order.priority,
        one["order"],
        one["signature"],
        order.signer,
        approvals_of(one["approvals"]),
        Task(one["state"]),
        one["why"],
        one["plannedTo"],
        one["freshSince"] / _MICRO,
        one["created"] / _MICRO,
    )


def _slot(one: Mapping[str, Any]) -> SlotRow:
    return SlotRow(
        one["task"],
        one["at"],
        state=Slot(one["state"]),
        attempt=one["attempt"],
        fence=one["fence"],
        next_try_at=one["nextTry"] / _MICRO,
        runner=None if one["runner"] is None else one["runner"].hex(),
        is_repeatable=one["repeatable"],
        to_cancel=one["toCancel"],
        reserved=one["reserved"],
        microusd=one["microusd"],
        tokens_in=one["tokensIn"],
        tokens_out=one["tokensOut"],
        duration_ms=one["durationMs"],
        started_at=_seconds(one["started"]),
        ended_at=_seconds(one["ended"]),
        reason=one["reason"],
        note=one["note"],
        commit_id=one["commit"],
        is_checked=one["checked"],
        seen_at=_seconds(one["seen"]),
    )


def _micros(seconds: float) -> int:
    return round(seconds * _MICRO)


def _maybe_micros(seconds: float | None) -> int | None:
    return None if seconds is None else _micros(seconds)


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / _MICRO
