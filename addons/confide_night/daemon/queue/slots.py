"""Slots: the moments at which tasks are due, who has each, and what became of it."""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from confide_daemon.store.database import Table, within
from confide_night.order.states import FINAL, HELD, Slot, Task

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
    """Times are seconds since 1970, money is in millionths of a dollar."""

    task: str
    at: int  # when it is due
    state: Slot = Slot.READY
    attempt: int = 1
    fence: int = 0
    next_try_at: float = 0.0
    runner: str | None = None  # a device's key, hex
    lease_until: float | None = None
    is_repeatable: bool = False
    to_cancel: str | None = None  # why it is to be killed
    reserved: int = 0
    microusd: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ms: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    note: str | None = None  # the path of its result
    commit_id: str = ""
    is_checked: bool | None = None
    seen_at: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether a runner has it."""
        return self.state in HELD


class SlotTable(Table):
    def add(self, task: str, at: int) -> bool:
        """Makes a slot; False where it was made before, whatever has become of it."""
        sql = "INSERT OR IGNORE INTO slot (task, at, next_try_at) VALUES (?, ?, ?) RETURNING 1"
        return bool(self._rows(sql, (task, at, at)))

    def put(self, row: SlotRow) -> None:
        """Keeps a slot as it was elsewhere; one that is there stays as it is."""
        marks = ", ".join("?" for _ in _FIELDS)
        self._rows(
            f"INSERT OR IGNORE INTO slot ({_COLUMNS}) VALUES ({marks})", tuple(getattr(row, name) for name in _FIELDS)
        )

    def behind(self, task: str, at: int, *, limit: int) -> list[SlotRow]:
        """All of them by task and moment, from the first behind one on."""
        sql = f"SELECT {_COLUMNS} FROM slot WHERE (task, at) > (?, ?) ORDER BY task, at LIMIT ?"
        return [_row(row) for row in self._rows(sql, (task, at, limit))]

    def largest_fence(self) -> int:
        """That any of them has; 0 without one."""
        return int(self._one("SELECT max(fence) FROM slot") or 0)

    def find(self, task: str, at: int) -> SlotRow | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM slot WHERE task = ? AND at = ?", (task, at))
        return _row(rows[0]) if rows else None

    def write(self, row: SlotRow) -> None:
        """Has the slot be as in this row."""
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
        """The best slots that are due and may be begun, by priority, then by time, of each task the first: none of a task that is not
        active, of which another slot is held, or in whose repository something runs."""
        among, names = within("t.project", projects)
        chosen, wanted = within("t.recipe", recipes)
        free, taken = within("t.repo", busy)
        free = free.replace(" IN ", " NOT IN ")
        # Held slots are few, so what they keep from others is looked up once; and of a task only the first that is due can be begun.
        sql = f"""WITH held AS MATERIALIZED (SELECT h.task, o.repo FROM slot h JOIN task o ON o.id = h.task WHERE h.state {_IS_HELD}),
                  first AS MATERIALIZED (SELECT t.id, t.priority, (SELECT d.at FROM slot d WHERE d.task = t.id AND d.state = '{Slot.READY}'
                      AND d.at <= ? AND d.next_try_at <= ? ORDER BY d.at LIMIT 1) AS at
                      FROM task t WHERE t.state = '{Task.ACTIVE}'{among}{chosen}{free}
                      AND t.id NOT IN (SELECT task FROM held) AND (t.repo = '' OR t.repo NOT IN (SELECT repo FROM held)))
                  SELECT {_OF_SLOT} FROM first f JOIN slot s ON s.task = f.id AND s.at = f.at
                  ORDER BY f.priority DESC, f.at, f.id LIMIT ?"""
        return [_row(row) for row in self._rows(sql, (now, now, *names, *wanted, *taken, limit))]

    def due(self, task: str, *, now: float) -> list[SlotRow]:
        """Those of a task that wait and are due, the earliest first."""
        sql = f"SELECT {_COLUMNS} FROM slot WHERE task = ? AND state = '{Slot.READY}' AND at <= ? ORDER BY at"
        return [_row(row) for row in self._rows(sql, (task, now))]

    def of(self, task: str, *, limit: int) -> list[SlotRow]:
        """Those of a task, the latest first."""
        sql = f"SELECT {_COLUMNS} FROM slot WHERE task = ? ORDER BY at DESC LIMIT ?"
        return [_row(row) for row in self._rows(sql, (task, limit))]

    def waiting(self, task: str) -> list[SlotRow]:
        """Those of a task that nobody has begun, the earliest first."""
        sql = f"SELECT {_COLUMNS} FROM slot WHERE task = ? AND state = '{Slot.READY}' ORDER BY at"
        return [_row(row) for row in self._rows(sql, (task,))]

    def held(self) -> list[SlotRow]:
        """Those that a runner has."""
        return [_row(row) for row in self._rows(f"SELECT {_COLUMNS} FROM slot WHERE state {_IS_HELD}")]

    def unended(self, *, due: float) -> list[SlotRow]:
        """Those that are due and have not ended."""
        waiting = f"SELECT {_COLUMNS} FROM slot WHERE state = '{Slot.READY}' AND at <= ?"
        sql = f"{waiting} UNION ALL SELECT {_COLUMNS} FROM slot WHERE state {_IS_HELD}"
        return [_row(row) for row in self._rows(sql, (due,))]

    def is_open(self, task: str) -> bool:
        """Whether something of the task waits or runs."""
        sql = f"SELECT 1 FROM slot WHERE task = ? AND state IN ('{Slot.READY}', '{Slot.LEASED}', '{Slot.RUNNING}') LIMIT 1"
        return bool(self._rows(sql, (task,)))

    def last_ended(self, task: str, *, since: float, limit: int) -> list[Slot]:
        """How the last ones of a task ended that were begun, the latest first."""
        sql = f"""SELECT state FROM slot WHERE task = ? AND ended_at >= ? AND state IN ('{Slot.SUCCEEDED}', '{Slot.FAILED}', '{Slot.LOST}')
                  ORDER BY ended_at DESC, at DESC LIMIT ?"""
        return [Slot(row[0]) for row in self._rows(sql, (task, since, limit))]

    def ended_last(self, task: str) -> float:
        """When a slot of it last ended that had been begun; 0 for never."""
        return float(
            self._one("SELECT max(ended_at) FROM slot WHERE task = ? AND started_at IS NOT NULL", (task,)) or 0.0
        )

    def reserved(self) -> int:
        """What all that is held may still cost."""
        return int(self._one(f"SELECT sum(reserved) FROM slot WHERE state {_IS_HELD}") or 0)

    def next_moment(self, now: float) -> float | None:
        """When the next slot is due, tried again, or lost; None: nothing waits."""
        due = f"SELECT min(at) FROM slot WHERE state = '{Slot.READY}' AND at > ?"
        again = f"SELECT min(next_try_at) FROM slot WHERE state = '{Slot.READY}' AND next_try_at > ?"
        leases = f"SELECT min(lease_until) FROM slot WHERE state {_IS_HELD}"
        found = self._rows(f"SELECT ({due}), ({again}), ({leases})", (now, now))[0]
        return min((float(moment) for moment in found if moment is not None), default=None)

    def lengthen(self, now: float, by: float) -> None:
        """Grants every lease so many seconds more."""
        self._rows(f"UPDATE slot SET lease_until = max(lease_until, ?) + ? WHERE state {_IS_HELD}", (now, by))

    def told(
        self,
        projects: frozenset[str] | None,
        *,
        task: str | None = None,
        states: Iterable[str] | None = None,
        since: float = 0.0,
        limit: int,
    ) -> list[SlotRow]:
        """Slots that have ended, the last first: in these projects and states (None: in all that are final), of one task, since then."""
        among, names = within("t.project", projects)
        chosen, wanted = within("s.state", states if states is not None else FINAL)
        one, which = (" AND s.task = ?", [task]) if task is not None else ("", [])
        sql = f"""SELECT {_OF_SLOT} FROM slot s JOIN task t ON t.id = s.task
                  WHERE s.ended_at IS NOT NULL AND s.ended_at >= ?{among}{chosen}{one} ORDER BY s.ended_at DESC, s.at DESC LIMIT ?"""
        return [_row(row) for row in self._rows(sql, (since, *names, *wanted, *which, limit))]

    def counts(self, projects: frozenset[str] | None, *, since: float) -> dict[str, int]:
        """How many ended in each state since then, and how many wait and run now."""
        among, names = within("t.project", projects)
        sql = f"""SELECT s.state, count(*) FROM slot s JOIN task t ON t.id = s.task
                  WHERE (s.ended_at >= ? OR s.state {_IS_HELD}){among} GROUP BY 1"""
        return {str(state): int(number) for state, number in self._rows(sql, (since, *names))}

    def forget(self, before: float) -> None:
        """Drops those that ended before then."""
        self._rows("DELETE FROM slot WHERE ended_at < ?", (before,))


def _row(row: tuple[object, ...]) -> SlotRow:
    values = dict(zip(_FIELDS, row, strict=True))
    checked = values["is_checked"]
    values |= {
        "state": Slot(str(values["state"])),
        "is_repeatable": bool(values["is_repeatable"]),
        "is_checked": None if checked is None else bool(checked),
    }
    return SlotRow(**values)  # type: ignore[arg-type]
