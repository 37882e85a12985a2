"""Tasks: orders as their devices signed them, and how each stands."""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH
from confide_daemon.store.database import Table, within
from confide_night.order.sealed import Approval
from confide_night.order.states import Task

_KEPT = """id, project, recipe, repo, priority, ordered, signature, signer, approvals, state, why, planned_to, fresh_since,
           created_at"""
# Approvals as bytes: damaged ones may be no text, which could not even be fetched.
_COLUMNS = _KEPT.replace("approvals", "CAST(approvals AS BLOB)")
LIVING = (Task.PROPOSED, Task.ACTIVE, Task.PAUSED)
"""Those of which something may still be due."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """Times are seconds since 1970."""

    id: str
    project: str
    recipe: str
    repo: str
    priority: int
    ordered: bytes  # as it was signed
    signature: bytes
    signer: str  # a device's key, hex
    approvals: tuple[Approval, ...]
    state: Task
    why: str
    planned_to: int  # up to here its slots were made
    fresh_since: float  # failures from before do not count
    created_at: float


class TaskTable(Table):
    def add(self, row: TaskRow) -> bool:
        """Stores a task; False where there is one of that id."""
        sql = f"INSERT OR IGNORE INTO task ({_KEPT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING 1"
        values = (
            *(row.id, row.project, row.recipe, row.repo, row.priority, row.ordered, row.signature, row.signer),
            *(_written(row.approvals), row.state, row.why, row.planned_to, row.fresh_since, row.created_at),
        )
        return bool(self._rows(sql, values))

    def find(self, identity: str) -> TaskRow | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM task WHERE id = ?", (identity,))
        return _row(rows[0]) if rows else None

    def behind(self, identity: str, *, limit: int) -> list[TaskRow]:
        """All of them by their ids, from the first behind one on."""
        sql = f"SELECT {_COLUMNS} FROM task WHERE id > ? ORDER BY id LIMIT ?"
        return [_row(row) for row in self._rows(sql, (identity, limit))]

    def beginning(self, letters: str, projects: frozenset[str] | None, *, limit: int) -> list[TaskRow]:
        """Those whose ids begin so, in these projects (None: all)."""
        among, names = within("project", projects)
        sql = f"SELECT {_COLUMNS} FROM task WHERE id >= ? AND id < ? || 'g'{among} ORDER BY id LIMIT ?"
        return [_row(row) for row in self._rows(sql, (letters, letters, *names, limit))]

    def living(self) -> list[TaskRow]:
        """Those of which something may still be due."""
        found = self._rows(f"SELECT {_COLUMNS} FROM task WHERE state IN (?, ?, ?)", LIVING)
        return [_row(row) for row in found]

    def bearing(self, key: str, after: str, *, limit: int) -> list[TaskRow]:
        """Those that this device has signed or approved and of which something may still be due, from the first behind an id on."""
        sql = f"""SELECT {_COLUMNS} FROM task WHERE state IN (?, ?, ?) AND id > ? AND (signer = ? OR instr(approvals, ?))
                  ORDER BY id LIMIT ?"""
        return [_row(row) for row in self._rows(sql, (*LIVING, after, key, key, limit))]

    def approved(self) -> list[TaskRow]:
        """Of those of which something may still be due, the ones with an approval."""
        found = self._rows(f"SELECT {_COLUMNS} FROM task WHERE state IN (?, ?, ?) AND approvals <> '[]'", LIVING)
        return [_row(row) for row in found]

    def sign(self, identity: str, ordered: bytes, signature: bytes, signer: str) -> None:
        """Has a task be ordered by these bytes from now on, which nobody has approved yet."""
        sql = "UPDATE task SET ordered = ?, signature = ?, signer = ?, approvals = '[]' WHERE id = ?"
        self._rows(sql, (ordered, signature, signer, identity))

    def signers(self) -> list[str]:
        """The keys of the devices that have ordered any of these."""
        found = self._rows("SELECT DISTINCT signer FROM task WHERE state IN (?, ?, ?)", LIVING)
        return [str(row[0]) for row in found]

    def count(self) -> int:
        return int(self._one("SELECT count(*) FROM task") or 0)

    def count_living(self) -> int:
        return int(self._rows("SELECT count(*) FROM task WHERE state IN (?, ?, ?)", LIVING)[0][0])

    def listed(
        self,
        projects: frozenset[str] | None,
        *,
        states: Iterable[str] | None = None,
        since: float = 0.0,
        limit: int,
    ) -> list[TaskRow]:
        """The newest first; of these projects and states (None: all), and added since then."""
        (among, names), (chosen, wanted) = within("project", projects), within("state", states)
        sql = f"SELECT {_COLUMNS} FROM task WHERE created_at >= ?{among}{chosen} ORDER BY created_at DESC, id LIMIT ?"
        return [_row(row) for row in self._rows(sql, (since, *names, *wanted, limit))]

    def stand(self, identity: str, state: Task, why: str = "") -> None:
        """Has the task stand so from now on."""
        self._rows("UPDATE task SET state = ?, why = ? WHERE id = ?", (state, why, identity))

    def planned(self, identity: str, to: int) -> None:
        """Its slots were made up to that moment."""
        self._rows("UPDATE task SET planned_to = ? WHERE id = ?", (to, identity))

    def refresh(self, identity: str, since: float) -> None:
        """Failures from before do not count any more."""
        self._rows("UPDATE task SET fresh_since = ? WHERE id = ?", (since, identity))

    def approve(self, identity: str, approvals: tuple[Approval, ...]) -> None:
        self._rows("UPDATE task SET approvals = ? WHERE id = ?", (_written(approvals), identity))

    def unapproved(self, recipes: Iterable[str], projects: frozenset[str] | None) -> list[str]:
        """The ids of active tasks with such a recipe that no second device has approved."""
        (among, names), (chosen, wanted) = within("project", projects), within("recipe", recipes)
        sql = f"SELECT id FROM task WHERE state = ? AND approvals = '[]'{chosen}{among}"
        return [str(row[0]) for row in self._rows(sql, (Task.ACTIVE, *wanted, *names))]

    def forget(self, before: float) -> None:
        """Drops tasks that ended, of which no slot is left, and that were added before then."""
        sql = """DELETE FROM task WHERE created_at < ? AND state IN (?, ?)
                 AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.task = task.id)"""
        self._rows(sql, (before, Task.DONE, Task.CANCELLED))


def _written(approvals: tuple[Approval, ...]) -> str:
    return json.dumps([[one.key.hex(), one.signature.hex()] for one in approvals])


def _approvals(written: bytes) -> tuple[Approval, ...]:
    """Those in a column; where it is damaged none, so that they are asked for again."""
    try:
        found = [Approval(bytes.fromhex(key), bytes.fromhex(signature)) for key, signature in json.loads(written)]
    except (ValueError, TypeError):
        return ()
    is_whole = all((len(one.key), len(one.signature)) == (KEY_LENGTH, SIGNATURE_LENGTH) for one in found)
    return tuple(found) if is_whole else ()


def _row(row: tuple[object, ...]) -> TaskRow:
    values = list(row)
    values[8] = _approvals(bytes(values[8]))  # type: ignore[call-overload]
    values[9] = Task(str(values[9]))
    return TaskRow(*values)  # type: ignore[arg-type]
