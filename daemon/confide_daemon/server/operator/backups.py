"""Backups in a running daemon: at their hour, when a machine brings a key that was missing, and when a command asks.

A command begins one with one verb of the control socket, and follows it with another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError, RequestError
from confide_daemon.backup.service import WHATS, Asked, Backups
from confide_daemon.server.operator.control import Control

log = logging.getLogger(__name__)

TICK_S: Final = 15.0
"""How soon it is seen that a snapshot is due, or that a key has come."""
LOOK_S: Final = 600.0
"""How often it is looked whether the snapshots are as new as they should be; and behind each change of them."""
RETRY_S: Final = 900.0
"""After one that failed, as with a disk that is not there."""
KEPT: Final = 16
"""Tasks that have ended, for whoever asks once more how they did."""


@dataclass(eq=False, slots=True)
class _Task:
    step: str = "waiting"
    done: int = 0
    total: int = 0
    outcome: dict[str, Any] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def follow(self, step: str, done: int, total: int) -> None:
        self.step, self.done, self.total = step, done, total


class BackupDesk:
    """Takes what commands ask for, and does by itself what is configured."""

    def __init__(self, backups: Backups, control: Control) -> None:
        self._backups = backups
        self._tasks: dict[int, _Task] = {}
        self._last = 0
        self._alone: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._is_late = False
        control.add("backup", self._begin)
        control.add("backup task", self._tell)

    def start(self) -> None:
        """Begins to look at the clock, where a target is configured."""
        if self._backups.has_target:
            self._alone = asyncio.create_task(self._go_on(), name="confide-nightly")

    @property
    def is_busy(self) -> bool:
        return any(one.task is not None and not one.task.done() for one in self._tasks.values())

    def ailments(self) -> set[str]:
        """`backup`, where a space has no proven snapshot that is young enough."""
        return {"backup"} if self._is_late else set()

    def revocations_changed(self, files: Sequence[Path]) -> None:
        """Brings the file beside the snapshots to where the operator's program brings those, at once."""
        for path in files:
            task = asyncio.create_task(self._tell_elsewhere(path), name="confide-revoked")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell_elsewhere(self, path: Path) -> None:
        try:
            await self._backups.tell_elsewhere(path)
        except ConfideError as error:
            log.error("backup: %s", error)

    async def close(self) -> None:
        """Cuts off what is under way: half a snapshot is not listed, and is removed by the next one."""
        tasks = [one.task for one in self._tasks.values() if one.task is not None]
        tasks += self._telling
        tasks += [self._alone] if self._alone is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        failed_at, looked_at = -RETRY_S, -LOOK_S
        while True:
            try:
                if loop.time() - failed_at >= RETRY_S and await asyncio.to_thread(self._backups.is_due):
                    looked_at = -LOOK_S
                    await self._backups.nightly()
                await self._backups.prove_unlocked()
            except ConfideError as error:
                failed_at = loop.time()
                log.error("backup: %s", error)
            except Exception as error:
                failed_at = loop.time()
                log.error("backup broke: %s", type(error).__name__)  # its text may quote anything
            if loop.time() - looked_at >= LOOK_S:
                looked_at = loop.time()
                await self._look()
            await asyncio.sleep(TICK_S)

    async def _look(self) -> None:
        try:
            self._is_late = bool(await asyncio.to_thread(self._backups.late))
        except ConfideError as error:
            self._is_late = True
            log.error("backup: %s", error)

    async def _begin(self, said: Mapping[str, Any]) -> dict[str, Any]:
        to, name = said.get("to", ""), said.get("name", "")
        what = next((each for each in WHATS if each == said.get("what")), None)
        if what is None or not isinstance(to, str) or not isinstance(name, str):
            raise RequestError("invalid", "there is no such thing to do about backups", "is the daemon older?")
        if sum(1 for one in self._tasks.values() if one.task is not None and not one.task.done()) >= KEPT:
            raise RequestError("busy", "too many backups were asked for at once", "wait until one is done")
        self._last += 1
        made = self._tasks[self._last] = _Task()
        made.task = asyncio.create_task(self._run(made, Asked(what, to, name)), name="confide-backup")
        for number in [one for one, task in self._tasks.items() if task.outcome][:-KEPT]:
            del self._tasks[number]
        return {"task": self._last}

    async def _tell(self, said: Mapping[str, Any]) -> dict[str, Any]:
        number = said.get("task")
        found = self._tasks.get(number) if isinstance(number, int) else None
        if found is None:
            raise RequestError("not_found", "the daemon knows of no such backup", "it may have been started anew")
        return {"step": found.step, "done": found.done, "total": found.total, "outcome": found.outcome}

    async def _run(self, made: _Task, asked: Asked) -> None:
        try:
            made.outcome = {"ok": await self._backups.do(asked, made.follow)}
        except ConfideError as error:
            log.error("backup, %s: %s", asked.what, error)
            made.outcome = {"error": str(error), "hint": error.hint, "exit": error.exit_code}
        except asyncio.CancelledError:
            made.outcome = {"error": "the daemon ended before it was done", "hint": "ask again", "exit": 1}
            raise
        except Exception as error:
            # Its text may quote anything.
            log.error("backup, %s, broke: %s", asked.what, type(error).__name__)
            made.outcome = {"error": f"the daemon failed at it: {type(error).__name__}", "hint": None, "exit": 1}
        if self._alone is not None:
            await self._look()
