"""`[tasks]` of daemon.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confide_daemon.config import DaemonConfig, within


@dataclass(frozen=True, slots=True)
class TasksConfig:
    """What tasks may do that runners do for a space."""

    # what all runners of a space together may spend in a month, in dollars; 0: as much as each may by its own configuration
    monthly_usd: float = 0.0

    def problem(self, _config: DaemonConfig | None = None) -> tuple[str, str] | None:
        """The first option with a value that cannot be, and what it takes."""
        return None if 0 <= self.monthly_usd <= 1_000_000 else ("monthly_usd", within(0, 1_000_000))


TABLES: Final = {"tasks": TasksConfig}
