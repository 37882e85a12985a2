"""Moves tasks to another daemon with their space (PROTOCOL.md 9.8), such that no slot starts at
both daemons.

Tasks move last. The old daemon sends them once the space is closed there for good, and starts no
slot from then on. The new daemon starts none until it has all of them. A move that is interrupted
leaves tasks that wait, and none that runs twice.

Unreadable data is moved separately: a task with the fields recorded when it was added, its slots,
and log parts. So the new daemon knows the task. Otherwise its order, if it is sent again, would
start it a second time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from confide_crypto.errors import RequestError
from confide_daemon.spaces.part import PARTS_AWAITED, SPACE_LEFT
from confide_daemon.store.space_store import Store
from confide_night.daemon import planning, task_actions
from confide_night.daemon.claims import LAST_FENCE
from confide_night.daemon.slot_states import is_readable
from confide_night.daemon.task_queue import LogPart, MonthlySpending, RunnerRow, SlotRow, TaskRow, queue
from confide_night.order.order import Order, Slot, TaskStatus
from confide_night.order.wire import (
    LEASE_S,
    MAX_LOG_PART,
    MAX_MOVED,
    MAX_REASON_CHARS,
    NOTHING_APART,
    NOTHING_MOVED,
    DamagedLog,
    MovedLog,
    MovedRecipe,
    MovedRunner,
    MovedSlot,
    MovedSpent,
    MovedTask,
    MovedTasks,
    MoveTasksPage,
    Unreadable,
    UnreadableTask,
    approvals_of,
    is_log,
)

PAGE_BYTES: Final = 3 * 1024 * 1024
"""Limit for orders and logs in one page; a single order or log part always fits."""
_MOST_LOGS: Final = PAGE_BYTES // MAX_LOG_PART
_MOST_ORDERS: Final = 32
GIVEN_UP: Final = "its move here was given up, and it is not known what had begun"
_MICRO: Final = 1_000_000


def rests(store: Store) -> bool:
    """Return True if no task may start here, because the tasks have moved to another daemon or are
    still being moved here.
    """
    return store.marks.find(SPACE_LEFT) > 0 or store.marks.find(PARTS_AWAITED) > 0


def require_here(store: Store) -> None:
    """Raise RequestError if no task may start here (see `rests`)."""
    if rests(store):
        problem = "the tasks of this memory are still on their way here from the daemon that it left"
        raise RequestError("unavailable", problem, "run confide daemon move again on the device that moved it")


def page(store: Store, after: str) -> MoveTasksPage:
    """Return one page of `move-tasks`: first tasks, then slots, logs, and the known runners with
    their spending.

    Args:
        after: the position that the previous page returned; "" for the first page.

    Raises RequestError if the space has not left yet or the position is invalid.
    """
    if not store.marks.find(SPACE_LEFT):
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
                runners = [_runner(one) for one in queue(store).runners.list_runners()[:MAX_MOVED]]
                spent = [_to_moved_spent(one) for one in queue(store).runners.list_spending(limit=MAX_MOVED)]
                return {**NOTHING_MOVED, "runners": runners, "spent": spent, "next": None}
    except ValueError:
        pass
    raise RequestError("invalid", "'after' is no place to go on from")


def _tasks(store: Store, after: str) -> MoveTasksPage:
    found = queue(store).tasks.behind(after, limit=_MOST_ORDERS)
    readable = {row.id for row in found if is_readable(row)}
    whole = [_to_moved_task(row) for row in found if row.id in readable]
    apart = [_to_unreadable_task(row) for row in found if row.id not in readable]
    following = f"tasks {found[-1].id}" if found else "slots"
    return _page({**NOTHING_MOVED, "tasks": whole}, {**NOTHING_APART, "tasks": apart}, following)


def _slots(store: Store, task: str, at: int) -> MoveTasksPage:
    found = queue(store).slots.behind(task, at, limit=MAX_MOVED)
    known = _readable_by_id(store, {row.task for row in found})
    whole = [_to_moved_slot(row) for row in found if known.get(row.task) is True]
    apart = [_to_moved_slot(row) for row in found if known.get(row.task) is False]
    following = f"slots {found[-1].task} {found[-1].at}" if found else "logs"
    return _page({**NOTHING_MOVED, "slots": whole}, {**NOTHING_APART, "slots": apart}, following)


def _logs(store: Store, task: str, at: int, part: int) -> MoveTasksPage:
    found = queue(store).logs.behind(task, at, part, limit=_MOST_LOGS)
    known = _readable_by_id(store, {one.task for one in found})
    whole: list[MovedLog] = []
    apart: list[DamagedLog] = []
    for one in found:
        if one.task in known:
            (whole if known[one.task] and is_log(one.record) else apart).append(_to_moved_log(one))
    following = f"logs {found[-1].task} {found[-1].at} {found[-1].part}" if found else "spent"
    return _page({**NOTHING_MOVED, "logs": whole}, {**NOTHING_APART, "logs": apart}, following)


def _readable_by_id(store: Store, tasks: set[str]) -> dict[str, bool]:
    """Map the id of each task that exists to whether its order can be read."""
    found = (queue(store).tasks.find(task) for task in tasks)
    return {row.id: is_readable(row) for row in found if row is not None}


def _page(whole: MovedTasks, apart: Unreadable, following: str) -> MoveTasksPage:
    """Build a page, with unreadable items apart from the rest. `following` is the position of the
    next page.
    """
    if any(apart.values()):
        return {**whole, "unreadable": apart, "next": following}
    return {**whole, "next": following}


def _to_moved_task(row: TaskRow) -> MovedTask:
    return {
        **row.wire,
        "state": row.state,
        "why": row.why[:MAX_REASON_CHARS],
        "plannedTo": row.planned_to,
        "freshSince": _micro(row.fresh_since),
        "created": _micro(row.created_at),
    }


def _to_unreadable_task(row: TaskRow) -> UnreadableTask:
    """Return an unreadable task with the fields that were recorded when it was added."""
    return {
        **_to_moved_task(row),
        "task": row.id,
        "project": row.project,
        "recipe": row.recipe,
        "repo": row.repo,
        "priority": row.priority,
        "signer": bytes.fromhex(row.signer),
    }


def _to_moved_slot(row: SlotRow) -> MovedSlot:
    return {
        "task": row.task,
        "at": row.at,
        "state": row.state,
        "attempt": row.attempt,
        "fence": row.fence,
        "runner": None if row.runner is None else bytes.fromhex(row.runner),
        "reserved": row.reserved,
        "microusd": row.microusd,
        "reason": row.reason[:MAX_REASON_CHARS],
        "nextTry": _micro(row.next_try_at),
        "repeatable": row.is_repeatable,
        "toCancel": None if row.to_cancel is None else row.to_cancel[:MAX_REASON_CHARS],
        "note": row.note,
        "tokensIn": row.tokens_in,
        "tokensOut": row.tokens_out,
        "durationMs": row.duration_ms,
        "commit": row.commit_id,
        "started": _micro_or_none(row.started_at),
        "ended": _micro_or_none(row.ended_at),
        "checked": row.is_checked,
        "seen": _micro_or_none(row.seen_at),
    }


def _to_moved_log(one: LogPart) -> MovedLog:
    return {"task": one.task, "at": one.at, "part": one.part, "record": one.record, "time": _micro(one.time)}


def _runner(row: RunnerRow) -> MovedRunner:
    recipes: list[MovedRecipe] = [{"name": name, "approval": needs} for name, needs in row.recipes.items()]
    return {"key": bytes.fromhex(row.key), "name": row.name, "recipes": recipes, "seen": _micro(row.seen_at)}


def _to_moved_spent(one: MonthlySpending) -> MovedSpent:
    runner = bytes.fromhex(one.runner)
    return {"month": one.month, "runner": runner, "microusd": one.microusd, "tokens": one.tokens}


def take(store: Store, page: MovedTasks) -> None:
    """Store a page of moved tasks. Existing items stay unchanged, since the old daemon no longer
    changes anything.

    Raises RequestError if no tasks are expected, or a slot or log comes before its task; OrderError
    if an order is damaged; SpaceFullError if the space has no room.
    """
    if not store.marks.find(PARTS_AWAITED):
        raise RequestError("conflict", "no tasks are awaited here")
    store.require_room()
    apart = page.get("unreadable") or NOTHING_APART
    for one in page["tasks"]:
        queue(store).tasks.add(_task(one))
    for noted in apart["tasks"]:
        queue(store).tasks.add(_unreadable_task(noted))
    for slot in (*page["slots"], *apart["slots"]):
        if queue(store).tasks.find(slot["task"]) is None:
            raise RequestError("invalid", "a slot comes before its task")
        queue(store).slots.put(_slot(slot))
    for log in (*page["logs"], *apart["logs"]):
        if queue(store).tasks.find(log["task"]) is None:
            raise RequestError("invalid", "a log comes before its task")
        queue(store).logs.put(log["task"], log["at"], log["part"], log["record"], now=log["time"] / _MICRO)
    for runner in page["runners"]:
        key, recipes = runner["key"].hex(), {each["name"]: each["approval"] for each in runner["recipes"]}
        if queue(store).runners.find(key) is None:
            queue(store).runners.note(RunnerRow(key, runner["name"], recipes, runner["seen"] / _MICRO))
    for spent in page["spent"]:
        queue(store).runners.had_spent(spent["month"], spent["runner"].hex(), spent["microusd"], spent["tokens"])


def give_up(store: Store, *, now: float) -> None:
    """Stop waiting for the remaining tasks. Cancel all tasks that arrived, since it is unknown
    which of their slots have started, and treat older orders that are sent again the same way.
    """
    for task in queue(store).tasks.living():
        task_actions.cancel(store, task, now=now, why=GIVEN_UP)
    planning.forget_begun(store, now)
    settle(store, now=now)


def settle(store: Store, *, now: float) -> None:
    """Mark all tasks as arrived and let them start. Renew every lease, since no runner could renew
    during the move.
    """
    store.marks.put(PARTS_AWAITED, 0.0)
    for one in queue(store).slots.list_held():
        queue(store).slots.write(replace(one, lease_until=now + LEASE_S))
    # Fencing numbers must keep growing across the move.
    store.marks.put(LAST_FENCE, max([store.marks.find(LAST_FENCE), float(queue(store).slots.largest_fence())]))


def _task(one: MovedTask) -> TaskRow:
    """Convert a moved task to a row. Raises OrderError if its order cannot be read."""
    order = Order.parse(one["order"])
    return _task_row(one, order.id, order.project, order.recipe, order.repo, order.priority, order.signer)


def _unreadable_task(one: UnreadableTask) -> TaskRow:
    """Convert a moved task whose order cannot be read to a row, from its recorded fields."""
    noted = one["task"], one["project"], one["recipe"], one["repo"], one["priority"], one["signer"].hex()
    return _task_row(one, *noted)


def _task_row(
    one: MovedTask, identity: str, project: str, recipe: str, repo: str, priority: int, signer: str
) -> TaskRow:
    return TaskRow(
        id=identity,
        project=project,
        recipe=recipe,
        repo=repo,
        priority=priority,
        ordered=one["order"],
        signature=one["signature"],
        signer=signer,
        approvals=approvals_of(one["approvals"]),
        state=TaskStatus(one["state"]),
        why=one["why"],
        planned_to=one["plannedTo"],
        fresh_since=one["freshSince"] / _MICRO,
        created_at=one["created"] / _MICRO,
    )


def _slot(one: MovedSlot) -> SlotRow:
    return SlotRow(
        task=one["task"],
        at=one["at"],
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


def _micro(seconds: float) -> int:
    return round(seconds * _MICRO)


def _micro_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else _micro(seconds)


def _seconds(micro: int | None) -> float | None:
    return None if micro is None else micro / _MICRO
