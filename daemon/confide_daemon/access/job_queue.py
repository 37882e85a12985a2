"""A queue of jobs for the running daemon, such as to check a space, rebuild its index, recompute
its vectors or change its key.

A command writes a row into the registry. The daemon notices it within a moment, runs the jobs one
after the other, and writes their progress into the rows. A process that can write the registry
belongs to the owner of the data folder and has its master key, so jobs need no further
authorization.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from confide_daemon.access.registry import Registry

Kind = Literal["fix", "reindex", "reembed", "rekey", "to-caller", "to-server", "to-vault", "from-vault"]
ENDED: Final = ("done", "failed", "cancelled")
KEPT: Final = 100
_COLUMNS: Final = "id, kind, space, asked_at, state, step, done, total, outcome"


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the queue. `state` is one of asked (queued), running, done, failed and cancelled."""

    id: int
    kind: Kind
    space_id: str
    asked_at: float  # seconds since 1970
    state: str
    step: str
    done: int
    total: int
    outcome: dict[str, Any]  # the result, or {"error": …, "hint": …}

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class Jobs:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def ask(self, kind: Kind, space_id: str) -> int:
        """Add a job to the queue and return its id."""
        with self._registry.writing_here() as database:
            database.execute("DELETE FROM jobs WHERE id <= (SELECT max(id) FROM jobs) - ?", (KEPT,))
            sql = "INSERT INTO jobs (kind, space, asked_at) VALUES (?, ?, ?) RETURNING id"
            return int(database.execute(sql, (kind, space_id, self._registry.clock())).fetchall()[0][0])  # type: ignore[arg-type]

    def get(self, identity: int) -> Job | None:
        return self._first("WHERE id = ?", identity)

    def next(self) -> Job | None:
        """Return the oldest job that has not begun, or None if there is none."""
        return self._first("WHERE state = 'asked' ORDER BY id LIMIT 1")

    def first_open(self) -> int | None:
        """Return the id of the running job, or else of the next one; None if the queue is empty."""
        found = self._first("WHERE state IN ('asked', 'running') ORDER BY id LIMIT 1")
        return found.id if found is not None else None

    def counts(self) -> dict[str, int]:
        """Return how many of the last hundred jobs are in each state."""
        with self._registry.reading() as database:
            rows: list[Any] = database.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
        return {str(state): int(count) for state, count in rows}

    def cancel(self, identity: int) -> None:
        """Cancel a job because the command that queued it no longer waits for it."""
        self._write("UPDATE jobs SET state = 'cancelled' WHERE id = ? AND state IN ('asked', 'running')", identity)

    def begin(self, identity: int) -> None:
        self._write("UPDATE jobs SET state = 'running' WHERE id = ? AND state = 'asked'", identity)

    def report_progress(self, identity: int, step: str, done: int, total: int) -> None:
        self._write("UPDATE jobs SET step = ?, done = ?, total = ? WHERE id = ?", step, done, total, identity)

    def end(self, identity: int, state: str, outcome: dict[str, object]) -> None:
        """Record the final state and the outcome of a job. A cancelled job stays cancelled."""
        sql = "UPDATE jobs SET state = ?, outcome = ? WHERE id = ? AND state = 'running'"
        self._write(sql, state, json.dumps(outcome), identity)

    def end_all(self) -> None:
        """Mark jobs as failed that an earlier daemon process left open when it ended."""
        outcome = json.dumps({"error": "the daemon ended before it was done", "hint": "ask again"})
        self._write("UPDATE jobs SET state = 'failed', outcome = ? WHERE state IN ('asked', 'running')", outcome)

    def _write(self, sql: str, *values: Any) -> None:
        with self._registry.writing_here() as database:
            database.execute(sql, values)

    def _first(self, where: str, *values: Any) -> Job | None:
        with self._registry.reading() as database:
            rows: list[Any] = database.execute(f"SELECT {_COLUMNS} FROM jobs {where}", values).fetchall()  # noqa: S608 - ours
        if not rows:
            return None
        identity, kind, space_id, asked_at, state, step, done, total, outcome = rows[0]
        return Job(identity, kind, space_id, asked_at, state, step, done, total, json.loads(outcome))
