"""Backups in a running daemon: at their hour, when a machine brings a key that was missing, and when a command asks.

A command begins one with one verb of the control socket, and follows it with another.
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
from confide_daemon.addons import Gauges, Service, Verbs
from confide_daemon.datadir.disk import Disk

log = logging.getLogger(__name__)

TICK_S: Final = 15.0
"""How soon it is seen that a snapshot is due, or that a key has come."""
LOOK_S: Final = 3600.0
"""How often it is looked whether the snapshots are as new as they should be, besides behind each change of them: all manifests are read."""
RETRY_S: Final = 900.0
"""After one that failed, as with a disk that is not there."""
KEPT: Final = 16
"""Tasks that have ended, for whoever asks once more how they did."""


@dataclass(eq=False, slots=True)
class _Task:
    step: str = "waiting"
    done: int = 0
    total: int = 0
    outcome: dict[str, Any] = field(default_factory=dict)  # empty as long as it goes on

    def follow(self, step: str, done: int, total: int) -> None:
        self.step, self.done, self.total = step, done, total


class BackupDesk(Service):
    """Takes what commands ask for, and does by itself what is configured."""

    def __init__(self, backups: Backups, verbs: Verbs, gauges: Gauges, disk: Disk) -> None:
        """`disk`: the data folder's; while it has little room, nothing is copied unasked."""
        self._backups = backups
        self._disk = disk
        self._tasks: dict[int, _Task] = {}
        self._last = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._standing = BackupStatus()
        self._is_there = True  # the target, as of the last look
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
        """Begins to look at the clock, where a target is configured."""
        if self._backups.has_target:
            self._begin_task(self._go_on(), "confide-nightly")

    def _begin_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that an end of the daemon would cut off."""
        return self._is_working or any(not one.outcome for one in self._tasks.values())

    @property
    def is_backed_up(self) -> bool | None:
        """Whether there is a proven snapshot that is young enough; None where no target is configured."""
        return not self.health_problems() if self._backups.has_target else None

    def health_problems(self) -> set[str]:
        """`backup`, where a space has no proven snapshot that is young enough, or the target is not there."""
        return {"backup"} if self._standing.late or not self._is_there else set()

    def revocations_written(self, files: Sequence[Path]) -> None:
        """Brings the file beside the snapshots to where the operator's program brings those, at once."""
        for path in files:
            self._begin_task(self._run_program_for(path), "confide-revoked")

    async def _run_program_for(self, path: Path) -> None:
        try:
            await self._backups.run_program_for(path)
        except ConfideError as error:
            log.error("backup: %s", error)

    async def close(self) -> None:
        """Cuts off what is under way: half a snapshot is not listed, and is removed by the next one."""
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
                # A log grows while its database is copied, and a copy that is proven lies in the data folder.
                if is_due and self._disk.has_room_for("snapshots"):
                    await self._backups.nightly()
                    await self._look()
                if self._backups.at_hand(self._standing) and self._disk.has_room_for("snapshots"):
                    await self._backups.prove_unlocked(self._standing)
                    await self._look()
            except Exception as error:
                raise_if_cancelled()
                failed_at = loop.time()
                log.error("backup: %s", _told(error)[0])
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
            raise RequestError("not_found", "the daemon knows of no such backup", "it may have been started anew")
        return {"step": found.step, "done": found.done, "total": found.total, "outcome": found.outcome}

    async def _run(self, made: _Task, asked: BackupRequest) -> None:
        try:
            made.outcome = {"ok": await self._backups.do(asked, made.follow)}
        except asyncio.CancelledError:
            made.outcome = {"error": "the daemon ended before it was done", "hint": "ask again", "exit": 1}
            raise
        except Exception as error:
            said, hint, code = _told(error)
            log.error("backup, %s: %s", asked.what, said)
            made.outcome = {"error": said, "hint": hint, "exit": code}
        if self._backups.has_target:
            await self._look()


def _told(error: Exception) -> tuple[str, str | None, int]:
    """What is said of it, a hint and an exit code; of an error that is none of ours its class alone, since its text may quote anything."""
    if isinstance(error, ConfideError):
        return str(error), error.hint, error.exit_code
    return f"the daemon failed at it: {type(error).__name__}", None, 1
