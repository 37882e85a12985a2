"""A space whose log is in PostgreSQL beside one in its file alone: writes, searches, and how soon a space is there without its file.

A real server on this machine, whose disk is forced as the daemon's is. The two kinds take turns, so that whatever else the machine does
meets both. The first write elsewhere is a fetch of the snapshot, the entries behind it, and one write; detection is not in it.

Then two nodes as processes (`python -m bench.nodes together` measures these alone): a call that is passed on beside one that is not, news
from one to the other, and the first write that is answered after the holder was killed, told to stop, or stands still, by a machine that
comes again as `confide` does.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from tests.support.daemon.logged import Node, Store
from tests.support.daemon.postgres import Postgres, server
from tests.support.programs.nodes import LEASE_S, Nodes, Wire, news, several

from bench.texts import documentation, pieces
from confide_cluster.daemon.log import log_snapshot
from confide_cluster.daemon.log.log_tables import Log
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_cluster.daemon.store import Postgres as Logs
from confide_cluster.settings import StoreConfig
from confide_crypto.keys.identity import Identity
from confide_daemon.access.registry import open_state
from confide_daemon.retrieval.search.query import SearchQuery

PIECES = 10_000
WRITES = 300
WARM_UP = 20
SEARCHES = 200
OPENINGS = 5
APPENDS = 20_000
LOGS = 64
GOAL_APPEND, GOAL_SEARCH, GOAL_BYTES, GOAL_RATE, GOAL_S = 1.35, 1.05, 2048, 4000, 3.0
CALLS = 300
KILLS, STOPS, HANGS = 20, 10, 3
REVOKED, GOAL_REVOKED_S = 20, 1.0
GOAL_CALL_MS, GOAL_NEWS_MS, GOAL_STOPPED_S, GOAL_VANISHED_S = 3.0, 200.0, 1.0, 3.0  # the last one behind lease_s
TAIL = 100  # entries behind the snapshot


def main() -> None:
    """Measure all of it, once."""
    is_together = "together" in sys.argv[1:]
    counts = [int(one) for one in sys.argv[1:] if one.isdecimal()]
    count = counts[0] if counts else PIECES
    texts = list(
        dict.fromkeys(piece for _, text in documentation(packages=True) for piece in pieces(text) if len(piece) > 80)
    )
    with server(is_forced=True) as postgres, tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        with several(Path(folder), postgres) as nodes:
            asyncio.run(together(nodes, texts[:count]))
        if is_together:
            return
        logged = Store(postgres, postgres.database(), Path(folder) / "logged")
        alone = Store(postgres, "", Path(folder) / "alone")
        asyncio.run(compare(logged, alone, texts, count))
        asyncio.run(open_elsewhere(logged, texts))
        rate(postgres)


async def compare(logged: Store, alone: Store, texts: list[str], count: int) -> None:
    """Writes and searches of both, in turn."""
    async with logged.node() as with_log, alone.node() as without:
        nodes = {"logged": with_log, "local": without}
        for node in nodes.values():
            await fill(node, texts[:count])
        trips: list[int] = []
        assert with_log.leases is not None
        with_log.leases._engine.on_answer = lambda: trips.append(1)
        took: dict[str, list[float]] = {name: [] for name in nodes}
        ((filled,),) = logged.sql("SELECT head FROM log")
        for number, text in enumerate(texts[count : count + WRITES + WARM_UP]):
            for name, node in nodes.items():
                before = len(trips)
                took[name].append(await timed(lambda: node.put(f"memory/w{number}.md", f"{text}\n")))  # noqa: B023
                if name == "logged":
                    took.setdefault("trips", []).append(len(trips) - before)
        local, log_ms = (statistics.median(took[name][WARM_UP:]) for name in ("local", "logged"))
        print(
            f"a write: local {local:.2f} ms, with a log {log_ms:.2f} ms: {log_ms / local:.2f} times (goal {GOAL_APPEND})"
        )
        slow = [statistics.quantiles(took[name][WARM_UP:], n=20)[-1] for name in ("local", "logged")]
        print(f"  p95: local {slow[0]:.2f} ms, with a log {slow[1]:.2f} ms")
        print(
            f"  round trips of a write: {statistics.median(took['trips']):.0f} (median; the heartbeat's are counted too)"
        )
        ((most, size),) = logged.sql(f"SELECT count(*), avg(length(body))::int FROM entry WHERE number > {filled}")
        length = statistics.mean(map(len, texts[count : count + WRITES + WARM_UP]))
        print(f"  an entry: {size} bytes on average of {most}, of texts of {length:.0f} (goal {GOAL_BYTES})")
        searched: dict[str, list[float]] = {name: [] for name in nodes}
        for number in range(SEARCHES):
            words = " ".join(texts[number * 7 % len(texts)].split()[:6])
            for name, node in nodes.items():
                space = await node.space()
                searched[name].append(await timed(lambda: space.index.searcher.search(SearchQuery(words))))  # noqa: B023
        local, log_ms = (statistics.median(searched[name][WARM_UP:]) for name in ("local", "logged"))
        print(
            f"a search: local {local:.2f} ms, with a log {log_ms:.2f} ms: {log_ms / local:.2f} times (goal {GOAL_SEARCH})"
        )


async def open_elsewhere(logged: Store, texts: list[str]) -> None:
    """The first write in a folder that has nothing of the space, from the moment that its lease is free."""
    async with logged.node() as node:
        outbox = (await node.space()).outbox
        assert outbox is not None
        took = await timed(lambda: asyncio.to_thread(outbox.take_snapshot))
        print(f"a snapshot of {node.path.stat().st_size / 1e6:.0f} MB: {took / 1e3:.1f} s, beside the writes")
        for number in range(TAIL):
            await node.put(f"memory/tail{number}.md", f"{texts[-number - 1]}\n")
    times = []
    for number in range(OPENINGS):
        async with logged.node("two") as node:
            times.append(await timed(lambda: node.put(f"memory/elsewhere{number}.md", "here\n")) / 1e3)  # noqa: B023
            assert len(await node.texts()) > TAIL
        log_snapshot.remove(node.path)
    print(
        f"the first write elsewhere: {sorted(times)[len(times) // 2]:.2f} s, {max(times):.2f} s at most (goal {GOAL_S})"
    )


def rate(postgres: Postgres) -> None:
    """Entries of 512 bytes to many logs, over the connections of one daemon."""
    engine = PostgresEngine(postgres.database(), most=16)
    engine.ready()
    logs = [Log(engine, f"log{number}", lambda: 1, 6.0) for number in range(LOGS)]
    leases = [one.take().lease for one in logs]
    body = bytes(512)

    def write(number: int) -> None:
        for entry in range(1, APPENDS // LOGS + 1):
            assert logs[number].append(entry, leases[number], 1, body)

    started = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(LOGS)))
    took = time.perf_counter() - started
    done = APPENDS // LOGS * LOGS
    print(
        f"appends to {LOGS} logs over 16 connections: {done / took:,.0f} a second (goal {GOAL_RATE:,}, on its own machine)"
    )
    engine.close()


async def together(nodes: Nodes, texts: list[str]) -> None:
    """Two nodes that serve one space."""
    holder, door = nodes.nodes
    identity = holder.enroll("laptop")
    other = holder.enroll("desktop", "--space", "laptop")
    async with await holder.connect(identity) as here, await door.connect(other) as there:
        for machine in (here, there):
            await machine.attach("proj")
        for number in range(0, len(texts), 50):
            await here.put(f"memory/f{number}.md", "\n\n".join(texts[number : number + 50]) + "\n")
        pings: dict[str, list[float]] = {"direct": [], "passed on": []}
        searches: dict[str, list[float]] = {"direct": [], "passed on": []}
        heard: list[float] = []
        for number in range(CALLS + WARM_UP):
            words = " ".join(texts[number * 7 % len(texts)].split()[:6])
            asked = {"project": "proj", "tool": "memory_search", "arguments": {"query": words}}
            for name, machine in (("direct", here), ("passed on", there)):
                pings[name].append(await timed(lambda: machine.request("ping", {})))  # noqa: B023
                searches[name].append(await timed(lambda: machine.request("lookup", asked)))  # noqa: B023
            if number % 5 == 0:
                path = f"memory/n{number}.md"
                writer, reader = (here, there) if number % 2 else (there, here)
                started = time.perf_counter()
                await writer.put(path, f"news {number}\n")
                await news(reader, path)
                heard.append((time.perf_counter() - started) * 1e3)
    for what, took in (("a request", pings), ("a search", searches)):
        direct, passed_on = (statistics.median(took[name][WARM_UP:]) for name in ("direct", "passed on"))
        print(
            f"{what}: {direct:.2f} ms at the holder, {passed_on:.2f} ms passed on: {passed_on - direct:+.2f} ms (goal {GOAL_CALL_MS})"
        )
    print(
        f"news, with the write that they are of: {p95(heard):.0f} ms p95, {statistics.median(heard):.0f} median (goal {GOAL_NEWS_MS:.0f})"
    )
    ends = [await revoked(nodes, f"guest{number}") for number in range(REVOKED)]
    print(
        f"revoked beside one node → out of the other: {p95(ends):.2f} s p95, {max(ends):.2f} at most (goal {GOAL_REVOKED_S:.0f})"
    )
    await away(nodes, identity, "killed", KILLS, GOAL_S)
    await away(nodes, identity, "stopped", STOPS, GOAL_STOPPED_S)
    await away(nodes, identity, "standing still", HANGS, LEASE_S + GOAL_VANISHED_S)


async def revoked(nodes: Nodes, name: str) -> float:
    """Seconds from the end of a revocation beside one node to the end of the session at the other one."""
    holder, door = nodes.nodes
    identity = holder.enroll(name)
    async with await holder.connect(identity) as machine:
        await machine.attach("proj")
        with closing(open_state(door.folder, store=Logs(StoreConfig(url=nodes.url)))) as state:
            await asyncio.to_thread(state.registry.revoke, name)
        started = time.perf_counter()
        await machine.ended_within(60)
        return time.perf_counter() - started


async def away(nodes: Nodes, identity: Identity, how: str, times: int, goal_s: float) -> None:
    """The first write at another node after the holder is away, from the moment that it is."""
    took = []
    for number in range(times):
        holder = nodes.holder()
        if holder is None:
            wire = Wire(nodes.nodes[0], identity)
            await wire.put("memory/holds.md", f"{how} {number}\n")
            await wire.close()
            holder = nodes.holder()
        assert holder is not None
        (other,) = (one for one in nodes.nodes if one is not holder)
        wire = Wire(other, identity)
        await wire.put(f"memory/{how}{number}a.md".replace(" ", "-"), "before\n")
        assert holder.process is not None
        started = time.perf_counter()
        match how:
            case "killed":
                holder.process.kill()
            case "stopped":
                holder.process.terminate()
            case _:
                holder.process.send_signal(signal.SIGSTOP)
        attempt = 0
        while True:
            # One that ends in good order answers what comes before its end.
            attempt += 1
            await wire.put(f"memory/{how}{number}b{attempt}.md".replace(" ", "-"), "after\n")
            answered = time.perf_counter() - started
            if nodes.holder() is other:
                break
        took.append(answered)
        await wire.close()
        if how == "standing still":
            holder.kill()
        else:
            await asyncio.to_thread(holder.process.wait)
        await asyncio.to_thread(holder.begin)
    median = statistics.median(took)
    print(
        f"holder {how}: first write elsewhere {p95(took):.2f} s p95, {median:.2f} median of {times} (goal {goal_s:.0f})"
    )


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


async def fill(node: Node, texts: list[str]) -> None:
    """Documents with about so many pieces, which the space has indexed."""
    for number in range(0, len(texts), 50):
        await node.put(f"memory/f{number}.md", "\n\n".join(texts[number : number + 50]) + "\n")
    await (await node.space()).wait_indexed(timeout_s=600)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    main()
