"""The short form of `python -m bench.scale`: the real leases and logs of many spaces, weighed, and nothing lost of what they said."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.scale import BEHIND_CHECKPOINT, EVERYDAY, STATUS, Plan, Simulation, walls
from tests.support.daemon.postgres import Postgres

PLAN = Plan(spaces=60, nodes=2, open_each=8, seconds=0.6, stage_s=10, idle=4, small=2, large=1)


async def test_a_small_world_is_weighed_and_its_walls_are_named(postgres: Postgres, tmp_path: Path) -> None:
    simulation = Simulation(postgres, PLAN, tmp_path)
    await simulation.run()
    assert len(simulation.written) == PLAN.spaces
    assert simulation.costs[EVERYDAY].count > len(simulation.costs[EVERYDAY].times_ms) / 2 > 0
    assert all(cost.count and cost.took_s > 0 for cost in simulation.costs.values())
    assert simulation.costs[BEHIND_CHECKPOINT].log_bytes > 500 * simulation.costs[BEHIND_CHECKPOINT].count
    assert simulation.scales.sql("SELECT count(*) FROM node") == [(0,)]  # all have ended, and said so

    said = walls(simulation)
    spaces = [int(line.split(": ")[-1].removesuffix(" spaces").replace(",", "")) for line in said[1:]]
    assert spaces == sorted(spaces)
    assert any(STATUS in line for line in said)

    # What it says of losses is worth something.
    simulation.scales.sql(
        "DELETE FROM entry WHERE (log, number) IN (SELECT log, number FROM entry ORDER BY number DESC LIMIT 1)"
    )
    with pytest.raises(AssertionError, match="lack entries"):
        simulation.check()


async def test_a_stage_that_takes_too_long_is_ended(postgres: Postgres, tmp_path: Path) -> None:
    """And the tables have their size all the same: what follows is not weighed on smaller ones."""
    simulation = Simulation(
        postgres, Plan(spaces=300, nodes=2, open_each=8, seconds=0.2, stage_s=0.05, idle=1, small=1, large=1), tmp_path
    )
    await simulation.run()
    assert len(simulation.written) < 300
    assert simulation.scales.sql("SELECT count(*) FROM log") == [(300,)]
