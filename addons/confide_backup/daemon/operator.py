"""The backup service of a running daemon: it takes daily snapshots, verifies a snapshot again when
a device brings a missing key, and runs the requests of commands.

A command starts a task with one request to the control socket, and follows it with another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confide_backup.daemon.backup_service import WHATS, BackupRequest, Backups, BackupStatus
from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.addons import Gauges, HeldCopy, Service, Verbs
from confide_daemon.datadir.disk import Disk

log = logging.getLogger(__name__)

TICK_S: Final = 15.0
"""Seconds between checks for a due snapshot or a new key."""
LOOK_S: Final = 3600.0
"""Seconds between full checks of the snapshots, which read all manifests; each change also triggers
one.
"""
RETRY_S: Final = 900.0
"""Seconds to wait after a failure, such as a missing disk."""
KEPT: Final = 16
"""Number of ended tasks whose results stay available; also the limit of running ones."""


@dataclass(eq=False, slots=True)
class _Task:
    step: str = "waiting"
    done: int = 0
    total: int = 0
    outcome: dict[str, Any] = field(default_factory=dict)  # empty while it runs

    def follow(self, step: str, done: int, total: int) -> None:
        self.step, self.done, self.total = step, done, total


class BackupDesk(Service):
    """Runs the backups that commands request, and the configured daily ones."""

    def __init__(self, backups: Backups, verbs: Verbs, gauges: Gauges, disk: Disk) -> None:
        """Prepare the service; while `disk`, that of the data folder, is low on space, only
        commands start a copy.
        """
        self._backups = backups
        self._disk = disk
        self._tasks: dict[int, _Task] = {}
        self._last = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._standing = BackupStatus()
        self._is_there = True  # whether the target existed at the last check
        self._is_working = False
        self._looked_at = 0.0
        self._complaint = ""
        verbs.add("backup", self._begin)
        verbs.add("backup task", self._tell)
        gauges.add(
            "backup_last_proven_timestamp_seconds",
            "When the newest snapshot was taken that is proven as a whole; absent where none is.",
            lambda: self._standing.proven_at or None,
        )
        gauges.add(
            "backup_spaces_unproven",
            "Spaces of the newest snapshot that are not proven.",
            lambda: self._standing.unproven if self._standing.newest else None,
        )

    async def open(self) -> None:
        """Start the schedule if a target is configured."""
        if self._backups.has_target:
            self._begin_task(self._go_on(), "confide-nightly")

    def _begin_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @property
    def is_busy(self) -> bool:
        """Return True if a task is running that would be interrupted if the daemon ended."""
        return self._is_working or any(not one.outcome for one in self._tasks.values())

    @property
    def is_backed_up(self) -> bool | None:
        """Return True if the backup folder exists and every space has a verified snapshot that is
        recent enough; None if no backup folder is configured.
        """
        return not self.health_problems() if self._backups.has_target else None

    def health_problems(self) -> set[str]:
        """Return `{"backup"}` if a space has no verified snapshot that is recent enough, or the
        backup folder is missing; else an empty set.
        """
        return {"backup"} if self._standing.late or not self._is_there else set()

    def copies_of(self, space_id: str, before: float) -> Sequence[HeldCopy]:
        """Return the snapshots that contain the space as it was before the time `before` (seconds
        since 1970). Raise TargetError if the backup folder cannot be read.
        """
        return self._backups.held_copies(space_id, before) if self._backups.has_target else ()

    async def drop_copies(self, space_id: str, before: float) -> Sequence[str]:
        """Remove the space from the snapshots taken before the time `before`, once a new snapshot
        is verified. Return their names. Raise ConfideError if a step fails.
        """
        return await self._backups.drop_copies(space_id, before) if self._backups.has_target else ()

    def on_records_written(self, space_id: str) -> None:
        """Copy a space's records of forgotten texts to the backup folder."""
        if self._backups.has_target:
            self._begin_task(self._keep_records(space_id), "confide-forgotten")

    async def _keep_records(self, space_id: str) -> None:
        try:
            await self._backups.keep_records(space_id)
        except ConfideError as error:
            log.error("backup: %s", error)

    def on_revocations_written(self, files: Sequence[Path]) -> None:
        """Run the operator's program at once for these files, which list revoked keys."""
        for path in files:
            self._begin_task(self._run_program_for(path), "confide-revoked")

    async def _run_program_for(self, path: Path) -> None:
        try:
            await self._backups.run_program_for(path)
        except ConfideError as error:
            log.error("backup: %s", error)

    async def close(self) -> None:
        """Cancel the running task. An unfinished snapshot is not listed, and the next snapshot
        removes its files.
        """
        tasks = [*self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _go_on(self) -> None:
        await self._look()
        loop = asyncio.get_running_loop()
        failed_at = -RETRY_S
        while True:
            await asyncio.sleep(TICK_S)
            if loop.time() - self._looked_at >= (LOOK_S if self._is_there else RETRY_S):
                await self._look()
            if loop.time() - failed_at < RETRY_S:
                continue
            self._is_working = True
            try:
                is_due = self._is_there and self._backups.is_due(self._standing)
                # A log grows during the copy of its database, and verification copies databases to
                # the data folder.
                if is_due and self._disk.has_room_for("snapshots"):
                    await self._backups.nightly()
                    await self._look()
                if self._backups.at_hand(self._standing) and self._disk.has_room_for("snapshots"):
                    await self._backups.prove_unlocked(self._standing)
                    await self._look()
            except Exception as error:
                raise_if_cancelled()
                failed_at = loop.time()
                log.error("backup: %s", _error_facts(error)[0])
                await self._look()
            finally:
                self._is_working = False

    async def _look(self) -> None:
        try:
            self._standing = await asyncio.to_thread(self._backups.standing)
            self._is_there = True
        except ConfideError as error:
            self._is_there = False
            if str(error) != self._complaint:
                log.error("backup: %s", error)
            self._complaint = str(error)
        else:
            self._complaint = ""
        self._looked_at = asyncio.get_running_loop().time()

    async def _begin(self, said: Mapping[str, object]) -> dict[str, object]:
        to, name = said.get("to", ""), said.get("name", "")
        what = next((each for each in WHATS if each == said.get("what")), None)
        if what is None or not isinstance(to, str) or not isinstance(name, str):
            raise RequestError("invalid", "there is no such thing to do about backups", "is the daemon older?")
        if sum(not one.outcome for one in self._tasks.values()) >= KEPT:
            raise RequestError("busy", "too many backups were asked for at once", "wait until one is done")
        self._last += 1
        made = self._tasks[self._last] = _Task()
        self._begin_task(self._run(made, BackupRequest(what, to, name)), "confide-backup")
        for number in [one for one, task in self._tasks.items() if task.outcome][:-KEPT]:
            del self._tasks[number]
        return {"task": self._last}

    async def _tell(self, said: Mapping[str, object]) -> dict[str, object]:
        number = said.get("task")
        found = self._tasks.get(number) if isinstance(number, int) else None
        if found is None:
            raise RequestError("not_found", "the daemon knows of no such backup", "it may have been restarted")
        return {"step": found.step, "done": found.done, "total": found.total, "outcome": found.outcome}

    async def _run(self, made: _Task, asked: BackupRequest) -> None:
        try:
            made.outcome = {"ok": await self._backups.do(asked, made.follow)}
        except asyncio.CancelledError:
            made.outcome = {"error": "the daemon ended before it was done", "hint": "ask again", "exit": 1}
            raise
        except Exception as error:
            said, hint, code = _error_facts(error)
            log.error("backup, %s: %s", asked.what, said)
            made.outcome = {"error": said, "hint": hint, "exit": code}
        if self._backups.has_target:
            await self._look()


def _error_facts(error: Exception) -> tuple[str, str | None, int]:
    """Return the message, hint and exit code of an error; of foreign errors only the class, since
    their text may quote secrets.
    """
    if isinstance(error, ConfideError):
        return str(error), error.hint, error.exit_code
    return f"the daemon failed at it: {type(error).__name__}", None, 1
