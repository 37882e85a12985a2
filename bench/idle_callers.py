"""A thousand enrolled callers that are connected and silent: what each weighs in the daemon, and what a working caller feels of them.

    python -m bench idle_callers

One daemon process, four processes that hold 250 connections each, every one with a key and a space of its own, attached as a proxy is. Of
their spaces no more are open than the daemon allows. The budget: a tool call's 95th percentile within 2 times of that with one caller
connected.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import psutil
from tests.support.crypto.channels import no_message
from tests.support.daemon.loopback import Machine
from tests.support.programs.processes import Daemon, running_daemon, wait_until

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.transport.open_channel import connect
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder

CALLERS = 1000
PROCESSES = 4
ROUNDS = 5
CALLS = 200
PAUSE_S = 0.008
PACE_S = 0.1
"""Between two handshakes of one process: 40 a second of all, where the daemon takes 50."""
MAX_RATIO = 2.0
READY_DEADLINE_S = 600.0
"""Each of them has its space made first."""
CONFIG = """
[embedding]
provider = "none"
[at_rest]
custody = "server"
"""


def hold(pipe: Pipe, url: str, static: bytes, seeds: list[bytes]) -> None:
    """Connect with every key, attach, say so, and stay until told to end."""

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for seed in seeds:
                group.create_task(stay(seed))
                await asyncio.sleep(PACE_S)
            pipe.send("all are there")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            raise SystemExit

    async def stay(seed: bytes) -> None:
        while True:
            try:
                connection = await connect(url, Identity(seed), static)
            except ConfideError:
                await asyncio.sleep(1)  # too many at once
                continue
            serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=answer))
            body = {"project": "proj", "machine": "box", "proxyVersion": "1", "toolsets": ["core"]}
            await connection.request("attach", body)
            await serving

    async def answer(_op: str, _body: dict[str, Any]) -> dict[str, Any]:
        return {}

    asyncio.run(run())


async def call(client: Any, count: int) -> list[float]:
    """Milliseconds of `count` tool calls, one after the other."""
    times = []
    for number in range(count):
        started = time.perf_counter()
        await client.call_tool("memory_search", {"query": f"parcel {number}"})
        times.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(PAUSE_S)
    return times


async def measure(url: str, static: bytes, caller: Identity) -> list[list[float]]:
    """Times of every round, of a caller that works."""
    async with Machine(await connect(url, caller, static)) as machine:
        await machine.attach()
        await machine.put("MEMORY.md", "The parcel API listens on port 8010.\n")
        async with machine.mcp() as client:
            await call(client, 50)
            return [await call(client, CALLS) for _ in range(ROUNDS)]


def enroll(daemon: Daemon, identities: Sequence[Identity]) -> None:
    """Each in a space of its own, through the registry."""
    state = open_state(DataFolder(daemon.data))
    try:
        for number, identity in enumerate(identities):
            state.registry.add_caller(
                identity.public_key, Grants(f"idle-{number}", "write"), space=f"idle-{number}", added_by="line"
            )
    finally:
        state.close()


def main(_arguments: Sequence[str] = ()) -> int:
    """Print the table; 1 if the budget is not met."""
    gc.freeze()  # the caller is not to be stopped by its own collector
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        root = Path(folder)
        (root / "server-home").mkdir()
        (root / "server-home" / "daemon.toml").write_text(CONFIG)
        with running_daemon(root, has_model=True) as daemon:
            return run(daemon)


def run(daemon: Daemon) -> int:
    """Measure alone, bring in the thousand, and measure again."""
    assert daemon._process is not None
    process = psutil.Process(daemon._process.pid)
    url = f"ws://127.0.0.1:{daemon.port}/"
    static = parse_daemon_key(daemon.run("key").strip())
    caller = Identity.generate()
    daemon.run("device", "add", format_public_key(caller.public_key, "worker"))
    idle = [Identity.generate() for _ in range(CALLERS)]
    enroll(daemon, idle)
    alone = asyncio.run(measure(url, static, caller))
    before, descriptors = process.memory_info().rss, process.num_fds()

    context = multiprocessing.get_context("spawn")
    pipes, holders = [], []
    for number in range(PROCESSES):
        ours, theirs = context.Pipe()
        seeds = [identity.seed for identity in idle[number::PROCESSES]]
        holder = context.Process(target=hold, args=(theirs, url, static, seeds), daemon=True)
        holder.start()
        pipes.append(ours)
        holders.append(holder)
    try:
        for pipe in pipes:
            if not pipe.poll(READY_DEADLINE_S):
                raise SystemExit("bench: the callers did not get in in time")
            pipe.recv()
        wait_until("all to be connected", lambda: process.num_fds() >= descriptors + CALLERS - 1)
        among = asyncio.run(measure(url, static, caller))
        after, cpu = process.memory_info().rss, process.cpu_percent(5.0)
        connected = process.num_fds() - descriptors
    finally:
        for holder in holders:
            holder.kill()
            holder.join(5)
    return show(alone, among, connected, (after - before) / CALLERS, cpu)


def show(alone: list[list[float]], among: list[list[float]], connected: int, each: float, cpu: float) -> int:
    """Medians over the rounds."""
    rows = {"one caller": alone, f"among {CALLERS:,} idle ones": among}
    print(f"{'tool calls of':26} {'p50':>9} {'p95':>9}")
    for name, rounds in rows.items():
        p50 = statistics.median(statistics.median(row) for row in rounds)
        print(f"{name:26} {p50:6.2f} ms {statistics.median(map(p95, rounds)):6.2f} ms")
    ratio = statistics.median(map(p95, among)) / statistics.median(map(p95, alone))
    print(f"p95 ratio {ratio:.2f}, must be <= {MAX_RATIO:g}")
    print(f"daemon: {connected:,} connections, {each / 1024:.1f} KiB each, {cpu:.1f} % of a core for their keepalives")
    return 0 if ratio <= MAX_RATIO else 1


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
