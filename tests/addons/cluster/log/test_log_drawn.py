"""Drawn schedules of faults around nodes in this process, over one PostgreSQL: what is acknowledged is there, once, everywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.daemon.postgres import Postgres
from tests.support.kills.log_drawn import Drawn, folder

from confide_cluster.daemon.log.log_tables import Log

# The suite draws some; `make drawn` ten thousand, which are another ten thousand with another first seed.
SCHEDULES = int(os.environ.get("CONFIDE_LOG_DRAWN", "8"))
FIRST = int(os.environ.get("CONFIDE_LOG_DRAWN_SEED", "0"))
AT_ONCE = 250


def wrong(postgres: Postgres, url: str, seed: int, prepare: Callable[[Drawn], None] = lambda _: None) -> list[str]:
    """What one comes to, with its trace behind it."""
    place = folder(seed)
    try:
        drawn = Drawn(place, postgres, url, seed)
        prepare(drawn)
        try:
            found = drawn.run()
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        return [f"seed {seed}", *found, *drawn.trace] if found else []
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("begin", range(FIRST, FIRST + SCHEDULES, AT_ONCE))
def test_drawn_faults_at_every_moment_lose_nothing_and_double_nothing(postgres: Postgres, begin: int) -> None:
    url = postgres.database()
    for seed in range(begin, min(begin + AT_ONCE, FIRST + SCHEDULES)):
        assert wrong(postgres, url, seed) == []


def test_they_find_what_is_lost_where_an_entry_is_brought_after_its_answer(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that answers first loses what it had promised where it is killed: within a few schedules that is seen."""
    send = Log.send
    waiting: list[Callable[[], bool]] = []

    class Promised:
        def is_stored(self) -> bool:
            return True

        def drop(self) -> None: ...

    def late(self: Log, *values: Any) -> Any:
        while waiting:
            waiting.pop(0)()
        waiting.append(lambda: send(self, *values).is_stored())
        return Promised()

    def prepare(drawn: Drawn) -> None:
        waiting.clear()
        drawn.on_kill = waiting.clear

    monkeypatch.setattr(Log, "send", late)
    url = postgres.database()
    found = (wrong(postgres, url, seed, prepare) for seed in range(40))
    assert any("is lost" in said for one in found for said in one)
