"""Where the next wall stands: 100,000 spaces on one PostgreSQL, through the real leases and the real log.

Several nodes in this process register spaces, write to those they have open, close and open them, beat and look at the registry's end as
daemons do; a real server with its defaults forces what they write to its disk. What a space is besides its log (the file, its index, the
searches) is not here: of that a node's own bench tells (`bench.nodes`, `bench.capacity`). An entry is sealed noise of the size that a note
has there.

The server shares its processors with all nodes here. So the clock says what this machine can do, and the server's own time on a processor,
its log's bytes and its disk say what another one could. All of it ends by itself, within some five minutes.

`python -m bench.scale SPACES SECONDS` takes other numbers than 100,000 spaces and a minute of everyday load.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.support.daemon.postgres import server

from bench.scale.model import SERVER, USE, Measured, lines, walls
from bench.scale.plan import Plan
from bench.scale.registries import ALONE, REGISTRYS
from bench.scale.simulation import BEAT, BEHIND_CHECKPOINT, EVERYDAY, LARGE_SNAPSHOT, LOOK, STATUS, Simulation
from confide_cluster.daemon.log.postgres_engine import DEADLINE_S
from confide_cluster.daemon.nodes import FOLLOW_S
from confide_cluster.daemon.spaces.leases import BEATS
from confide_cluster.settings import StoreConfig

SETTINGS = {  # PostgreSQL's defaults, and nobody tunes them here; only the tests' server has others
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum": "on",
}


def measured(simulation: Simulation) -> Measured:
    """What the model goes on from."""
    costs = simulation.costs
    everyday, appends, large = costs[EVERYDAY], costs[BEHIND_CHECKPOINT], costs[LARGE_SNAPSHOT]
    mib = large.count * simulation.plan.large_mib
    beats = [cost for name, cost in costs.items() if name.startswith(BEAT)]
    return Measured(
        write_s=everyday.server_s / everyday.count,
        # Of an engine whose spaces are written to here and there: right behind a checkpoint, where it is the most.
        write_log=max(everyday.log_bytes / everyday.count, appends.log_bytes / appends.count),
        snapshot_s=large.server_s / mib,
        snapshot_log=large.log_bytes / mib,
        snapshot_disk=simulation.disk["part"] / simulation.brought_mib,
        entry_disk=simulation.disk["entry"] / max(1, simulation.entries),
        beat_s=beats[-1].server_s / beats[-1].count,
        look_s=costs[LOOK].server_s / costs[LOOK].count,
        status_s=costs[STATUS].took_s / simulation.plan.spaces,
        connection_mib=simulation.connection_mib,
        deadline_s=DEADLINE_S,
        connections=simulation.plan.connections + REGISTRYS,
        heartbeats_s=StoreConfig().lease_s / BEATS,
        looks=1 / FOLLOW_S,
        change_s=statistics.median(costs[ALONE].times_ms) / 1e3,
        apply_s=simulation.apply_s,
        caller_bytes=simulation.caller_bytes,
    )


def main() -> None:
    """Run it once."""
    given = sys.argv[1:]
    plan = Plan()
    if given:
        plan = replace(plan, spaces=int(given[0]))
    if len(given) > 1:
        plan = replace(plan, seconds=float(given[1]))
    print(f"load before it: {os.getloadavg()[0]:.1f}")
    with (
        server(is_forced=True, settings=SETTINGS) as postgres,
        tempfile.TemporaryDirectory(prefix="confide-bench-") as folder,
    ):
        simulation = Simulation(postgres, plan, Path(folder))
        asyncio.run(simulation.run())
        found = measured(simulation)
        print(f"\n{found}\n\nthe model, where a space is used as {USE}\n")
        print("\n".join(lines(found)))
        print(f"\nwalls, of {SERVER}\n")
        print("\n".join(f"{name}: {spaces:,} spaces" for name, spaces in walls(found).items()))
