"""Tasks that go to another daemon with their space (PROTOCOL.md 9.8), so that no slot is begun at both.

They go last. The daemon that is left hands them out once it is closed for good, and begins nothing from then on; the one that they go to
rests until it has all of them. So a move that was broken off between the two leaves tasks that wait, and none that runs twice.

What cannot be read goes along as what it is, apart from the rest: a task with what was noted of it, its slots, and parts of logs. Where it
has come to, the task is known. Were it left behind, whoever sends its order again would have it begun a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_daemon.spaces.part import PARTS_AWAITED, SPACE_LEFT
from confide_daemon.store.store import Store
from confide_memory.forms import encoded
from confide_night.daemon import desk
from confide_night.daemon.queue.runners import RunnerRow
from confide_night.daemon.queue.slots import SlotRow
from confide_night.daemon.queue.tables import queue
from confide_night.daemon.queue.tasks import TaskRow
from confide_night.daemon.slots import restored
from confide_night.daemon.slots.claims import LAST_FENCE
from confide_night.daemon.slots.ledger import is_readable
from confide_night.order.order import Order
from confide_night.order.states import Slot, Task
from confide_night.order.wire import LEASE_S, MAX_LOG_PART, MAX_MOVED, MAX_REASON_CHARS, approvals_of, is_log

PAGE_BYTES: Final = 3 * 1024 * 1024
"""Of orders and logs in one page; one of each fits always."""
_MOST_LOGS: Final = PAGE_BYTES // MAX_LOG_PART
_MOST_ORDERS: Final = 32
GIVEN_UP: Final = "it was given up on its way here, and nobody knows what was begun of it"
_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Page:
    """Some of all that is known of tasks, as the wire has it. `following`: where to go on; None: that was all."""

    tasks: Sequence[Mapping[str, Any]] = ()
    slots: Sequence[Mapping[str, Any]] = ()
    logs: Sequence[Mapping[str, Any]] = ()
    runners: Sequence[Mapping[str, Any]] = ()
    spent: Sequence[Mapping[str, Any]] = ()
    unreadable: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    """`tasks`, `slots` and `logs` of what cannot be read."""
    following: str | None = None

    def told(self) -> dict[str, Any]:
        """The answer to `move-tasks`."""
        kinds = ("tasks", "slots", "logs", "runners", "spent")
        apart = {"unreadable": self.unreadable} if self.unreadable else {}
        return {**{name: list(getattr(self, name)) for name in kinds}, **apart, "next": self.following}


def rests(store: Store) -> bool:
    """Whether nothing of tasks is done here: they have gone to another daemon, or are still on their way from one."""
    return store.marks.find(SPACE_LEFT) > 0 or store.marks.find(PARTS_AWAITED) > 0


def require_here(store: Store) -> None:
    """Raises RequestError: as `rests`."""
    if rests(store):
        problem = "the tasks of this memory are still on their way here from the daemon that it left"
        raise RequestError("unavailable", problem, "run confide move again on the machine that moved it")


def page(store: Store, after: str) -> Page:
    """What is known of tasks, from a place on: first the tasks, then their slots, their logs, and what is known of runners.

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
                spent = [one._asdict() for one in queue(store).runners.all_spent(limit=MAX_MOVED)]
                return Page(runners=[_runner(one) for one in queue(store).runners.listed()[:MAX_MOVED]], spent=spent)
    except ValueError:
        pass
    raise RequestError("invalid", "'after' is no place to go on from")


def _tasks(store: Store, after: str) -> Page:
    found = queue(store).tasks.behind(after, limit=_MOST_ORDERS)
    whole = [row for row in found if is_readable(row)]
    return Page(
        tasks=[_told(row) for row in whole],
        unreadable=_apart(tasks=[{**_told(row), **_noted(row)} for row in found if row not in whole]),
        following=f"tasks {found[-1].id}" if found else "slots",
    )


def _told(row: TaskRow) -> dict[str, Any]:
    return {
        "order": encoded(row.ordered),
        "signature": encoded(row.signature),
        "approvals": [{"key": one.key.hex(), "signature": encoded(one.signature)} for one in row.approvals],
        "state": row.state,
        "why": row.why[:MAX_REASON_CHARS],
        "plannedTo": row.planned_to,
        "freshSince": _micros(row.fresh_since),
        "created": _micros(row.created_at),
    }


def _noted(row: TaskRow) -> dict[str, Any]:
    """What the order said when it was taken."""
    return {
        "task": row.id,
        "project": row.project,
        "recipe": row.recipe,
        "repo": row.repo,
        "priority": row.priority,
        "signer": row.signer,
    }


