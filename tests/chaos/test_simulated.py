"""The same promises as in `test_convergence`, in one process: cheap enough for thousands of schedules (`make schedules`).

All of them have one clock, which jumps.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chaos.acts import SAFE, WILD, TimeOfDay, act, drawn, jumping
from tests.chaos.book import IS_LONG, Book
from tests.chaos.schedules import Step
from tests.chaos.simulation import Weather, agreed, computers, history
from tests.support.daemon.loopback import Serving, serving

from confide_daemon.server import replicas

SCHEDULES = int(os.environ.get("CONFIDE_CHAOS", "4"))
SEED = int(os.environ.get("CONFIDE_CHAOS_SEED", "1"))
pytestmark = pytest.mark.timeout(300 + 30 * SCHEDULES)
numbers = itertools.count()


class World:
    """A daemon, and the loop in which everything happens."""

    def __init__(self, folder: Path, clock: TimeOfDay) -> None:
        self.folder = folder
        self.clock = clock
        self.runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.daemon: Serving = self.runner.run(self._stack.enter_async_context(serving(folder / "data")))

    def close(self) -> None:
        """End."""
        self.runner.run(self._stack.aclose())
        self.runner.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch, jumping() as clock:
        patch.setattr(replicas, "AGAIN_S", 0.02)
        made = World(tmp_path_factory.mktemp("simulated"), clock)
        yield made
        made.close()


async def carried_out(world: World, schedule: list[list[Step]], weather: Weather) -> None:
    project = f"sim{next(numbers)}"
    book = Book()
    async with computers(world.daemon, world.folder, project, weather, len(schedule)) as machines:
        await asyncio.gather(
            *(
                act(machine, steps, world.clock, weather, book)
                for machine, steps in zip(machines, schedule, strict=True)
            )
        )
        weather.loss = 0.0
        final = await agreed(machines, frozenset(SAFE))
        book.check(final, "", await history(world.daemon, machines[0], {*SAFE, *WILD, *final}), safe=frozenset(SAFE))


@seed(SEED)
@settings(
    max_examples=SCHEDULES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    schedule=st.lists(drawn(20 if IS_LONG else 8), min_size=2, max_size=3),
    chance=st.integers(0, 2**32 - 1),
    loss=st.sampled_from([0.01, 0.05, 0.1]),
    late=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_machines_in_one_process_come_to_agree_and_lose_nothing(
    world: World, schedule: list[list[Step]], chance: int, loss: float, late: float
) -> None:
    world.runner.run(carried_out(world, schedule, Weather(random.Random(chance), loss, late)))
