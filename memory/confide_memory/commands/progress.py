"""Progress of a long command: shown as a bar on a terminal, elsewhere as a plain line from time to
time.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from confide_memory.commands.console import doing, one_line, terminal

_MOST_PART: Final = 200
LINE_S = 5.0
"""Seconds between two plain lines, for logs."""


class _Rate(ProgressColumn):
    """Steps per second in the current part."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class Progress:
    """Shows the progress of a command through its parts; use it with `with`.

    `follow` is cheap enough to be called for every file.
    """

    def __init__(self, console: Console | None = None, *, name: str = "confide", is_quiet: bool = False) -> None:
        """Create the progress. `name` begins the plain lines; without it, or if `is_quiet`, none
        are printed.
        """
        console = terminal(stderr=True) if console is None else console
        self._name = "" if is_quiet else name
        self._bar: Bar | None = None
        if console.is_terminal and not is_quiet:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                _Rate(),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=console, transient=True)
            self._task = self._bar.add_task("waiting", total=None)
        self._quiet = ExitStack()
        self._part = ""
        self._began = self._printed_at = time.monotonic()
        self._began_with = 0.0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._quiet.enter_context(doing.pause())
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._quiet.close()

    def follow(self, done: float, total: float | None, part: str) -> None:
        """Report that `done` of `total` units of a part are done. None means that the total is
        unknown.
        """
        now = time.monotonic()
        part = one_line(part[:_MOST_PART])
        if total:
            part = part.removeprefix(f"{done:.0f} of {total:.0f} ")  # the daemon's text repeats both numbers
        if part != self._part:
            self._part, self._began, self._began_with = part, now, done
            if self._bar is not None:
                self._bar.reset(self._task, description=part)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif total and self._name and now - self._printed_at >= LINE_S:
            self._printed_at = now
            sys.stderr.write(f"{self._name}: {self._line(done, total, now)}\n")

    def step(self, part: str, done: int, total: int) -> None:
        """Report that `done` of `total` units of a part are done. 0 means that the total is
        unknown.
        """
        self.follow(done, total or None, part)

    def _line(self, done: float, total: float, now: float) -> str:
        line = f"{self._part}: {done:,.0f} of {total:,.0f}"
        rate = (done - self._began_with) / max(now - self._began, 0.001)
        if rate <= 0:
            return line
        left_s = round((total - done) / rate)
        return f"{line}, {rate:,.0f}/s, {left_s // 60}:{left_s % 60:02} left"