def _slots(store: Store, task: str, at: int) -> Page:
    found = queue(store).slots.behind(task, at, limit=MAX_MOVED)
    known = _known(store, {row.task for row in found})
    told = [(known[row.task], _slot_told(row)) for row in found if row.task in known]
    return Page(
        slots=[one for is_whole, one in told if is_whole],
        unreadable=_apart(slots=[one for is_whole, one in told if not is_whole]),
        following=f"slots {found[-1].task} {found[-1].at}" if found else "logs",
    )


def _slot_told(row: SlotRow) -> dict[str, Any]:
    return {
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


def _logs(store: Store, task: str, at: int, part: int) -> Page:
    found = queue(store).logs.behind(task, at, part, limit=_MOST_LOGS)
    known = _known(store, {one.task for one in found})
    told = [
        (
            known[one.task] and is_log(one.record),
            {**one._asdict(), "record": encoded(one.record), "time": _micros(one.time)},
        )
        for one in found
        if one.task in known
    ]
    last = found[-1] if found else None
    return Page(
        logs=[one for is_whole, one in told if is_whole],
        unreadable=_apart(logs=[one for is_whole, one in told if not is_whole]),
        following=f"logs {last.task} {last.at} {last.part}" if last else "spent",
    )


def _known(store: Store, tasks: set[str]) -> dict[str, bool]:
    """Those of these tasks that there are, and whether each can be read."""
    found = (queue(store).tasks.find(task) for task in tasks)
    return {row.id: is_readable(row) for row in found if row is not None}


def _apart(**kinds: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]] | None:
    return {"tasks": [], "slots": [], "logs": [], **kinds} if any(kinds.values()) else None


def _runner(row: RunnerRow) -> dict[str, Any]:
    recipes = [{"name": name, "approval": needs} for name, needs in row.recipes.items()]
    return {"key": row.key, "name": row.name, "recipes": recipes, "seen": _micros(row.seen_at)}


def take(store: Store, page: Page) -> None:
    """Keeps a page. What is there already stays as it is: the daemon that was left changes nothing any more.

    Raises RequestError: nothing is awaited here, or it does not belong together; OrderError: an order is damaged; SpaceFullError.
    """
    if not store.marks.find(PARTS_AWAITED):
        raise RequestError("conflict", "no tasks are awaited here")
    store.require_room()
    apart = page.unreadable or {}
    for one in page.tasks:
        queue(store).tasks.add(_task(one))
    for one in apart.get("tasks", ()):
        queue(store).tasks.add(_unreadable(one))
    for one in (*page.slots, *apart.get("slots", ())):
        if queue(store).tasks.find(one["task"]) is None:
            raise RequestError("invalid", "a slot comes before its task")
        queue(store).slots.put(_slot(one))
    for one in (*page.logs, *apart.get("logs", ())):
        if queue(store).tasks.find(one["task"]) is None:
            raise RequestError("invalid", "a log comes before its task")
        queue(store).logs.put(one["task"], one["at"], one["part"], one["record"], now=one["time"] / _MICRO)
    for one in page.runners:
        recipes = {each["name"]: each["approval"] for each in one["recipes"]}
        if queue(store).runners.find(one["key"].hex()) is None:
            queue(store).runners.note(RunnerRow(one["key"].hex(), one["name"], recipes, one["seen"] / _MICRO))
    for one in page.spent:
        queue(store).runners.had_spent(one["month"], one["runner"].hex(), one["microusd"], one["tokens"])


def give_up(store: Store, *, now: float) -> None:
    """The rest will not come. Of what has come nobody can say what was begun of it, so it ends here; and so with what is sent again."""
    for task in queue(store).tasks.living():
        desk.cancel(store, task, now=now, why=GIVEN_UP)
    restored.forget(store, now)
    settle(store, now=now)


def settle(store: Store, *, now: float) -> None:
    """All are here: from now on they are looked after. Nobody could renew a lease meanwhile, so every one begins anew."""
    store.marks.put(PARTS_AWAITED, 0.0)
    held = queue(store).slots.held()
    for one in held:
        queue(store).slots.write(replace(one, lease_until=now + LEASE_S))
    # No slot gets a smaller fence than it had where it comes from.
    store.marks.put(LAST_FENCE, max([store.marks.find(LAST_FENCE), float(queue(store).slots.largest_fence())]))


def _task(one: Mapping[str, Any]) -> TaskRow:
    order = Order.parse(one["order"])
    return _row(one, order.id, order.project, order.recipe, order.repo, order.priority, order.signer)


def _unreadable(one: Mapping[str, Any]) -> TaskRow:
    return _row(
        one, one["task"], one["project"], one["recipe"], one["repo"], one["priority"], signer=one["signer"].hex()
    )


def _row(
    one: Mapping[str, Any], task: str, project: str, recipe: str, repo: str, priority: int, signer: str
) -> TaskRow:
    return TaskRow(
        task,
        project,
        recipe,
        repo,
        priority,
        one["order"],
        one["signature"],
        signer,
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
