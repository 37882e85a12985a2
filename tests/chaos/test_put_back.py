"""The daemon's data folder is put back from an older copy while three machines write: all of them come to agree, and nothing is lost but
what only the daemon had.

A schedule is: some steps, a copy of the folder (as a disk's snapshot takes it, whatever the daemon is writing), steps that the daemon then
forgets, kill -9 and the copy in the folder's place, more steps. Once or twice. `make schedules` draws many.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chaos.book import MARK, Book
from tests.chaos.fleet import Fleet, fleet
from tests.chaos.schedules import SAFE, Step, perform, steps

SCHEDULES = int(os.environ.get("CONFIDE_CHAOS", "4")) // 4
SEED = int(os.environ.get("CONFIDE_CHAOS_SEED", "107"))
pytestmark = pytest.mark.timeout(120 + 60 * SCHEDULES)
numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Round:
    """What happens before a copy of the folder is taken, and between that and when it is put back."""

    before: list[Step]
    lost: list[Step]


rounds = st.builds(Round, steps(3, least=0, most=4), steps(3, least=1, most=7))
schedules = st.tuples(st.lists(rounds, min_size=1, max_size=2), steps(3, least=0, most=5))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("put-back"), ["laptop", "desktop", "tower"]) as made:
        yield made


def put_back(fleet: Fleet, project: str, book: Book) -> None:
    """Put the copy back, and owe no more what only the daemon had."""
    fleet.kill_daemon()
    gone = fleet.history(project)
    left = "\n".join(
        [fleet.history(project, fleet.copy), *(text for one in fleet.places for text in one.files().values())]
    )
    book.forget({mark for mark in MARK.findall(gone) if mark not in left})
    fleet.put_back()


def run(fleet: Fleet, drawn: list[Round], after: list[Step]) -> None:
    """Carry a schedule out in a fresh project, with a machine that is revoked in each time that is lost."""
    number = next(numbers)
    project, book = f"put-back-{number}", Book()
    for place in fleet.places:
        place.enter(project)
    revoked = []
    try:
        for count, each in enumerate(drawn):
            fleet.start_daemon()
            thief = fleet.enroll(name := f"thief-{number}-{count}")
            for step in each.before:
                perform(step, fleet, book)
            fleet.copy_data()
            for step in each.lost:
                perform(step, fleet, book)
            fleet.daemon.run("device", "rm", name)
            revoked.append(thief)
            put_back(fleet, project, book)
        for step in after:
            perform(step, fleet, book)
        final = fleet.settle(project)
        book.check(final, fleet.apart(), fleet.history(project), safe=frozenset(SAFE))
        assert not any(fleet.lets_in(thief) for thief in revoked), "a revoked machine was let in"
    finally:
        fleet.end()


@seed(SEED)
@settings(
    max_examples=SCHEDULES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(schedule=schedules)
def test_machines_of_a_daemon_that_is_put_back_agree_and_lose_nothing(
    three: Fleet, schedule: tuple[list[Round], list[Step]]
) -> None:
    run(three, *schedule)
