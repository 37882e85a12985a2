"""What an enrolled caller feels of an attack by strangers, and what the daemon weighs before, during and after it.

    python -m bench hostile

The attackers are processes of their own on the same two cores, at the lowest priority: they stand for other machines. Every round measures
tool calls in quiet and under each attack, one after the other. The budget: the 99th percentile under attack within 3 times the quiet one.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.support.daemon.loopback import Machine
from tests.support.network.strangers import Stranger, frame, http_request
from tests.support.programs.processes import Daemon, running_daemon

from confide_crypto.handshake.handshake import ClientHandshake
from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.transport.open import connect

ROUNDS = 3
MEASURE_S = 5.0
SETTLE_S = 1.5
PAUSE_S = 0.008
"""Between two calls, so that the caller stays below the 200 a second that are its own."""
HALF_OPEN = 500
SLOW = 100
MAX_RATIO = 3.0
MAX_RSS_GROWTH_MIB = 16.0

Counted = Any
"""A number in shared memory (`multiprocessing.RawValue`): connections made."""
Attack = Callable[[int, bytes, Counted], None]


def hold(port: int, _static: bytes, count: Counted) -> None:
    """500 websockets that say nothing and 100 senders of one byte a second; each that is cut comes back."""
    waiting: list[tuple[Stranger, Iterator[int]]] = []
    request = http_request()
    while True:
        kept = []
        for stranger, rest in waiting:
            try:
                if stranger.is_cut() or not stranger.send(bytes([next(rest)])):
                    raise ConnectionError
                kept.append((stranger, rest))
            except StopIteration:
                kept.append((stranger, rest))
            except OSError:
                stranger.close()
        waiting = kept
        while len(waiting) < HALF_OPEN + SLOW:
            stranger = Stranger(port)
            count.value += 1
            is_slow = sum(1 for _ in waiting) % (HALF_OPEN + SLOW) < SLOW
            if not is_slow:
                stranger.send(request)
            waiting.append((stranger, iter(request if is_slow else b"")))
        time.sleep(1)


def flood(port: int, static: bytes, count: Counted) -> None:
    """Garbage and one recorded message 1 in turn, each on a new connection, as fast as it goes."""
    recorded = ClientHandshake(Identity.generate(), static).write_message1()
    messages = (recorded, os.urandom(len(recorded)), os.urandom(2000), b"x")
    number = 0
    while True:
        number += 1
        with suppress(OSError), Stranger(port) as stranger:
            stranger.send(http_request() + frame(messages[number % len(messages)]))
            stranger.finish()
            stranger.seconds_until_cut()
        count.value += 1


def knock(port: int, _static: bytes, count: Counted) -> None:
    """Connections that are closed as soon as they are there, as fast as it goes."""
    while True:
        with suppress(OSError):
            Stranger(port).close()
        count.value += 1


def burn(_port: int, _static: bytes, _count: Counted) -> None:
    """No attack: the same processor time, spent on nothing. What it costs a call is the machine's doing."""
    while True:
        pass


ATTACKS: dict[str, tuple[Attack, ...]] = {
    "quiet": (),
    "two processes that spin": (burn, burn),
    "500 half-open, 100 slow": (hold,),
    "flood of message 1": (flood, flood),
    "flood of connections": (knock,),
    "all of them": (hold, flood, knock),
}


def run_low(attack: Attack, port: int, static: bytes, count: Counted) -> None:
    """An attacker's process."""
    os.nice(19)
    attack(port, static, count)


