"""The same promises as in `test_convergence`, in one process: cheap enough for thousands of schedules (`make schedules`).

All of them have one clock, which jumps.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chaos import editors
from tests.chaos.book import IS_LONG, Book
from tests.chaos.editors import save
from tests.chaos.schedules import BEGINS, ENDS, JUMPS_S, Step
from tests.chaos.simulation import Computer, Weather, agreed, computers, history
from tests.support.daemon.loopback import Serving, serving

from confide_daemon.server import replicas

SCHEDULES = int(os.environ.get("CONFIDE_CHAOS", "8"))
SEED = int(os.environ.get("CONFIDE_CHAOS_SEED", "1"))
SAFE = ("MEMORY.md", "memory/log.md", "memory/windows.md", "memory/marked.md")
WILD = ("memory/a.md", "memory/b.md", "memory/A.md")
ADDING = ("append", "append", "insert", "store", "store", "other-store", "cut", "jump")
THROWING = ("replace", "line", "delete", "delete", "swap", "swap", "rename", "append", "store-replace")
pytestmark = pytest.mark.timeout(300 + 30 * SCHEDULES)
numbers = itertools.count()


class World:
    """A daemon, and the loop in which everything happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.off_s = 0
        """By how much the time of day is wrong."""
        self.runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.daemon: Serving = self.runner.run(self._stack.enter_async_context(serving(folder / "data")))

    def close(self) -> None:
        """End."""
        self.runner.run(self._stack.aclose())
        self.runner.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "AGAIN_S", 0.02)
        made, right = World(tmp_path_factory.mktemp("simulated")), time.time
        patch.setattr(time, "time", lambda: right() + made.off_s)
        yield made
        made.close()


async def act(machine: Computer, steps: list[Step], world: World, weather: Weather, book: Book) -> None:
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
                world.off_s = JUMPS_S[step.amount]
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


async def carried_out(world: World, schedule: list[list[Step]], weather: Weather) -> None:
    project = f"sim{next(numbers)}"
    book = Book()
    async with computers(world.daemon, world.folder, project, weather, len(schedule)) as machines:
        await asyncio.gather(
            *(act(machine, steps, world, weather, book) for machine, steps in zip(machines, schedule, strict=True))
        )
        weather.loss = 0.0
        final = await agreed(machines, frozenset(SAFE))
        book.check(final, "", await history(world.daemon, machines[0], {*SAFE, *WILD, *final}), safe=frozenset(SAFE))


def _steps(kinds: tuple[str, ...], paths: tuple[str, ...]) -> st.SearchStrategy[Step]:
    path = st.sampled_from(paths)
    how = st.sampled_from([how for how in editors.HOW if how != "slowly"])  # which would hold everybody up
    return st.builds(Step, st.sampled_from(kinds), st.just(0), path, path, st.integers(0, 5), how)


one_machine = st.lists(_steps(ADDING, SAFE) | _steps(THROWING, WILD), min_size=2, max_size=20 if IS_LONG else 8)


@seed(SEED)
@settings(
    max_examples=SCHEDULES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    schedule=st.lists(one_machine, min_size=2, max_size=3),
    chance=st.integers(0, 2**32 - 1),
    loss=st.sampled_from([0.01, 0.05, 0.1]),
    late=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_machines_in_one_process_come_to_agree_and_lose_nothing(
    world: World, schedule: list[list[Step]], chance: int, loss: float, late: float
) -> None:
    world.runner.run(carried_out(world, schedule, Weather(random.Random(chance), loss, late)))
