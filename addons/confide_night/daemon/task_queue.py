"""Database tables of tasks: signed orders with their states, slots with their leases and outcomes,
the runners with their recipes and spending, and the logs that runners sealed.
"""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH
from confide_daemon.store.database import Database, Table, within
from confide_daemon.store.space_store import Store
from confide_night.order.order import FINAL, HELD, Approval, Slot, TaskStatus
from confide_night.order.wire import Ordered, SlotName

_TASK_FIELDS = """id, project, recipe, repo, priority, ordered, signature, signer, approvals, state, why, planned_to, fresh_since,
           created_at"""
# Approvals are stored as bytes: a damaged value may be invalid UTF-8, which SQLite could not return
# as text.
_TASK_COLUMNS = _TASK_FIELDS.replace("approvals", "CAST(approvals AS BLOB)")
LIVING = (TaskStatus.PROPOSED, TaskStatus.ACTIVE, TaskStatus.PAUSED)
"""States of a task that may still have due slots."""
_LIVE = "WHERE state IN (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A row of the task table; times are seconds since 1970."""

    id: str
    project: str
    recipe: str
    repo: str
    priority: int
    ordered: bytes  # as it was signed
    signature: bytes
    signer: str  # a device's key, hex
    approvals: tuple[Approval, ...]
    state: TaskStatus
    why: str
    planned_to: int  # its slots are planned until this time
    fresh_since: float  # earlier failures do not count
    created_at: float

    @property
    def wire(self) -> Ordered:
        """Return the signed order in the form that requests and answers use."""
        return {
            "order": self.ordered,
            "signature": self.signature,
            "approvals": [{"key": one.key, "signature": one.signature} for one in self.approvals],
        }


class TaskTable(Table):
    def add(self, row: TaskRow) -> bool:
        """Store a task; return False if one with that id exists."""
        sql = (
            f"INSERT OR IGNORE INTO task ({_TASK_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING 1"
        )
        values = (
            *(row.id, row.project, row.recipe, row.repo, row.priority, row.ordered, row.signature, row.signer),
            *(_approvals_json(row.approvals), row.state, row.why, row.planned_to, row.fresh_since, row.created_at),
        )
        return bool(self._rows(sql, values))

    def find(self, identity: str) -> TaskRow | None:
        found = self._select("WHERE id = ?", identity)
        return found[0] if found else None

    def behind(self, identity: str, *, limit: int) -> list[TaskRow]:
        """List tasks in the order of their ids, starting after `identity`."""
        return self._select("WHERE id > ? ORDER BY id LIMIT ?", identity, limit)

    def beginning(self, letters: str, projects: frozenset[str] | None, *, limit: int) -> list[TaskRow]:
        """List tasks whose id begins with `letters`. `projects` limits them to these projects, None
        to no project.
        """
        among, names = within("project", projects)
        begin = f"WHERE id >= ? AND id < ? || 'g'{among} ORDER BY id LIMIT ?"
        return self._select(begin, letters, letters, *names, limit)

    def living(self) -> list[TaskRow]:
        """List the tasks that may still have due slots."""
        return self._select(_LIVE, *LIVING)

    def bearing(self, key: str, after: str, *, limit: int) -> list[TaskRow]:
        """List the unfinished tasks that this device signed or approved, starting after the id
        `after`.
        """
        borne = f"{_LIVE} AND id > ? AND (signer = ? OR instr(approvals, ?)) ORDER BY id LIMIT ?"
        return self._select(borne, *LIVING, after, key, key, limit)

    def list_approved(self) -> list[TaskRow]:
        """List the unfinished tasks that have an approval."""
        return self._select(f"{_LIVE} AND approvals <> '[]'", *LIVING)

    def sign(self, identity: str, ordered: bytes, signature: bytes, signer: str) -> None:
        """Replace a task's order, signature and signer, and drop its approvals."""
        sql = "UPDATE task SET ordered = ?, signature = ?, signer = ?, approvals = '[]' WHERE id = ?"
        self._rows(sql, (ordered, signature, signer, identity))

    def signers(self) -> list[str]:
        """List the keys of the devices that signed unfinished tasks."""
        found = self._rows(f"SELECT DISTINCT signer FROM task {_LIVE}", LIVING)
        return [str(row[0]) for row in found]

    def count(self) -> int:
        return int(self._one("SELECT count(*) FROM task") or 0)

    def count_living(self) -> int:
        return int(self._rows(f"SELECT count(*) FROM task {_LIVE}", LIVING)[0][0])

    def list_tasks(
        self,
        projects: frozenset[str] | None,
        *,
        states: Iterable[str] | None = None,
        since: float = 0.0,
        limit: int,
    ) -> list[TaskRow]:
        """List tasks, newest first. `projects` and `states` limit them to these projects and
        states, None to all; `since` limits them to tasks added after that time.
        """
        (among, names), (chosen, wanted) = within("project", projects), within("state", states)
        newest = f"WHERE created_at >= ?{among}{chosen} ORDER BY created_at DESC, id LIMIT ?"
        return self._select(newest, since, *names, *wanted, limit)

    def stand(self, identity: str, state: TaskStatus, why: str = "") -> None:
        """Set a task's state, and the reason for it."""
        self._rows("UPDATE task SET state = ?, why = ? WHERE id = ?", (state, why, identity))

    def record_planned(self, identity: str, to: int) -> None:
        """Record until when a task's slots have been planned."""
        self._rows("UPDATE task SET planned_to = ? WHERE id = ?", (to, identity))

    def refresh(self, identity: str, since: float) -> None:
        """Ignore the task's failures from before `since` from now on."""
        self._rows("UPDATE task SET fresh_since = ? WHERE id = ?", (since, identity))

    def approve(self, identity: str, approvals: tuple[Approval, ...]) -> None:
        self._rows("UPDATE task SET approvals = ? WHERE id = ?", (_approvals_json(approvals), identity))

    def list_unapproved(self, recipes: Iterable[str], projects: frozenset[str] | None) -> list[str]:
        """List the ids of active tasks with one of these recipes that have no approval of a second
        device.
        """
        (among, names), (chosen, wanted) = within("project", projects), within("recipe", recipes)
        sql = f"SELECT id FROM task WHERE state = ? AND approvals = '[]'{chosen}{among}"
        return [str(row[0]) for row in self._rows(sql, (TaskStatus.ACTIVE, *wanted, *names))]

    def forget(self, before: float) -> None:
        """Delete ended tasks without slots that were added before this time."""
        sql = """DELETE FROM task WHERE created_at < ? AND state IN (?, ?)
                 AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.task = task.id)"""
        self._rows(sql, (before, TaskStatus.DONE, TaskStatus.CANCELLED))

    def _select(self, rest: str, *values: str | float) -> list[TaskRow]:
        """Return the tasks selected by the rest of an SQL statement."""
        return [_task_row(row) for row in self._rows(f"SELECT {_TASK_COLUMNS} FROM task {rest}", values)]


