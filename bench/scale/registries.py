"""The registry, which every node has whole: what a change of it costs, alone and with others, and one that others have made."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bench.scale.nodes import KEY
from bench.scale.plan import Plan
from bench.scale.weighing import Cost
from confide_cluster.daemon.store import Postgres
from confide_cluster.settings import StoreConfig
from confide_daemon.access.enrolled_callers import Grants, insert_caller
from confide_daemon.access.registry import Registry
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import EngineError
from confide_daemon.store.database import connect

SHARED = "a snapshot of the registry"
ALONE = "a change of the registry, by one node"
CHANGES = "a change of the registry, by all nodes at once"
REGISTRYS = 2  # connections of a node for its registry (access/registry.py)
APPLIED = 200  # changes of the registry that another node applies


async def registries(
    root: Path,
    url: str,
    plan: Plan,
    stage: Callable[[str], AbstractContextManager[Cost]],
    say: Callable[[str], None],
) -> tuple[float, float]:
    """Each change takes its row in turn, and every node applies those of all others.

    Bytes of a machine with its space, and seconds of a processor to apply a change.
    """
    with contextlib.ExitStack() as stack:
        folders = [DataFolder(root / f"registry{number}") for number in range(plan.nodes)]
        found = []
        for folder in folders:
            folder.root.mkdir(mode=0o700)
            config = Postgres(StoreConfig(url=url))
            registry = stack.enter_context(contextlib.closing(Registry.open(folder.registry, KEY, store=config)))
            registry.join_store()
            found.append(registry)
        first = found[0]
        empty = folders[0].registry.stat().st_size
        with first.transaction() as database:
            for number in range(plan.callers):
                grants = Grants(f"machine{number}")
                insert_caller(
                    database, os.urandom(32), grants, space=f"space{number}", added_by="line", now=time.time()
                )
        with contextlib.closing(connect(folders[0].registry, KEY, writer=True)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        caller_bytes = (folders[0].registry.stat().st_size - empty) / plan.callers
        say(f"a machine with its space is {caller_bytes:,.0f} bytes of the registry")
        with stage(ALONE) as cost:
            await asyncio.to_thread(_change, first, time.monotonic() + plan.seconds / 12, cost)
        for registry in found:
            registry.follow()
        with stage(CHANGES) as cost:
            end = time.monotonic() + plan.seconds / 6
            await asyncio.gather(*(asyncio.to_thread(_change, one, end, cost) for one in found))
        for registry in found:
            registry.follow()
        for _ in range(APPLIED):
            first.add_caller(os.urandom(32), Grants(os.urandom(8).hex()), space=os.urandom(8).hex(), added_by="line")
        began = time.thread_time()
        found[1].follow()
        apply_s = (time.thread_time() - began) / APPLIED
        say(f"  a change that another node has made: {apply_s * 1e3:.2f} ms of a node's processor")
        assert first.shared is not None
        with stage(SHARED) as cost:
            first.shared.take_snapshot()
            cost.count = 1
        say(f"  of {folders[0].registry.stat().st_size / 2**20:.1f} MiB")
    return caller_bytes, apply_s


def _change(registry: Registry, end: float, cost: Cost) -> None:
    """As many as one node can make, and one at least."""
    while time.monotonic() < end or not cost.count:
        began = time.perf_counter()
        with contextlib.suppress(EngineError):  # it is brought up to date: whoever asked is told to say it again
            registry.add_caller(os.urandom(32), Grants(os.urandom(8).hex()), space=os.urandom(8).hex(), added_by="line")
            cost.count += 1
        cost.times_ms.append((time.perf_counter() - began) * 1e3)
