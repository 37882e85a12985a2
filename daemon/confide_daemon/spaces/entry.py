"""What a daemon knows of one space while it runs: its key, and the space itself while it is open."""

from __future__ import annotations

import asyncio

from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.space import Space


class Entry:
    """One for each space that was ever asked for.

    Attributes:
        custodian: of its key.
        opening: the task that has opened it, or is about to.
        closing: the task that closes it and forgets its key, while that is under way.
        changing: the task that changes its key beside everything else.
        unlocking, rekeying: held by who brings a key, and by who changes it.
        is_unlocked: set while it is open.
        users: how many connections and jobs need it, or wait for it.
        timer: until its key is forgotten, while nobody does.
        locks_at: when that will be, seconds since 1970.
        stranded: how many of its sealed records are in a vault that is not configured any more, counted when it was opened.
    """

    def __init__(self, custodian: Custodian) -> None:
        self.custodian = custodian
        self.opening: asyncio.Task[Space] | None = None
        self.closing: asyncio.Task[None] | None = None
        self.changing: asyncio.Task[None] | None = None
        self.unlocking = asyncio.Lock()
        self.rekeying = asyncio.Lock()
        self.is_unlocked = asyncio.Event()
        self.users = 0
        self.timer: asyncio.TimerHandle | None = None
        self.locks_at: float | None = None
        self.stranded = 0

    @property
    def failure(self) -> BaseException | None:
        """Why it could not be opened the last time, if it could not."""
        task = self.opening
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    @property
    def space(self) -> Space | None:
        """The space, if it is open."""
        task = self.opening
        is_open = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if is_open and task is not None else None

    def stop_timer(self) -> None:
        """Its key is not forgotten."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.locks_at = None
