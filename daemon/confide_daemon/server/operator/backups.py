"""Backups, as commands ask a running daemon for them over its control socket: begun by one verb, followed by another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confide_crypto.errors import ConfideError, RequestError
from confide_daemon.backup.service import WHATS, Asked, Backups
from confide_daemon.server.operator.control import Control

log = logging.getLogger(__name__)

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
    """Takes what commands ask for, and tells how far it is."""

    def __init__(self, backups: Backups, control: Control) -> None:
        self._backups = backups
        self._tasks: dict[int, _Task] = {}
        self._last = 0
        control.add("backup", self._begin)
        control.add("backup task", self._tell)

    @property
    def is_busy(self) -> bool:
        return any(one.task is not None and not one.task.done() for one in self._tasks.values())

    async def close(self) -> None:
        """Cuts off what is under way: half a snapshot is not listed, and is removed by the next one."""
        tasks = [one.task for one in self._tasks.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
