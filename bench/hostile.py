"""What an enrolled caller feels of an attack, by strangers or by another caller, and what the daemon weighs before, during and after it.

    python -m bench.hostile [--rounds 3] [--nice 19]

The attackers are processes of their own on the same two cores, at the lowest priority: they stand for other machines. Every round measures
tool calls in quiet and under each attack, one after the other, and beside them handshakes of a third machine. The budgets: under strangers
the 99th percentile, under a hostile caller the 95th, within 3 times the quiet one; 5 in 100 handshakes refused.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from tests.support.daemon.loopback import Machine, text_hash
from tests.support.network.strangers import Stranger, frame, http_request
from tests.support.programs.processes import Daemon, running_daemon

from confide_crypto.channel.protocol import FrameType
from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.handshake.handshake import ClientHandshake
from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.limits import MAX_CONTAINERS
from confide_crypto.transport.open_channel import Connection, connect

ROUNDS = 3
MEASURE_S = 5.0
SETTLE_S = 1.5
PAUSE_S = 0.008
"""Between two calls, so that the caller stays below the 200 a second that are its own."""
HALF_OPEN = 500
SLOW = 100
MAX_RATIO = 3.0
MAX_REFUSED = 0.05
CONNECT_EVERY_S = 0.1
LISTS = 5_400_000
"""That fit into a request of 16 MiB."""
FILES = 10_000
AT_ONCE = 16
BEGUN_S = 120.0
SPINNING = "two processes that spin"
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


def hold_websockets(port: int, _static: bytes, count: Counted) -> None:
    """70 open websockets that say nothing, made again when they are cut: some twenty a second by themselves, with no cryptography."""
    request, waiting = http_request(), list[Stranger]()
    while True:
        waiting = [stranger for stranger in waiting if not stranger.is_cut() or stranger.close()]
        while len(waiting) < 70:
            stranger = Stranger(port)
            stranger.send(request)
            waiting.append(stranger)
            count.value += 1
        time.sleep(0.05)


def ask_for_lists(port: int, static: bytes, count: Counted, *, seed: bytes) -> None:
    """Four requests full of lists at a time: 16 MiB of an operation that does not exist, of one that does, and as many as it may have."""
    largest = b'{"op":"%s","a":[' + b"[]," * LISTS + b"[]]}"
    allowed = b'{"op":"%s","a":[' + b"[]," * (MAX_CONTAINERS - 10) + b"[]]}"
    payloads = (
        largest.replace(b"%s", b"nothing"),
        largest.replace(b"%s", b"compare"),
        allowed.replace(b"%s", b"compare"),
    )

    async def ask(connection: Connection, first: int) -> None:
        for number in itertools.count(first):
            stream, answer = connection._open_request()
            await connection._outbox.send(FrameType.REQ, stream, payloads[number % len(payloads)])
            with suppress(RequestError):
                await answer
            count.value += 1

    _attack(port, static, seed, ask, connections=2, at_once=2)


def write_files(port: int, static: bytes, count: Counted, *, seed: bytes) -> None:
    """10,000 files of a few hundred words, as fast as they are taken, and again."""

    async def write(connection: Connection, first: int) -> None:
        await connection.request(
            "attach", {"project": "burst", "machine": "x", "proxyVersion": "1", "toolsets": ["core"]}
        )
        for number in itertools.count(first, AT_ONCE):
            text = "".join(f"word{number * 7919 + n} of the burst\n" for n in range(60))
            body = {"project": "burst", "path": f"memory/{number % FILES}.md", "text": text, "base": 0}
            with suppress(RequestError, TimeoutError):
                await connection.request("put", {**body, "hash": text_hash(text)}, timeout_s=60)
            count.value += 1

    _attack(port, static, seed, write, connections=2, at_once=AT_ONCE // 2)


def reconnect(port: int, static: bytes, count: Counted, *, seed: bytes) -> None:
    """Whole handshakes with a key that is enrolled, eight at a time, each closed as soon as it is through."""

    async def storm() -> None:
        async def one() -> None:
            while True:
                with suppress(ConfideError, OSError):
                    connection = await connect(f"ws://127.0.0.1:{port}/", Identity(seed), static)
                    connection.abort()
                count.value += 1

        await asyncio.gather(*(one() for _ in range(8)))

    asyncio.run(storm())


def search_dearly(port: int, static: bytes, count: Counted, *, seed: bytes) -> None:
    """Sixteen questions at a time that cost the most of all that were tried: a thousand days each, in 300 documents that have them."""
    days = [
        f"20{year:02}-{month:02}-{day:02}" for year in range(10, 40) for month in range(1, 13) for day in range(1, 29)
    ]

    async def search() -> None:
        connection = await connect(f"ws://127.0.0.1:{port}/", Identity(seed), static)
        async with Machine(connection) as machine:
            await machine.attach("dear")
            for number in range(300):
                with suppress(RequestError, TimeoutError):
                    await machine.put(f"memory/{days[number]}.md", "\n\n".join(days[number::97]) + "\n")
            async with machine.mcp() as client:

                async def ask(first: int) -> None:
                    for number in itertools.count(first):
                        start = number * 37 % 9000
                        with suppress(Exception):
                            await client.call_tool("memory_search", {"query": " ".join(days[start : start + 1000])})
                        count.value += 1

                await asyncio.gather(*(ask(number * 1000) for number in range(AT_ONCE)))

    while True:
        with suppress(ConfideError, OSError):
            asyncio.run(search())


def _attack(port: int, static: bytes, seed: bytes, ask: Any, *, connections: int, at_once: int) -> None:
    async def serve_and_ask(number: int) -> None:
        while True:
            with suppress(ConfideError, OSError):
                connection = await connect(f"ws://127.0.0.1:{port}/", Identity(seed), static)
                asks = [asyncio.create_task(ask(connection, number * at_once + n)) for n in range(at_once)]
                try:
                    await connection.serve(on_request=_nothing)
                finally:
                    for task in asks:
                        task.cancel()
            await asyncio.sleep(0.05)

    async def all_of_them() -> None:
        await asyncio.gather(*(serve_and_ask(number) for number in range(connections)))

    asyncio.run(all_of_them())


async def _nothing(_op: str, _body: dict[str, Any]) -> dict[str, Any]:
    return {}


def burn(_port: int, _static: bytes, _count: Counted) -> None:
    """No attack: the same processor time, spent on nothing. What it costs a call is the machine's doing."""
    while True:
        pass


