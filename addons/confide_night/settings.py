"""The section `[tasks]` of daemon.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confide_daemon.config import DaemonConfig, within


@dataclass(frozen=True, slots=True)
class TasksConfig:
    """Limits for the tasks that runners execute for a space."""

    # monthly budget of all runners of a space together, in US dollars; 0: only each runner's own
    # limit applies
    monthly_usd: float = 0.0

    def problem(self, _config: DaemonConfig | None = None) -> tuple[str, str] | None:
        """Return the first option with an invalid value and the accepted values; None if all are
        valid.
        """
        return None if 0 <= self.monthly_usd <= 1_000_000 else ("monthly_usd", within(0, 1_000_000))


TABLES: Final = {"tasks": TasksConfig}
