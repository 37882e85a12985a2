"""What is known of runners: what each can do, what it has spent, and the logs that they sealed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from confide_daemon.store.database import Table


@dataclass(frozen=True, slots=True)
class RunnerRow:
    key: str  # of the device, hex
    name: str
    recipes: Mapping[str, bool]  # whether an order of each needs an approval
    seen_at: float  # seconds since 1970


class Spent(NamedTuple):
    """What a runner has spent in a month."""

    month: str  # 2026-11, in UTC
    runner: str
    microusd: int
    tokens: int


class LogPart(NamedTuple):
    """A part of a log, as its runner sealed it; `time` in seconds since 1970."""

    task: str
    at: int
    part: int
    record: bytes
    time: float


class RunnerTable(Table):
    def note(self, row: RunnerRow) -> None:
        """What a runner says of itself now."""
        self._rows(
            "INSERT OR REPLACE INTO task_runner (key, name, recipes, seen_at) VALUES (?, ?, ?, ?)",
            (row.key, row.name, json.dumps(dict(row.recipes), sort_keys=True), row.seen_at),
        )

    def find(self, key: str) -> RunnerRow | None:
        rows = self._rows("SELECT key, name, recipes, seen_at FROM task_runner WHERE key = ?", (key,))
        return _row(rows[0]) if rows else None

    def listed(self) -> list[RunnerRow]:
        """The one that was here last first."""
        return [
            _row(row) for row in self._rows("SELECT key, name, recipes, seen_at FROM task_runner ORDER BY seen_at DESC")
        ]

    def spend(self, month: str, runner: str, microusd: int, tokens: int) -> None:
        """Adds to what a runner has spent in a month."""
        sql = """INSERT INTO task_spend (month, runner, microusd, tokens) VALUES (?, ?, ?, ?)
                 ON CONFLICT (month, runner) DO UPDATE SET microusd = microusd + excluded.microusd, tokens = tokens + excluded.tokens"""
        self._rows(sql, (month, runner, microusd, tokens))

    def all_spent(self, *, limit: int) -> list[Spent]:
        """What each has spent in each month, the newest first."""
        sql = "SELECT month, runner, microusd, tokens FROM task_spend ORDER BY month DESC, runner LIMIT ?"
        return [Spent._make(row) for row in self._rows(sql, (limit,))]

    def had_spent(self, month: str, runner: str, microusd: int, tokens: int) -> None:
        """Notes what a runner had spent in a month elsewhere, once."""
        sql = "INSERT OR IGNORE INTO task_spend (month, runner, microusd, tokens) VALUES (?, ?, ?, ?)"
        self._rows(sql, (month, runner, microusd, tokens))

    def spent(self, month: str) -> int:
        """What all have spent in a month, in millionths of a dollar."""
        return int(self._one("SELECT sum(microusd) FROM task_spend WHERE month = ?", (month,)) or 0)


class TaskLogTable(Table):
    def put(self, task: str, at: int, part: int, record: bytes, *, now: float) -> None:
        """Stores a part of a log in place of the one of that number. Raises SpaceFullError: the space may hold no more."""
        self._database.require_room()
        self._rows(
            "INSERT OR REPLACE INTO task_log (task, at, part, record, stored_at) VALUES (?, ?, ?, ?, ?)",
            (task, at, part, record, now),
        )

    def behind(self, task: str, at: int, part: int, *, limit: int) -> list[LogPart]:
        """All of them by task, moment and number, from the first behind one on."""
        sql = """SELECT task, at, part, record, stored_at FROM task_log WHERE (task, at, part) > (?, ?, ?)
                 ORDER BY task, at, part LIMIT ?"""
        return [LogPart._make(row) for row in self._rows(sql, (task, at, part, limit))]

    def after(self, task: str, at: int, part: int, *, limit: int) -> list[tuple[int, bytes]]:
        """(number, record) of the parts from that one on."""
        sql = "SELECT part, record FROM task_log WHERE task = ? AND at = ? AND part >= ? ORDER BY part LIMIT ?"
        return [(int(number), bytes(record)) for number, record in self._rows(sql, (task, at, part, limit))]

    def forget(self, before: float) -> None:
        """Drops what was stored before then."""
        self._rows("DELETE FROM task_log WHERE stored_at < ?", (before,))


def _row(row: tuple[object, ...]) -> RunnerRow:
    key, name, recipes, seen_at = row
    return RunnerRow(str(key), str(name), json.loads(str(recipes)), float(seen_at))  # type: ignore[arg-type]