def _approvals_json(approvals: tuple[Approval, ...]) -> str:
    return json.dumps([[one.key.hex(), one.signature.hex()] for one in approvals])


def _approvals(written: bytes) -> tuple[Approval, ...]:
    """Parse the approvals in a column; return none if it is damaged, so that they are requested
    again.
    """
    try:
        found = [Approval(bytes.fromhex(key), bytes.fromhex(signature)) for key, signature in json.loads(written)]
    except (ValueError, TypeError):
        return ()
    is_whole = all((len(one.key), len(one.signature)) == (KEY_LENGTH, SIGNATURE_LENGTH) for one in found)
    return tuple(found) if is_whole else ()


def _task_row(row: tuple[object, ...]) -> TaskRow:
    values = list(row)
    values[8] = _approvals(bytes(values[8]))  # type: ignore[call-overload]
    values[9] = TaskStatus(str(values[9]))
    return TaskRow(*values)  # type: ignore[arg-type]


_FIELDS = (
    *("task", "at", "state", "attempt", "fence", "next_try_at", "runner", "lease_until", "is_repeatable", "to_cancel"),
    *("reserved", "microusd", "tokens_in", "tokens_out", "duration_ms", "started_at", "ended_at", "reason", "note"),
    *("commit_id", "is_checked", "seen_at"),
)
_COLUMNS = ", ".join(_FIELDS)
_OF_SLOT = ", ".join(f"s.{name}" for name in _FIELDS)
_KEPT = (
    *("state", "attempt", "fence", "next_try_at", "runner", "lease_until", "is_repeatable", "to_cancel"),
    *_FIELDS[10:],
)
_IS_HELD = f"IN ('{Slot.LEASED}', '{Slot.RUNNING}')"


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A row of the slot table; times are seconds since 1970, amounts are millionths of a dollar."""

    task: str
    at: int  # time at which it is due
    state: Slot = Slot.READY
    attempt: int = 1
    fence: int = 0
    next_try_at: float = 0.0
    runner: str | None = None  # a device's key, hex
    lease_until: float | None = None
    is_repeatable: bool = False
    to_cancel: str | None = None  # reason for a kill
    reserved: int = 0
    microusd: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ms: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    note: str | None = None  # path of the result's note
    commit_id: str = ""
    is_checked: bool | None = None
    seen_at: float | None = None

    @property
    def wire(self) -> SlotName:
        """Return the slot's task, time, attempt and fencing number, in the form that requests and
        answers use.
        """
        return {"task": self.task, "at": self.at, "attempt": self.attempt, "fence": self.fence}

    @property
    def is_held(self) -> bool:
        """Return True if a runner holds the slot."""
        return self.state in HELD


class SlotTable(Table):
    def add(self, task: str, at: int) -> bool:
        """Create a slot; return False if it was created before, whatever its state is now."""
        sql = "INSERT OR IGNORE INTO slot (task, at, next_try_at) VALUES (?, ?, ?) RETURNING 1"
        return bool(self._rows(sql, (task, at, at)))

    def put(self, row: SlotRow) -> None:
        """Store a slot that was moved from another daemon; an existing one stays unchanged."""
        marks = ", ".join("?" for _ in _FIELDS)
        self._rows(
            f"INSERT OR IGNORE INTO slot ({_COLUMNS}) VALUES ({marks})", tuple(getattr(row, name) for name in _FIELDS)
        )

    def behind(self, task: str, at: int, *, limit: int) -> list[SlotRow]:
        """List up to `limit` slots of all tasks, sorted by task and time, starting after the slot
        of `task` at time `at`.
        """
        return self._select("WHERE (task, at) > (?, ?) ORDER BY task, at LIMIT ?", task, at, limit)

    def largest_fence(self) -> int:
        """Return the largest fencing number of all slots; 0 without slots."""
        return int(self._one("SELECT max(fence) FROM slot") or 0)

    def find(self, task: str, at: int) -> SlotRow | None:
        found = self._select("WHERE task = ? AND at = ?", task, at)
        return found[0] if found else None

    def write(self, row: SlotRow) -> None:
        """Update a slot to this row."""
        sets = ", ".join(f"{name} = ?" for name in _KEPT)
        values = [getattr(row, name) for name in _KEPT]
        self._rows(f"UPDATE slot SET {sets} WHERE task = ? AND at = ?", (*values, row.task, row.at))

    def claimable(
        self,
        projects: frozenset[str] | None,
        recipes: Iterable[str],
        busy: Collection[str],
        *,
        now: float,
        limit: int,
    ) -> list[SlotRow]:
        """List the best slots that are due and may start, by priority, then by time, at most one
        per task. Leave out tasks that are not active, tasks of which a runner holds a slot, and
        repositories in which a run is in progress (`busy`).
        """
        among, names = within("t.project", projects)
        chosen, wanted = within("t.recipe", recipes)
        free, taken = within("t.repo", busy)
        free = free.replace(" IN ", " NOT IN ")
        # Held slots are few, so the tasks and repositories that they block are looked up once.
        sql = f"""WITH held AS MATERIALIZED (SELECT h.task, o.repo FROM slot h JOIN task o ON o.id = h.task WHERE h.state {_IS_HELD}),
                  first AS MATERIALIZED (SELECT t.id, t.priority, (SELECT d.at FROM slot d WHERE d.task = t.id AND d.state = '{Slot.READY}'
                      AND d.at <= ? AND d.next_try_at <= ? ORDER BY d.at LIMIT 1) AS at
                      FROM task t WHERE t.state = '{TaskStatus.ACTIVE}'{among}{chosen}{free}
                      AND t.id NOT IN (SELECT task FROM held) AND (t.repo = '' OR t.repo NOT IN (SELECT repo FROM held)))
                  SELECT {_OF_SLOT} FROM first f JOIN slot s ON s.task = f.id AND s.at = f.at
                  ORDER BY f.priority DESC, f.at, f.id LIMIT ?"""
        return [_slot_row(row) for row in self._rows(sql, (now, now, *names, *wanted, *taken, limit))]

    def due(self, task: str, *, now: float) -> list[SlotRow]:
        """List the waiting slots of a task that are due, earliest first."""
        return self._select(f"WHERE task = ? AND state = '{Slot.READY}' AND at <= ? ORDER BY at", task, now)

    def of(self, task: str, *, limit: int) -> list[SlotRow]:
        """List the slots of a task, latest first."""
        return self._select("WHERE task = ? ORDER BY at DESC LIMIT ?", task, limit)

    def waiting(self, task: str) -> list[SlotRow]:
        """List the slots of a task that no runner holds and that have not ended, earliest first."""
        return self._select(f"WHERE task = ? AND state = '{Slot.READY}' ORDER BY at", task)

    def list_held(self) -> list[SlotRow]:
        """List the slots that runners hold."""
        return self._select(f"WHERE state {_IS_HELD}")

    def list_due(self, *, due: float) -> list[SlotRow]:
        """List the slots that are due and have not ended."""
        return [*self._select(f"WHERE state = '{Slot.READY}' AND at <= ?", due), *self.list_held()]

    def is_open(self, task: str) -> bool:
        """Return True if a slot of the task waits or runs."""
        sql = f"SELECT 1 FROM slot WHERE task = ? AND state IN ('{Slot.READY}', '{Slot.LEASED}', '{Slot.RUNNING}') LIMIT 1"
        return bool(self._rows(sql, (task,)))

    def last_outcomes(self, task: str, *, since: float, limit: int) -> list[Slot]:
        """List the outcomes (succeeded, failed or lost) of the task's last runs, latest first."""
        sql = f"""SELECT state FROM slot WHERE task = ? AND ended_at >= ? AND state IN ('{Slot.SUCCEEDED}', '{Slot.FAILED}', '{Slot.LOST}')
                  ORDER BY ended_at DESC, at DESC LIMIT ?"""
        return [Slot(row[0]) for row in self._rows(sql, (task, since, limit))]

    def last_end(self, task: str) -> float:
        """Return when the last started slot of the task ended; 0 if none did."""
        return float(
            self._one("SELECT max(ended_at) FROM slot WHERE task = ? AND started_at IS NOT NULL", (task,)) or 0.0
        )

    def reserved_budget(self) -> int:
        """Return the budget reserved for all held slots, in millionths of a dollar."""
        return int(self._one(f"SELECT sum(reserved) FROM slot WHERE state {_IS_HELD}") or 0)

    def next_moment(self, now: float) -> float | None:
        """Return the next time at which a slot becomes due, is retried or loses its lease; None if
        nothing is pending.
        """
        due = f"SELECT min(at) FROM slot WHERE state = '{Slot.READY}' AND at > ?"
        again = f"SELECT min(next_try_at) FROM slot WHERE state = '{Slot.READY}' AND next_try_at > ?"
        leases = f"SELECT min(lease_until) FROM slot WHERE state {_IS_HELD}"
        found = self._rows(f"SELECT ({due}), ({again}), ({leases})", (now, now))[0]
        return min((float(moment) for moment in found if moment is not None), default=None)

    def lengthen(self, now: float, by: float) -> None:
        """Extend every lease by `by` seconds."""
        self._rows(f"UPDATE slot SET lease_until = max(lease_until, ?) + ? WHERE state {_IS_HELD}", (now, by))

    def list_ended(
        self,
        projects: frozenset[str] | None,
        *,
        task: str | None = None,
        states: Iterable[str] | None = None,
        since: float = 0.0,
        limit: int,
    ) -> list[SlotRow]:
        """List ended slots, last first. `projects`, `states` and `task` limit them, None to no
        limit; `since` limits them to those that ended after that time.
        """
        among, names = within("t.project", projects)
        chosen, wanted = within("s.state", states if states is not None else FINAL)
        one, which = (" AND s.task = ?", [task]) if task is not None else ("", [])
        sql = f"""SELECT {_OF_SLOT} FROM slot s JOIN task t ON t.id = s.task
                  WHERE s.ended_at IS NOT NULL AND s.ended_at >= ?{among}{chosen}{one} ORDER BY s.ended_at DESC, s.at DESC LIMIT ?"""
        return [_slot_row(row) for row in self._rows(sql, (since, *names, *wanted, *which, limit))]

    def forget(self, before: float) -> None:
        """Delete the slots that ended before this time."""
        self._rows("DELETE FROM slot WHERE ended_at < ?", (before,))

    def _select(self, rest: str, *values: str | float) -> list[SlotRow]:
        """Return the slots selected by the rest of an SQL statement."""
        return [_slot_row(row) for row in self._rows(f"SELECT {_COLUMNS} FROM slot {rest}", values)]


