"""How far a long command is: a bar for people at a terminal, nothing anywhere else. On stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """One bar, for one step after the other; use with `with`."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        console = Console(stderr=True, highlight=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=is_quiet or not console.is_terminal)
        self._task = self._bar.add_task("waiting", total=None)
        self._step = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def follow(self, step: str, done: int, total: int) -> None:
        """So much of a step is done; a total of 0: nobody knows how much there is."""
        if step != self._step:
            self._step = step
            self._bar.reset(self._task, description=step)
        self._bar.update(self._task, completed=done, total=total or None)
