"""What this runner has spent in a month, on its own disk: a daemon that was put back to an older copy must not give the money out again."""

from __future__ import annotations

import json
import time
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.files import read_private_file, write_private_file


class Spending:
    """The spending of a month, of this machine's calendar. Methods block, and raise KeyFileError where the disk refuses."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "spent.json"

    def usd(self) -> float:
        """Spent this month, with what is held for a run. Raises KeyFileError too where the file is no longer what was written there."""
        if not self._file.exists():
            return 0.0
        try:
            said = json.loads(read_private_file(self._file))
            month, usd = str(said["month"]), float(said["usd"])
        except (ValueError, KeyError, TypeError):
            hint = "move it away, and what this month has cost so far counts no more"
            raise KeyFileError(self._file, "is damaged", hint=hint) from None
        return usd if month == _month() else 0.0

    def hold(self, usd: float) -> None:
        """Count what a run may cost, before it begins: one that is killed has cost something that nobody knows."""
        self._add(usd)

    def settle(self, held_usd: float, usd: float) -> None:
        """A run has cost that, of what was held for it."""
        self._add(usd - held_usd)

    def _add(self, usd: float) -> None:
        # A run over midnight of the last day gives back to a month that is new.
        total = max(0.0, self.usd() + usd)
        write_private_file(self._file, json.dumps({"month": _month(), "usd": round(total, 6)}).encode(), replace=True)


def _month() -> str:
    return time.strftime("%Y-%m")
