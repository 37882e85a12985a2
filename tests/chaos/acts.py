"""What people and agents do in the simulation, as steps that can be drawn, and carried out on one machine after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest
from hypothesis import strategies as st
from tests.chaos import editors
from tests.chaos.book import Book
from tests.chaos.editors import save
from tests.chaos.schedules import BEGINS, ENDS, JUMPS_S, Step
from tests.chaos.simulation import Computer, Weather

SAFE: Final = ("MEMORY.md", "memory/log.md", "memory/windows.md", "memory/marked.md")
WILD: Final = ("memory/a.md", "memory/b.md", "memory/A.md")
ADDING: Final = ("append", "append", "insert", "store", "store", "other-store", "cut", "jump")
THROWING: Final = ("replace", "line", "delete", "delete", "swap", "swap", "rename", "append", "store-replace")


@dataclass
class TimeOfDay:
    """The one clock of all, which jumps: by how much it is wrong."""

    off_s: float = 0.0


@contextmanager
def jumping() -> Iterator[TimeOfDay]:
    """Within this the time of day is what the clock says."""
    clock, right = TimeOfDay(), time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: right() + clock.off_s)
        yield clock


async def act(machine: Computer, steps: list[Step], clock: TimeOfDay, weather: Weather, book: Book) -> None:
    """What people and agents do on one machine, one after the other."""
    for step in steps:
        await asyncio.sleep(weather.rng.random() * 0.01 * step.amount)
        file = machine.root / step.path
        end, begin = ENDS.get(step.path, "\n"), BEGINS.get(step.path, "")
        match step.what:
            case "store" | "other-store" | "store-replace":
                mode = "replace" if step.what == "store-replace" else "append"
                mark = book.new(step.path)
                await machine.store(step.path, mark, book, mode=mode, is_other=step.what == "other-store")
                continue
            case "cut":
                await machine.cut()
                continue
            case "jump":
                clock.off_s = JUMPS_S[step.amount]
                continue
            case "append":
                save(file, partial(_with_last, book=book, path=step.path, end=end, begin=begin), step.how, book)
            case "insert":
                save(file, partial(_with_first, book=book, path=step.path, end=end, begin=begin), step.how, book)
            case "line":
                save(file, lambda text, path=step.path: _line(text, book.new(path)), step.how, book)  # type: ignore[misc]
            case "replace":
                save(file, lambda _, path=step.path: f"# Anew\n\n- only {book.new(path)}\n", step.how, book)  # type: ignore[misc]
            case "delete":
                editors.delete(file, book)
            case "swap":
                await asyncio.to_thread(editors.swap, file, 2, book)
            case "rename":
                editors.rename(file, machine.root / step.other, book)
                machine.notice(step.other)
        machine.notice(step.path)


def _with_last(text: str, *, book: Book, path: str, end: str, begin: str) -> str:
    whole = text if not text or text.endswith("\n") else text + end
    return f"{whole or begin}- noted {book.new(path)}{end}"


def _with_first(text: str, *, book: Book, path: str, end: str, begin: str) -> str:
    return f"{begin}- first {book.new(path)}{end}{text.removeprefix(begin)}"


def _line(text: str, mark: str) -> str:
    lines = text.splitlines(keepends=True) or ["status: none\n"]
    lines[len(lines) // 2] = f"status: {mark}\n"
    return "".join(lines)


def _steps(kinds: tuple[str, ...], paths: tuple[str, ...]) -> st.SearchStrategy[Step]:
    path = st.sampled_from(paths)
    how = st.sampled_from([how for how in editors.HOW if how != "slowly"])  # which would hold everybody up
    return st.builds(Step, st.sampled_from(kinds), st.just(0), path, path, st.integers(0, 5), how)


def drawn(most: int) -> st.SearchStrategy[list[Step]]:
    """At most so many steps of one machine."""
    return st.lists(_steps(ADDING, SAFE) | _steps(THROWING, WILD), min_size=2, max_size=most)
