"""The current state of the daemon for its operator: counts, sizes and at most ids, but no names."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from confide_daemon.access.job_queue import Jobs
from confide_daemon.access.registry import RegistryState
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import StorageError
from confide_daemon.spaces.pool import Spaces

KEPT_S: Final = 2.0
"""Lifetime of the cached disk figures: several watchers may poll, and 10,000 spaces have 20,000
files to examine.
"""
LAG_S: Final = 60.0
STATES: Final = ("open", "locked", "closed", "damaged")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes on disk, in bytes. `spaces` has the size of each database with its write-ahead log, by
    space id.
    """

    data: int
    wal: int
    free: int
    total: int
    spaces: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """A snapshot of the daemon's state."""

    sessions: int
    spaces: Mapping[str, int]  # by state
    waiting: int  # pieces that wait for their vectors, of the open spaces
    waiting_of: Mapping[str, int]  # the same by the space's id
    providers: Mapping[str, bool]  # whether the model can be asked now
    jobs: Mapping[str, int]  # by state
    sizes: Sizes
    lag_s: float
    health_problems: tuple[str, ...]  # the words of `/health`
    postponed: tuple[str, ...]  # what waits for room on the disk


class Lag:
    """Measures the worst delay of the event loop in the last minute or two."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._before = self._worst = 0.0

    def note(self, late_s: float) -> None:
        self._turn()
        self._worst = max(self._worst, late_s)

    @property
    def worst_s(self) -> float:
        self._turn()
        return max(self._before, self._worst)

    def _turn(self) -> None:
        minutes = int((self._clock() - self._since) / LAG_S)
        if minutes:
            self._before, self._worst = (self._worst if minutes == 1 else 0.0), 0.0
            self._since += minutes * LAG_S


class DaemonView(Protocol):
    """The daemon's attributes that its status uses."""

    @property
    def state(self) -> RegistryState:
        """The opened data folder of the daemon."""

    @property
    def spaces(self) -> Spaces:
        """The spaces of the daemon."""

    @property
    def sessions(self) -> Sized:
        """All current sessions."""

    def health_problems(self) -> set[str]:
        """Return the daemon's current problems, in the words that `/health` uses."""


class Looking:
    """Collects the current state from all parts of the daemon."""

    def __init__(self, daemon: DaemonView) -> None:
        self._daemon = daemon
        self._jobs = Jobs(daemon.state.registry)
        self._turn = asyncio.Lock()
        self._last_look: tuple[float, Sizes, dict[str, int], list[str]] | None = None
        self.lag = Lag()

    async def look(self) -> LiveStatus:
        """Return the current state. Numbers that are read from the disk may be two seconds old."""
        async with self._turn:
            if self._last_look is None or time.monotonic() - self._last_look[0] > KEPT_S:
                self._last_look = (time.monotonic(), *await asyncio.to_thread(self._on_disk))
        _, sizes, jobs, registered = self._last_look
        states = self._daemon.spaces.states()
        counted = Counter(states.get(space_id, "closed") for space_id in registered)
        waiting = self._daemon.spaces.waiting()
        return LiveStatus(
            sessions=len(self._daemon.sessions),
            spaces={state: counted[state] for state in STATES},
            waiting=sum(waiting.values()),
            waiting_of=waiting,
            providers=self._daemon.spaces.providers(),
            jobs=jobs,
            sizes=sizes,
            lag_s=self.lag.worst_s,
            health_problems=tuple(sorted(self._daemon.health_problems())),
            postponed=tuple(self._daemon.spaces.disk.waiting),
        )

    def _on_disk(self) -> tuple[Sizes, dict[str, int], list[str]]:
        try:
            jobs, registered = self._jobs.counts(), list(self._daemon.state.registry.spaces().values())
        except StorageError:
            # An unreadable registry is reported by `/health`; show everything else.
            jobs, registered = {}, []
        return sizes(self._daemon.state.folder), jobs, registered


def sizes(folder: DataFolder) -> Sizes:
    """Return the sizes in the data folder and the free space on its disk. Files that vanish or
    cannot be read count as 0.
    """
    data = wal = 0
    spaces: Counter[str] = Counter()
    for place in (folder.root, folder.spaces):
        for name, size in _files(place):
            is_log = name.endswith("-wal")
            if is_log:
                wal += size
            elif name.endswith(".db"):
                data += size
            if place == folder.spaces and name.endswith((".db", ".db-wal")):
                spaces[name.partition(".")[0]] += size
    try:
        usage = shutil.disk_usage(folder.root)
    except OSError:
        return Sizes(data, wal, 0, 0, spaces)
    return Sizes(data, wal, usage.free, usage.total, spaces)


def _files(folder: Path) -> list[tuple[str, int]]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
                except OSError:
                    continue
    except OSError:
        pass
    return found
