"""The short form of `python -m bench.scale`: the real leases and logs of many spaces, weighed, and nothing lost of what they said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.scale import measured, model
from bench.scale.model import Measured, changes_a_s, need, walls
from bench.scale.plan import Plan
from bench.scale.simulation import BEHIND_CHECKPOINT, EVERYDAY, Simulation
from tests.support.daemon.postgres import Postgres

from confide_cluster.daemon.log import shared

PLAN = Plan(
    spaces=60, nodes=2, open_each=8, seconds=0.6, stage_s=10, idle=4, small=2, large=1, large_mib=1.0, callers=20
)


async def test_a_small_world_is_weighed_and_its_walls_are_named(postgres: Postgres, tmp_path: Path) -> None:
    simulation = Simulation(postgres, PLAN, tmp_path)
    await simulation.run()
    assert len(simulation.written) == PLAN.spaces
    assert simulation.costs[EVERYDAY].count > len(simulation.costs[EVERYDAY].times_ms) / 2 > 0
    assert all(cost.count and cost.took_s > 0 for cost in simulation.costs.values())
    assert simulation.costs[BEHIND_CHECKPOINT].log_bytes > 500 * simulation.costs[BEHIND_CHECKPOINT].count
    assert simulation.scales.sql("SELECT count(*) FROM node") == [(0,)]  # all have ended, and said so

    found = measured(simulation)
    assert (
        min(getattr(found, name) for name in ("write_log", "snapshot_log", "snapshot_disk", "entry_disk", "status_s"))
        > 0
    )
    ends = list(walls(found).values())
    assert ends == sorted(ends)

    # What it says of losses is worth something.
    simulation.scales.sql(
        "DELETE FROM entry WHERE (log, number) IN (SELECT log, number FROM entry ORDER BY number DESC LIMIT 1)"
    )
    with pytest.raises(AssertionError, match="lack entries"):
        simulation.check()


async def test_a_stage_that_takes_too_long_is_ended(postgres: Postgres, tmp_path: Path) -> None:
    """And the tables have their size all the same: what follows is not weighed on smaller ones, however little came before."""
    simulation = Simulation(
        postgres,
        Plan(
            spaces=300,
            nodes=2,
            open_each=8,
            seconds=0.0,
            stage_s=0.05,
            idle=1,
            small=1,
            large=1,
            large_mib=1.0,
            callers=2,
        ),
        tmp_path,
    )
    await simulation.run()
    assert len(simulation.written) < 300
    assert simulation.scales.sql("SELECT count(*) FROM log WHERE id <> 'registry'") == [(300,)]


def test_the_model_knows_the_registry_as_it_is() -> None:
    assert (model.MOST_ENTRIES, model.FEW) == (shared.MOST_ENTRIES, shared._FEW)
    assert (model.SNAPSHOT_SHARE, model.LEAST_BYTES) == (shared.SNAPSHOT_SHARE, shared.LEAST_BYTES)


def test_the_model_counts_what_it_is_told() -> None:
    """By hand: 200 entries of 500 bytes and 6 MiB of a file, on a day, of three in ten spaces, five times that in the worst hour."""
    measured = Measured(
        write_s=0.001,
        write_log=500.0,
        snapshot_s=0.0,
        snapshot_log=2e6,
        snapshot_disk=1e6,
        entry_disk=1000.0,
        beat_s=0.0,
        look_s=0.0,
        status_s=0.0001,
        connection_mib=2.0,
        deadline_s=5.0,
        connections=6,
        heartbeats_s=2.0,
        looks=5.0,
        change_s=0.01,
        apply_s=0.0,
        caller_bytes=0.0,
    )
    found = need(86_400, measured)
    assert found.entries == pytest.approx(0.3 * 5 * 200)
    assert found.server_cores == pytest.approx(0.3)
    assert found.log_gb == pytest.approx(86_400 * 0.3 * (200 * 500 + 6 * 2e6) / 1e9)
    assert found.disk_gb == pytest.approx(86_400 * (6e6 + 200_000) / 1e9)
    assert found.nodes == 11  # 10,800 are open at once
    assert found.registry == pytest.approx(0.11)  # of a hundred changes a second, one for each node
    slower = replace(measured, apply_s=0.001)  # 61.8 * (0.01 s + 61.8 * 0.1 * 0.001 s) is a second
    assert changes_a_s(slower) == pytest.approx(61.8, rel=0.001)
    first, *_ = walls(measured).items()
    assert first[0].startswith("confided store")
    assert 49_000 < first[1] <= 50_000
