"""The daemon's data folder is put back from an older copy while three machines write: all of them come to agree, and nothing is lost but
what only the daemon had.

A schedule is: some steps, a copy of the folder (as a disk's snapshot takes it, whatever the daemon is writing), steps that the daemon then
forgets, kill -9 and the copy in the folder's place, more steps. Once or twice. `make chaos` draws many.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chaos.fleet import Fleet, fleet
from tests.chaos.schedules import MARK, Ledger, Step, perform, steps

IS_LONG = "CONFIDE_CHAOS" in os.environ
"""Then newest texts are looked at alone, where nobody has replaced one; a save that overtakes another's by microseconds looks as if."""
SCHEDULES = int(os.environ.get("CONFIDE_CHAOS", "8")) // 4
SEED = int(os.environ.get("CONFIDE_CHAOS_SEED", "107"))
MAY_REPLACE = {"replace", "store-replace", "delete", "rename", "checkout"}
"""After these, what stood in a newest text may rightly be in the history alone."""
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


def put_back(fleet: Fleet, project: str, ledger: Ledger) -> None:
    """Put the copy back, and owe no more what only the daemon had."""
    fleet.kill_daemon()
    gone = fleet.history(project)
    left = "\n".join(
        [fleet.history(project, fleet.copy), *(text for one in fleet.places for text in one.files().values())]
    )
    only_there = {mark for mark in MARK.findall(gone) if mark not in left}
    ledger.owed -= only_there
    ledger.persons -= only_there
    fleet.put_back()


def run(fleet: Fleet, drawn: list[Round], after: list[Step]) -> None:
    """Carry a schedule out in a fresh project, with a machine that is revoked in each time that is lost."""
    number = next(numbers)
    project, ledger = f"put-back-{number}", Ledger()
    for place in fleet.places:
        place.enter(project)
    revoked = []
    try:
        for count, each in enumerate(drawn):
            fleet.start_daemon()
            thief = fleet.enroll(name := f"thief-{number}-{count}")
            for step in each.before:
                perform(step, fleet, ledger)
            fleet.copy_data()
            for step in each.lost:
                perform(step, fleet, ledger)
            fleet.daemon.run("revoke", name)
            revoked.append(thief)
            put_back(fleet, project, ledger)
        for step in after:
            perform(step, fleet, ledger)
        final = fleet.settle(project)
        newest = "\n".join(final.values())
        every = [step for each in drawn for step in (*each.before, *each.lost)] + after
        may_replace = not IS_LONG or any(step.what in MAY_REPLACE for step in every)
        kept = newest + fleet.history(project) if may_replace else newest
        lost = {mark for mark in ledger.owed | ledger.persons if mark not in kept}
        assert not lost, f"lost {lost} of {project}"
        doubled = {path: mark for path, text in final.items() for mark in MARK.findall(text) if text.count(mark) > 1}
        assert not doubled, f"twice in one file of {project}: {doubled}"
        assert not any(fleet.lets_in(thief) for thief in revoked), "a revoked machine was let in"
    finally:
        for place in fleet.places:
            place.end()


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