ATTACKS: dict[str, tuple[Attack, ...]] = {
    "quiet": (),
    SPINNING: (burn, burn),
    "500 half-open, 100 slow": (hold,),
    "70 silent websockets": (hold_websockets,),
    "flood of message 1": (flood, flood),
    "flood of connections": (knock,),
    "all of them": (hold, flood, knock),
}


def callers_attacks(reader: Identity, writer: Identity) -> dict[str, tuple[Attack, ...]]:
    """Those of one enrolled machine."""
    return {
        "16 MiB of lists (read-only)": (partial(ask_for_lists, seed=reader.seed),),
        "bursts of 10,000 files": (partial(write_files, seed=writer.seed),),
        "dear questions": (partial(search_dearly, seed=writer.seed),),
        "a storm of its handshakes": (partial(reconnect, seed=reader.seed),),
    }


def run_low(attack: Attack, port: int, static: bytes, count: Counted, nice: int) -> None:
    """An attacker's process."""
    os.nice(nice)
    attack(port, static, count)


@contextmanager
def under(attacks: Sequence[Attack], port: int, static: bytes, nice: int) -> Iterator[list[Counted]]:
    """The attackers, until the block ends; what each has counted."""
    context = multiprocessing.get_context("spawn")
    counts = [context.RawValue(ctypes.c_long) for _ in attacks]
    processes = [
        context.Process(target=run_low, args=(attack, port, static, count, nice), daemon=True)
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


async def begun(counts: Sequence[Counted]) -> None:
    """Return once every attacker is at it: on a busy machine its imports alone take seconds."""
    async with asyncio.timeout(BEGUN_S):
        while not all(count.value for count in counts):  # noqa: ASYNC110 - numbers in shared memory have no event
            await asyncio.sleep(0.05)


async def call_for(client: Any, seconds: float) -> list[float]:
    """Milliseconds of tool calls, one after the other."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        await client.call_tool("memory_search", {"query": f"parcel {len(times)}"})
        times.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(PAUSE_S)
    return times


async def connect_for(daemon: Daemon, identity: Identity, static: bytes, seconds: float) -> list[bool]:
    """Whether each of the handshakes that a third machine makes meanwhile got through."""
    through: list[bool] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            connection = await connect(f"ws://127.0.0.1:{daemon.port}/", identity, static)
        except (ConfideError, OSError):
            through.append(False)
        else:
            through.append(True)
            await connection.close()
        await asyncio.sleep(CONNECT_EVERY_S)
    return through


@dataclass(slots=True)
class Scene:
    """What was measured under one attack, a value a round.

    Attributes:
        calls_ms: of each tool call.
        arrivals: connections that the attackers made in a second.
        load: percent of a core that the daemon used, the caller's own calls included.
        weight: MiB of the daemon's resident memory behind it.
        through: of each handshake of the third machine, whether it got through.
        is_caller: whether another caller attacked, not strangers.
    """

    calls_ms: list[list[float]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    through: list[bool] = field(default_factory=list)
    is_caller: bool = False


async def run_rounds(daemon: Daemon, process: psutil.Process, *, rounds: int, nice: int) -> dict[str, Scene]:
    """Every attack in every round."""
    static = parse_daemon_key(daemon.run("key").strip())
    caller, third, reader, writer = (Identity.generate() for _ in range(4))
    for identity, name, scope in (
        (caller, "caller", "write"),
        (third, "third", "write"),
        (reader, "reader", "read"),
        (writer, "writer", "write"),
    ):
        daemon.run("device", "add", format_public_key(identity.public_key, name), "--scope", scope)
    by_callers = callers_attacks(reader, writer)
    attacks = ATTACKS | by_callers
    scenes = {name: Scene(is_caller=name in by_callers) for name in attacks}
    async with Machine(await connect(f"ws://127.0.0.1:{daemon.port}/", caller, static)) as machine:
        await machine.attach()
        await machine.put("MEMORY.md", "The parcel API listens on port 8010.\n")
        async with machine.mcp() as client:
            await call_for(client, 1)
            for _ in range(rounds):
                for name, scene in scenes.items():
                    with under(attacks[name], daemon.port, static, nice) as counts:
                        if name != SPINNING:
                            await begun(counts)
                        await asyncio.sleep(SETTLE_S)
                        arrived, worked = sum(count.value for count in counts), cpu_s(process)
                        connecting = asyncio.create_task(connect_for(daemon, third, static, MEASURE_S))
                        scene.calls_ms.append(await call_for(client, MEASURE_S))
                        scene.through += await connecting
                        scene.arrivals.append((sum(count.value for count in counts) - arrived) / MEASURE_S)
                        scene.load.append((cpu_s(process) - worked) / MEASURE_S * 100)
                    await asyncio.sleep(0.5)
                    scene.weight.append(process.memory_info().rss / 2**20)
    return scenes


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table; 1 if a budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--nice", type=int, default=19, help="of the attackers; 0 where others keep this machine busy")
    said = parser.parse_args(arguments)
    gc.freeze()  # as the daemon does: the caller is not to be stopped by its own collector
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        root = Path(folder)
        (root / "server-home").mkdir()
        (root / "server-home" / "daemon.toml").write_text(
            '[embedding]\nprovider = "none"\n[at_rest]\ncustody = "server"\n'
        )
        with running_daemon(root, has_model=True) as daemon:
            assert daemon._process is not None
            scenes = asyncio.run(
                run_rounds(daemon, psutil.Process(daemon._process.pid), rounds=said.rounds, nice=said.nice)
            )
            logged = daemon.log.stat().st_size
    return show(scenes, logged)


def show(scenes: dict[str, Scene], logged: int) -> int:
    """Medians over the rounds, and the ratio to the quiet of the same round."""
    worst = refused = 0.0
    print(
        f"{'a caller`s tool calls under':28} {'p50':>9} {'p95':>9} {'p99':>9} {'ratio':>12} {'attempts/s':>11} {'daemon':>8} {'refused':>8}"
    )
    for name, scene in scenes.items():
        part, place = ("p95", 94) if scene.is_caller else ("p99", 98)
        rows = zip(scene.calls_ms, scenes["quiet"].calls_ms, strict=True)
        ratio = statistics.median(percentile(row, place) / percentile(quiet, place) for row, quiet in rows)
        worst = max(worst, ratio)
        share = scene.through.count(False) / max(1, len(scene.through))
        refused = max(refused, share)
        p50, p95, p99 = (statistics.median(percentile(row, at) for row in scene.calls_ms) for at in (49, 94, 98))
        arrivals, load = statistics.median(scene.arrivals), statistics.median(scene.load)
        print(
            f"{name:28} {p50:6.2f} ms {p95:6.2f} ms {p99:6.2f} ms {part} {ratio:7.2f}x {arrivals:11,.0f} {load:6.0f} % {share:8.1%}"
        )
    print(
        f"the ratio to the quiet one must be <= {MAX_RATIO:g}x, handshakes of a third machine refused <= {MAX_REFUSED:.0%}"
    )
    weight = list(scenes.values())[-1].weight
    first, last = weight[0], weight[-1]
    print(
        f"resident memory: {scenes['quiet'].weight[0]:.0f} MiB in quiet, {first:.0f} after the first round of attacks, {last:.0f} after"
    )
    print(f"  the last; its growth must be <= {MAX_RSS_GROWTH_MIB:.0f} MiB. The daemon's whole log: {logged:,} bytes")
    return 0 if worst <= MAX_RATIO and refused <= MAX_REFUSED and last - first <= MAX_RSS_GROWTH_MIB else 1


def cpu_s(process: psutil.Process) -> float:
    """Seconds of processor that it has used."""
    used = process.cpu_times()
    return used.user + used.system


def percentile(values: list[float], place: int) -> float:
    """The one at this place of the 99 that cut a hundred."""
    return statistics.quantiles(values, n=100)[place]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
