"""What a comparison of a folder with the daemon did, and its steps, a file each: a few at once, of which none keeps another back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from confide_crypto.errors import RequestError
from confide_proxy.errors import FolderError

AT_ONCE = 4
_FILE_CODES = frozenset({"invalid", "too_large", "not_found", "denied"})
"""Answers that are about one file: it is skipped and reported, and the others go on."""
_UNAVAILABLE = "unavailable"
"""What a file needs is away, such as the place of its sealed records: the others go on, and it is compared again."""
_MOST_UNAVAILABLE = 64
"""Files that are not taken now; then it is left, since nothing may be there."""


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


Step = Callable[[str, SyncReport], Awaitable[None]]


class Steps:
    """Those of one folder: however many comparisons there are, `AT_ONCE` run at once."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(
        self, steps: list[tuple[str, Step]], report: SyncReport, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Run each with its path; `progress` is told (steps done, steps in all).

        Raises RequestError, ConnectionLost: from the link; `unavailable`, once the others are done.
        """
        unavailable: list[RequestError] = []
        waiting = iter(steps)
        done = 0

        async def work() -> None:
            nonlocal done
            for path, run in waiting:
                async with self._slots:
                    try:
                        await _guarded(path, run, report)
                    except RequestError as error:
                        unavailable.append(error)
                        if error.code != _UNAVAILABLE or len(unavailable) == _MOST_UNAVAILABLE:
                            raise
                done += 1
                if progress:
                    progress(done, len(steps))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(steps))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            # All steps share one link, so they fail for one reason; the first says it.
            raise failures.exceptions[0] from None
        if unavailable:
            raise unavailable[0]


async def _guarded(path: str, run: Step, report: SyncReport) -> None:
    try:
        await run(path, report)
    except FolderError as error:
        report.skipped.append({"path": path, "reason": error.problem})
    except TimeoutError:
        report.skipped.append({"path": path, "reason": "was not answered in time; it is compared again"})
    except OSError as error:
        # This machine's own notes, most often on a full disk; the file is compared again.
        report.skipped.append({"path": path, "reason": f"cannot be kept in mind: {error.strerror}"})
    except RequestError as error:
        if error.code not in _FILE_CODES:
            raise
        report.skipped.append({"path": path, "reason": str(error)})
