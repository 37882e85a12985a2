"""What a comparison of a folder with the daemon came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class SyncReport:
    """What a comparison did, counted in files."""

    files_scanned: int = 0
    sent: int = 0
    removed: int = 0
    pulled: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The wire form, as the daemon's `scan` request expects it."""
        return {
            "filesScanned": self.files_scanned,
            "sent": self.sent,
            "removed": self.removed,
            "pulled": self.pulled,
            "skipped": list({tuple(item.items()): item for item in self.skipped}.values()),
        }

    def add(self, other: SyncReport) -> None:
        """Count another folder's work in."""
        self.files_scanned += other.files_scanned
        self.sent += other.sent
        self.removed += other.removed
        self.pulled += other.pulled
        self.skipped += other.skipped
