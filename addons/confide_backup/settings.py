"""`[backup]` of daemon.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from confide_daemon.config import DaemonConfig, within

_AGE: Final = re.compile(r"([1-9]\d{0,3})([hd])")
_CLOCK: Final = re.compile(r"(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """Snapshots of the data folder, and what is kept beside it for the day when it is put back from an older copy."""

    to: str = ""  # the folder that snapshots go to; `confided backup init` has prepared it
    at: str = ""  # when one is taken each day, by this machine's clock, as 02:30; "": when somebody says so
    # the newest of so many days, weeks and months are kept, as restic counts them
    keep_daily: int = 7
    keep_weekly: int = 5
    keep_monthly: int = 12
    max_age: str = "3d"  # a space without a proven snapshot that is younger is told of by /health
    # run behind each snapshot, and to bring one back for `verify`: a program and its arguments, with {snapshot}, {name} and {folder}
    after: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    hook_timeout_s: int = 3600  # for one run of them; then it is ended with all that it has started
    revoked: str = ""  # another folder for the keys of machines that were revoked, beside that of the snapshots

    @property
    def max_age_s(self) -> float:
        """Raises ValueError where it is no time."""
        match = _AGE.fullmatch(self.max_age)
        if match is None:
            raise ValueError("it is a number of hours or days, as in 36h or 3d")
        return int(match[1]) * (3600.0 if match[2] == "h" else 86_400.0)

    @property
    def minute(self) -> int | None:
        """The minute of the day that `at` names, None where none. Raises ValueError where it is no time."""
        if not self.at:
            return None
        match = _CLOCK.fullmatch(self.at)
        if match is None or int(match[1]) > 23 or int(match[2]) > 59:
            raise ValueError("it is a time of the day, as in 02:30")
        return int(match[1]) * 60 + int(match[2])

    def problem(self, _config: DaemonConfig | None = None) -> tuple[str, str] | None:
        """The first option with a value that cannot be, and what it takes."""
        for option, name in (("minute", "at"), ("max_age_s", "max_age")):
            try:
                getattr(self, option)
            except ValueError as error:
                return name, str(error)
        for span in ("daily", "weekly", "monthly"):
            if not 0 <= getattr(self, f"keep_{span}") <= 10_000:
                return f"keep_{span}", within(0, 10_000)
        if not 1 <= self.hook_timeout_s <= 7 * 86_400:
            return "hook_timeout_s", within(1, 7 * 86_400)
        return None


TABLES: Final = {"backup": BackupConfig}
