"""A space whose log is in PostgreSQL beside one in its file alone: writes, searches, and how soon a space is there without its file.

A real server on this machine, whose disk is forced as the daemon's is. The two kinds take turns, so that whatever else the machine does
meets both. The first write elsewhere is a fetch of the snapshot, the entries behind it, and one write; detection is not in it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.daemon.logged import Node, Store
from tests.support.daemon.postgres import Postgres, server

from bench.texts import documentation, pieces
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.store.log import snapshot
from confide_daemon.store.log.engine import Engine
from confide_daemon.store.log.tables import Log

PIECES = 10_000
WRITES = 300
WARM_UP = 20
SEARCHES = 200
OPENINGS = 5
APPENDS = 20_000
LOGS = 64
GOAL_APPEND, GOAL_SEARCH, GOAL_BYTES, GOAL_RATE, GOAL_S = 1.35, 1.05, 2048, 4000, 3.0
TAIL = 100  # entries behind the snapshot


def main() -> None:
    """Measure all of it, once."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PIECES
    texts = list(
        dict.fromkeys(piece for _, text in documentation(packages=True) for piece in pieces(text) if len(piece) > 80)
    )
    with server(is_forced=True) as postgres, tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
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
                searched[name].append(await timed(lambda: space.searcher.search(SearchQuery(words))))  # noqa: B023
        local, log_ms = (statistics.median(searched[name][WARM_UP:]) for name in ("local", "logged"))
        print(
            f"a search: local {local:.2f} ms, with a log {log_ms:.2f} ms: {log_ms / local:.2f} times (goal {GOAL_SEARCH})"
        )


async def open_elsewhere(logged: Store, texts: list[str]) -> None:
    """The first write in a folder that has nothing of the space, from the moment that its lease is free."""
    async with logged.node() as node:
        outbox = (await node.space())._outbox
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
        snapshot.remove(node.path)
    print(
        f"the first write elsewhere: {sorted(times)[len(times) // 2]:.2f} s, {max(times):.2f} s at most (goal {GOAL_S})"
    )


def rate(postgres: Postgres) -> None:
    """Entries of 512 bytes to many logs, over the connections of one daemon."""
    engine = Engine(postgres.database(), most=16)
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
