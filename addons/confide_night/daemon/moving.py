"""Tasks that go to another daemon with their space (PROTOCOL.md 9.8), so that no slot is begun at both.

They go last. The daemon that is left hands them out once it is closed for good, and begins nothing from then on; the one that they go to
rests until it has all of them. So a move that was broken off between the two leaves tasks that wait, and none that runs twice.

What cannot be read goes along as what it is, apart from the rest: a task with what was noted of it, its slots, and parts of logs. Where it
has come to, the task is known. Were it left behind, whoever sends its order again would have it begun a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_daemon.spaces.part import PARTS_AWAITED, SPACE_LEFT
from confide_daemon.store.store import Store
from confide_memory.forms import encoded
from confide_night.daemon import desk, planning
from confide_night.daemon.claims import LAST_FENCE
from confide_night.daemon.ledger import is_readable
from confide_night.daemon.queue import RunnerRow, SlotRow, TaskRow, queue
from confide_night.order.order import Order, Slot, Task
from confide_night.order.wire import (
    LEASE_S,
    MAX_LOG_PART,
    MAX_MOVED,
    MAX_REASON_CHARS,
    NOTHING_MOVED,
    approvals_of,
    is_log,
)

PAGE_BYTES: Final = 3 * 1024 * 1024
"""Of orders and logs in one page; one of each fits always."""
_MOST_LOGS: Final = PAGE_BYTES // MAX_LOG_PART
_MOST_ORDERS: Final = 32
GIVEN_UP: Final = "it was given up on its way here, and nobody knows what was begun of it"
_MICRO: Final = 1_000_000

# Fields of rows, by what the wire calls them.
_TASK: Final = {
    **{"state": "state", "why": "why", "plannedTo": "planned_to"},
    **{"freshSince": "fresh_since", "created": "created_at"},
}
_NOTED: Final = {"task": "id", **{each: each for each in ("project", "recipe", "repo", "priority", "signer")}}
"""What the order said when it was taken."""
_SLOT: Final = {
    **{each: each for each in ("task", "at", "state", "attempt", "fence", "runner", "reserved", "microusd", "reason")},
    **{"nextTry": "next_try_at", "repeatable": "is_repeatable", "toCancel": "to_cancel", "note": "note"},
    **{"tokensIn": "tokens_in", "tokensOut": "tokens_out", "durationMs": "duration_ms", "commit": "commit_id"},
    **{"started": "started_at", "ended": "ended_at", "checked": "is_checked", "seen": "seen_at"},
}
_TIMES: Final = frozenset({"freshSince", "created", "nextTry", "started", "ended", "seen"})
_CUT: Final = frozenset({"why", "toCancel", "reason"})


def rests(store: Store) -> bool:
    """Whether nothing of tasks is done here: they have gone to another daemon, or are still on their way from one."""
    return store.marks.find(SPACE_LEFT) > 0 or store.marks.find(PARTS_AWAITED) > 0


def require_here(store: Store) -> None:
    """Raises RequestError: as `rests`."""
    if rests(store):
        problem = "the tasks of this memory are still on their way here from the daemon that it left"
        raise RequestError("unavailable", problem, "run confide move again on the machine that moved it")


def page(store: Store, after: str) -> dict[str, object]:
    """The answer to `move-tasks`, from a place on: first the tasks, then their slots, their logs, and what is known of runners.

    Raises RequestError: the space has not left; there is no such place.
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
                runners = [_runner(one) for one in queue(store).runners.listed()[:MAX_MOVED]]
                spent = [one._asdict() for one in queue(store).runners.all_spent(limit=MAX_MOVED)]
                return {**NOTHING_MOVED, "runners": runners, "spent": spent, "next": None}
    except ValueError:
        pass
    raise RequestError("invalid", "'after' is no place to go on from")


def _tasks(store: Store, after: str) -> dict[str, Any]:
    found = queue(store).tasks.behind(after, limit=_MOST_ORDERS)
    told = []
    for row in found:
        is_whole = is_readable(row)
        told.append((is_whole, {**row.wire, **_told(row, _TASK if is_whole else {**_TASK, **_NOTED})}))
    return _parted("tasks", told, f"tasks {found[-1].id}" if found else "slots")


def _slots(store: Store, task: str, at: int) -> dict[str, object]:
    found = queue(store).slots.behind(task, at, limit=MAX_MOVED)
    known = _known(store, {row.task for row in found})
    told = [(known[row.task], _told(row, _SLOT)) for row in found if row.task in known]
    return _parted("slots", told, f"slots {found[-1].task} {found[-1].at}" if found else "logs")


def _logs(store: Store, task: str, at: int, part: int) -> dict[str, object]:
    found = queue(store).logs.behind(task, at, part, limit=_MOST_LOGS)
    known = _known(store, {one.task for one in found})
    told = []
    for one in found:
        if one.task in known:
            body = {**one._asdict(), "record": encoded(one.record), "time": round(one.time * _MICRO)}
            told.append((known[one.task] and is_log(one.record), body))
    return _parted("logs", told, f"logs {found[-1].task} {found[-1].at} {found[-1].part}" if found else "spent")