def _slot_row(row: tuple[object, ...]) -> SlotRow:
    values = dict(zip(_FIELDS, row, strict=True))
    checked = values["is_checked"]
    values |= {
        "state": Slot(str(values["state"])),
        "is_repeatable": bool(values["is_repeatable"]),
        "is_checked": None if checked is None else bool(checked),
    }
    return SlotRow(**values)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class RunnerRow:
    key: str  # of the device, hex
    name: str
    recipes: Mapping[str, bool]  # by name: whether its orders need an approval
    seen_at: float  # seconds since 1970


class MonthlySpending(NamedTuple):
    """The amount that one runner has spent in one month."""

    month: str  # 2026-11, in UTC
    runner: str
    microusd: int
    tokens: int


class LogPart(NamedTuple):
    """A part of a log, sealed by its runner; `time` is in seconds since 1970."""

    task: str
    at: int
    part: int
    record: bytes
    time: float


class RunnerTable(Table):
    def note(self, row: RunnerRow) -> None:
        """Store what a runner currently reports about itself."""
        self._rows(
            "INSERT OR REPLACE INTO task_runner (key, name, recipes, seen_at) VALUES (?, ?, ?, ?)",
            (row.key, row.name, json.dumps(dict(row.recipes), sort_keys=True), row.seen_at),
        )

    def find(self, key: str) -> RunnerRow | None:
        rows = self._rows("SELECT key, name, recipes, seen_at FROM task_runner WHERE key = ?", (key,))
        return _runner_row(rows[0]) if rows else None

    def list_runners(self) -> list[RunnerRow]:
        """List the runners, last seen first."""
        return [
            _runner_row(row)
            for row in self._rows("SELECT key, name, recipes, seen_at FROM task_runner ORDER BY seen_at DESC")
        ]

    def spend(self, month: str, runner: str, microusd: int, tokens: int) -> None:
        """Add to a runner's spending in a month."""
        sql = """INSERT INTO task_spend (month, runner, microusd, tokens) VALUES (?, ?, ?, ?)
                 ON CONFLICT (month, runner) DO UPDATE SET microusd = microusd + excluded.microusd, tokens = tokens + excluded.tokens"""
        self._rows(sql, (month, runner, microusd, tokens))

    def list_spending(self, *, limit: int) -> list[MonthlySpending]:
        """List the spending of each runner in each month, newest first."""
        sql = "SELECT month, runner, microusd, tokens FROM task_spend ORDER BY month DESC, runner LIMIT ?"
        return [MonthlySpending._make(row) for row in self._rows(sql, (limit,))]

    def had_spent(self, month: str, runner: str, microusd: int, tokens: int) -> None:
        """Record a runner's spending in a month at the previous daemon; an existing record stays
        unchanged.
        """
        sql = "INSERT OR IGNORE INTO task_spend (month, runner, microusd, tokens) VALUES (?, ?, ?, ?)"
        self._rows(sql, (month, runner, microusd, tokens))

    def monthly_spending(self, month: str) -> int:
        """Return the spending of all runners in a month, in millionths of a dollar."""
        return int(self._one("SELECT sum(microusd) FROM task_spend WHERE month = ?", (month,)) or 0)


