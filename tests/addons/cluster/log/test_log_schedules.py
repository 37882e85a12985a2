"""Drawn schedules of faults around two daemons over one PostgreSQL: no acknowledged write is lost, and none is made twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.daemon.postgres import server
from tests.support.kills.log_schedule import Schedule

# The suite draws one; `make chaos` many.
SCHEDULES = int(os.environ.get("CONFIDE_LOG_SCHEDULES", "1"))


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_drawn_faults_lose_nothing_and_double_nothing(tmp_path: Path, seed: int) -> None:
    with server() as postgres:
        assert Schedule(tmp_path, postgres, seed).run() == []