def _known(store: Store, tasks: set[str]) -> dict[str, bool]:
    """Those of these tasks that there are, and whether each can be read."""
    found = (queue(store).tasks.find(task) for task in tasks)
    return {row.id: is_readable(row) for row in found if row is not None}


def _parted(kind: str, told: Iterable[tuple[bool, dict[str, object]]], following: str) -> dict[str, object]:
    """A page of one kind, with what cannot be read apart from the rest. `following`: where to go on."""
    told = [*told]
    whole, apart = ([one for is_whole, one in told if is_whole is wanted] for wanted in (True, False))
    unreadable = {"unreadable": {"tasks": [], "slots": [], "logs": [], kind: apart}} if apart else {}
    return {**NOTHING_MOVED, kind: whole, **unreadable, "next": following}


def _runner(row: RunnerRow) -> dict[str, object]:
    recipes = [{"name": name, "approval": needs} for name, needs in row.recipes.items()]
    return {"key": row.key, "name": row.name, "recipes": recipes, "seen": round(row.seen_at * _MICRO)}


def take(store: Store, page: Mapping[str, Any]) -> None:
    """Keeps a page. What is there already stays as it is: the daemon that was left changes nothing any more.

    Raises RequestError: nothing is awaited here, or it does not belong together; OrderError: an order is damaged; SpaceFullError.
    """
    if not store.marks.find(PARTS_AWAITED):
        raise RequestError("conflict", "no tasks are awaited here")
    store.require_room()
    apart = page.get("unreadable") or {}
    for one in page["tasks"]:
        queue(store).tasks.add(_task(one))
    for one in apart.get("tasks", ()):
        queue(store).tasks.add(_task(one, _read(one, _NOTED)))
    for one in (*page["slots"], *apart.get("slots", ())):
        if queue(store).tasks.find(one["task"]) is None:
            raise RequestError("invalid", "a slot comes before its task")
        queue(store).slots.put(SlotRow(**{**_read(one, _SLOT), "state": Slot(one["state"])}))
    for one in (*page["logs"], *apart.get("logs", ())):
        if queue(store).tasks.find(one["task"]) is None:
            raise RequestError("invalid", "a log comes before its task")
        queue(store).logs.put(one["task"], one["at"], one["part"], one["record"], now=one["time"] / _MICRO)
    for one in page["runners"]:
        recipes = {each["name"]: each["approval"] for each in one["recipes"]}
        if queue(store).runners.find(one["key"].hex()) is None:
            queue(store).runners.note(RunnerRow(one["key"].hex(), one["name"], recipes, one["seen"] / _MICRO))
    for one in page["spent"]:
        queue(store).runners.had_spent(one["month"], one["runner"].hex(), one["microusd"], one["tokens"])


def give_up(store: Store, *, now: float) -> None:
    """The rest will not come. Of what has come nobody can say what was begun of it, so it ends here; and so with what is sent again."""
    for task in queue(store).tasks.living():
        desk.cancel(store, task, now=now, why=GIVEN_UP)
    planning.forget_begun(store, now)
    settle(store, now=now)


def settle(store: Store, *, now: float) -> None:
    """All are here: from now on they are looked after. Nobody could renew a lease meanwhile, so every one begins anew."""
    store.marks.put(PARTS_AWAITED, 0.0)
    for one in queue(store).slots.held():
        queue(store).slots.write(replace(one, lease_until=now + LEASE_S))
    # No slot gets a smaller fence than it had where it comes from.
    store.marks.put(LAST_FENCE, max([store.marks.find(LAST_FENCE), float(queue(store).slots.largest_fence())]))


def _task(one: Mapping[str, Any], noted: Mapping[str, Any] | None = None) -> TaskRow:
    """A task that has come; `noted` of one whose order cannot be read. Raises OrderError: it cannot."""
    if noted is None:
        order = Order.parse(one["order"])
        noted = {field: getattr(order, field) for field in _NOTED.values()}
    values = {**noted, **_read(one, _TASK), "state": Task(one["state"]), "approvals": approvals_of(one["approvals"])}
    return TaskRow(ordered=one["order"], signature=one["signature"], **values)


def _told(row: TaskRow | SlotRow, names: Mapping[str, str]) -> dict[str, object]:
    """Fields of a row, as the wire has them."""
    found = {name: getattr(row, field) for name, field in names.items()}
    for name in _TIMES & found.keys():
        found[name] = None if found[name] is None else round(found[name] * _MICRO)
    for name in _CUT & found.keys():
        found[name] = None if found[name] is None else found[name][:MAX_REASON_CHARS]
    return found


def _read(one: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The other way: keys are bytes as they were read, and hex in rows."""
    found = {}
    for name, field in names.items():
        value = one[name]
        if name in _TIMES and value is not None:
            value /= _MICRO
        found[field] = value.hex() if isinstance(value, bytes) else value
    return found
