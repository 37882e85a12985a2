"""Whatever happens to two or three machines and their daemon: in the end all have the same files, and nothing that was kept is lost.

Everything happens at once: on each machine people and agents write, while cables break, programs are killed or stand still, and clocks
jump. Four schedules here, in which clocks stay right (in the suite `test_simulated` has them jump); `make schedules` runs a thousand.
A schedule is drawn by hypothesis from CONFIDE_CHAOS_SEED, so a failure prints steps that can be carried out again; how they fall in
time is chance.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chaos.book import IS_LONG, Book
from tests.chaos.fleet import Fleet, fleet
from tests.chaos.schedules import SAFE, Scene, perform_at_once, scenes

SCHEDULES = int(os.environ.get("CONFIDE_CHAOS", "2"))
SEED = int(os.environ.get("CONFIDE_CHAOS_SEED", "3"))
MOST_STEPS = 24 if IS_LONG else 10
MOST_SCENES = 3 if IS_LONG else 1
SHORT = settings(
    max_examples=SCHEDULES // 2,
    deadline=None,
    database=None,
    # Every try costs seconds, and none comes out the same twice: to look for a shorter schedule would take hours.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
pytestmark = pytest.mark.timeout(600 + 120 * SCHEDULES)
numbers = itertools.count()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("two"), ["laptop", "desktop"]) as made:
        yield made


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("three"), ["laptop", "desktop", "tower"]) as made:
        yield made


def run(fleet: Fleet, schedule: list[Scene]) -> None:
    """Carry a schedule out in a fresh project, and look at what is left."""
    project = f"chaos-{next(numbers)}"
    book = Book()
    for place in fleet.places:
        place.enter(project)
    try:
        for scene in schedule:
            perform_at_once(scene, fleet, book)
        final = fleet.settle(project)
        book.check(final, fleet.apart(), fleet.history(project), safe=frozenset(SAFE))
    except BaseException as error:
        error.add_note(f"in {project} below {fleet.daemon.data.parent}")
        raise
    finally:
        fleet.end()


def schedules(machines: int) -> st.SearchStrategy[list[Scene]]:
    return st.lists(scenes(machines, most=MOST_STEPS), min_size=1, max_size=MOST_SCENES)


@seed(SEED)
@SHORT
@given(schedule=schedules(2))
def test_two_machines_come_to_agree_and_lose_nothing(two: Fleet, schedule: list[Scene]) -> None:
    run(two, schedule)


@seed(SEED + 1)
@SHORT
@given(schedule=schedules(3))
def test_three_machines_come_to_agree_and_lose_nothing(three: Fleet, schedule: list[Scene]) -> None:
    run(three, schedule)