@contextmanager
def under(attacks: Sequence[Attack], port: int, static: bytes) -> Iterator[list[Counted]]:
    """The attackers, until the block ends; what each has counted."""
    context = multiprocessing.get_context("spawn")
    counts = [context.RawValue(ctypes.c_long) for _ in attacks]
    processes = [
        context.Process(target=run_low, args=(attack, port, static, count), daemon=True)
        for attack, count in zip(attacks, counts, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        yield counts
    finally:
        for process in processes:
            process.kill()
            process.join(5)


async def call_for(client: Any, seconds: float) -> list[float]:
    """Milliseconds of tool calls, one after the other."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        await client.call_tool("memory_search", {"query": f"parcel {len(times)}"})
        times.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(PAUSE_S)
    return times


@dataclass(slots=True)
class Scene:
    """What was measured under one attack, a value a round.

    Attributes:
        calls_ms: of each tool call.
        arrivals: connections that the attackers made in a second.
        load: percent of a core that the daemon used, the caller's own calls included.
        weight: MiB of the daemon's resident memory behind it.
    """

    calls_ms: list[list[float]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)


async def run_rounds(daemon: Daemon, process: psutil.Process) -> dict[str, Scene]:
    """Every attack in every round."""
    static = parse_daemon_key(daemon.run("key", "show").strip())
    caller = Identity.generate()
    daemon.run("callers", "add", format_public_key(caller.public_key, "caller"))
    scenes = {name: Scene() for name in ATTACKS}
    async with Machine(await connect(f"ws://127.0.0.1:{daemon.port}/", caller, static)) as machine:
        await machine.attach()
        await machine.put("MEMORY.md", "The parcel API listens on port 8010.\n")
        async with machine.mcp() as client:
            await call_for(client, 1)
            for _ in range(ROUNDS):
                for name, scene in scenes.items():
                    with under(ATTACKS[name], daemon.port, static) as counts:
                        await asyncio.sleep(SETTLE_S)
                        arrived, worked = sum(count.value for count in counts), cpu_s(process)
                        scene.calls_ms.append(await call_for(client, MEASURE_S))
                        scene.arrivals.append((sum(count.value for count in counts) - arrived) / MEASURE_S)
                        scene.load.append((cpu_s(process) - worked) / MEASURE_S * 100)
                    await asyncio.sleep(0.5)
                    scene.weight.append(process.memory_info().rss / 2**20)
    return scenes


def main(_arguments: Sequence[str] = ()) -> int:
    """Print the table; 1 if a budget is not met."""
    gc.freeze()  # as the daemon does: the caller is not to be stopped by its own collector
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        root = Path(folder)
        (root / "server-home").mkdir()
        (root / "server-home" / "daemon.toml").write_text('[embedding]\nprovider = "none"\n')
        with running_daemon(root, has_model=True) as daemon:
            assert daemon._process is not None
            scenes = asyncio.run(run_rounds(daemon, psutil.Process(daemon._process.pid)))
            logged = daemon.log.stat().st_size
    return show(scenes, logged)


def show(scenes: dict[str, Scene], logged: int) -> int:
    """Medians over the rounds, and the ratio to the quiet of the same round."""
    quiet = [p99(row) for row in scenes["quiet"].calls_ms]
    worst = 0.0
    print(
        f"{'a caller`s tool calls under':26} {'p50':>9} {'p99':>9} {'p99/quiet':>10} {'arrivals/s':>11} {'daemon, % core':>15}"
    )
    for name, scene in scenes.items():
        ratio = statistics.median(p99(row) / base for row, base in zip(scene.calls_ms, quiet, strict=True))
        worst = max(worst, ratio)
        p50 = statistics.median(map(statistics.median, scene.calls_ms))
        high = statistics.median(map(p99, scene.calls_ms))
        arrivals, load = statistics.median(scene.arrivals), statistics.median(scene.load)
        print(f"{name:26} {p50:6.2f} ms {high:6.2f} ms {ratio:9.2f}x {arrivals:11,.0f} {load:15.0f}")
    print(f"the p99 must be <= {MAX_RATIO:g}x the quiet one")
    weight = list(scenes.values())[-1].weight
    first, last = weight[0], weight[-1]
    print(
        f"resident memory: {scenes['quiet'].weight[0]:.0f} MiB in quiet, {first:.0f} after the first round of attacks, {last:.0f} after"
    )
    print(f"  the last; its growth must be <= {MAX_RSS_GROWTH_MIB:.0f} MiB. The daemon's whole log: {logged:,} bytes")
    return 0 if worst <= MAX_RATIO and last - first <= MAX_RSS_GROWTH_MIB else 1


def cpu_s(process: psutil.Process) -> float:
    """Seconds of processor that it has used."""
    used = process.cpu_times()
    return used.user + used.system


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
