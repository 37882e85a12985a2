"""The table `[backup]` of daemon.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from confide_daemon.config import DaemonConfig, within

_AGE: Final = re.compile(r"([1-9]\d{0,3})([hd])")
_CLOCK: Final = re.compile(r"(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """Settings for snapshots of the data folder, and for the list of revoked keys that is kept
    beside them for a restore.
    """

    to: str = ""  # folder of the snapshots; `confided backup init` prepares it
    at: str = ""  # local time of the daily snapshot, as 02:30; "": only by command
    # number of days, weeks and months whose newest snapshot is kept, as restic counts them
    keep_daily: int = 7
    keep_weekly: int = 5
    keep_monthly: int = 12
    max_age: str = "3d"  # /health reports a space without a younger proven snapshot
    # programs that run after each snapshot, and that fetch one for `verify`: a program with its
    # arguments, with {snapshot}, {name} and {folder}
    after: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    hook_timeout_s: int = 3600  # limit of one run; then its process group is killed
    revoked: str = ""  # second folder for the list of revoked keys

    @property
    def max_age_s(self) -> float:
        """The age in seconds from which a snapshot is too old. Raises ValueError if `max_age` is
        not valid.
        """
        match = _AGE.fullmatch(self.max_age)
        if match is None:
            raise ValueError("it is a number of hours or days, as in 36h or 3d")
        return int(match[1]) * (3600.0 if match[2] == "h" else 86_400.0)

    @property
    def minute(self) -> int | None:
        """The minute of the day from the option `at`, or None without one. Raises ValueError if it
        is not a time of day.
        """
        if not self.at:
            return None
        match = _CLOCK.fullmatch(self.at)
        if match is None or int(match[1]) > 23 or int(match[2]) > 59:
            raise ValueError("it is a time of the day, as in 02:30")
        return int(match[1]) * 60 + int(match[2])

    def problem(self, _config: DaemonConfig | None = None) -> tuple[str, str] | None:
        """Return the name of the first option with an invalid value and a description of the
        accepted values, or None if all are valid.
        """
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
