"""`confide sync --watch` as a process, and what it says."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine


class Watching:
    """A `confide sync --watch` process and what it says."""

    def __init__(self, command: list[str], machine: Machine) -> None:
        self.process = Program(
            command,
            cwd=machine.project,
            env=machine.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(json.loads(line))

    def until(self, event: str, *, timeout_s: float = DEADLINE_S, **facts: Any) -> dict[str, Any]:
        """The next such event."""
        end = time.monotonic() + timeout_s
        while True:
            said = self.said.get(timeout=max(0.01, end - time.monotonic()))
            if said["event"] == event and facts.items() <= said.items():
                return said

    def close(self) -> None:
        """Let go of what a process that has ended has said. A pipe that is closed under its reader is an error in that thread."""
        self.reader.join(DEADLINE_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            if pipe is self.process.stderr:
                print(pipe.read().decode())  # shown with a test that fails
            pipe.close()


@contextmanager
def watching(machine: Machine, *folders: Path) -> Iterator[Watching]:
    """A process that is told to end, and does so within a second."""
    watch = Watching([CONFIDE, "sync", "--watch", *map(str, folders), "--json"], machine)
    try:
        yield watch
        watch.process.send_signal(signal.SIGTERM)
        # Half of what a connection may take, which it would wait for; `python -m bench ends` measures the second itself.
        assert watch.process.wait(DEADLINE_S) == 0
    finally:
        watch.process.kill()
        watch.process.wait(DEADLINE_S)
        watch.close()
