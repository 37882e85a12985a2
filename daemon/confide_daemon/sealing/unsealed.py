"""How many credentials a space holds in clear, as one of its machines has last counted them: the daemon itself knows no rules.

The counts stand in the registry, so that an operator is told of them while a space is locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confide_daemon.registry import Registry


@dataclass(frozen=True, slots=True)
class Unsealed:
    """What was counted, and when (seconds since 1970)."""

    findings: int
    seen_at: float


class UnsealedCounts:
    """Those of all spaces. As safe as the registry itself: from several threads and processes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def keep(self, space_id: str, counted: Unsealed) -> None:
        """In the place of an older one. Raises StorageError."""
        with self._registry.transaction() as database:
            sql = "INSERT OR REPLACE INTO unsealed (space, findings, seen_at) VALUES (?, ?, ?)"
            database.execute(sql, (space_id, counted.findings, counted.seen_at))

    def of(self, space_id: str) -> Unsealed | None:
        """The last one; None where nobody has ever counted. Raises StorageError."""
        with self._registry.reading() as database:
            sql = "SELECT findings, seen_at FROM unsealed WHERE space = ?"
            rows: list[Any] = database.execute(sql, (space_id,)).fetchall()
        return Unsealed(*rows[0]) if rows else None