class TaskLogTable(Table):
    def put(self, task: str, at: int, part: int, record: bytes, *, now: float) -> None:
        """Store a part of a log, replacing the part with the same number. Raises SpaceFullError if
        the space is full.
        """
        self._database.require_room()
        self._rows(
            "INSERT OR REPLACE INTO task_log (task, at, part, record, stored_at) VALUES (?, ?, ?, ?, ?)",
            (task, at, part, record, now),
        )

    def behind(self, task: str, at: int, part: int, *, limit: int) -> list[LogPart]:
        """List up to `limit` log parts of all runs, in the order of task, time and number, starting
        after the given one.
        """
        sql = """SELECT task, at, part, record, stored_at FROM task_log WHERE (task, at, part) > (?, ?, ?)
                 ORDER BY task, at, part LIMIT ?"""
        return [LogPart._make(row) for row in self._rows(sql, (task, at, part, limit))]

    def after(self, task: str, at: int, part: int, *, limit: int) -> list[tuple[int, bytes]]:
        """List up to `limit` log parts of one run, from number `part` on, as (number, sealed record).

        `at`: the time of the run's slot.
        """
        sql = "SELECT part, record FROM task_log WHERE task = ? AND at = ? AND part >= ? ORDER BY part LIMIT ?"
        return [(int(number), bytes(record)) for number, record in self._rows(sql, (task, at, part, limit))]

    def forget(self, before: float) -> None:
        """Delete log parts that were stored before this time."""
        self._rows("DELETE FROM task_log WHERE stored_at < ?", (before,))


def _runner_row(row: tuple[object, ...]) -> RunnerRow:
    key, name, recipes, seen_at = row
    return RunnerRow(str(key), str(name), json.loads(str(recipes)), float(seen_at))  # type: ignore[arg-type]


class Queue:
    """The tables of tasks on one connection to a space's database."""

    def __init__(self, database: Database) -> None:
        self.tasks = TaskTable(database)
        self.slots = SlotTable(database)
        self.runners = RunnerTable(database)
        self.logs = TaskLogTable(database)


def queue(store: Store) -> Queue:
    """Return the task tables of a store."""
    return store.tables(Queue)
