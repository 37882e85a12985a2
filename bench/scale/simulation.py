"""Nodes in this process over one server: the stages of the simulation, and that nothing of what they said is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from pathlib import Path

import psycopg
from tests.support.daemon.postgres import Postgres

from bench.scale.nodes import KEY, Node, bring
from bench.scale.plan import Plan
from bench.scale.registries import registries
from bench.scale.weighing import Cost, Scales
from confide_cluster.daemon.log.configured import open_engine, standing_of
from confide_cluster.daemon.log.log_sealing import LogSealing
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_cluster.daemon.log.shared import REGISTRY
from confide_cluster.daemon.nodes import FOLLOW_S
from confide_cluster.daemon.spaces.leases import SpaceLeases
from confide_cluster.settings import StoreConfig
from confide_daemon.datadir.paths import DataFolder

LEAST_PATCHSET, MOST_PATCHSET = 60, 720  # bytes, evenly: entries of 570 on average; notes had 579 (bench/README.md)
WORKERS = 2  # of a node, at once
STAYS = 0.9  # of writes go to a space that is open
EMPTY_MIB = 0.3  # the file of a space with nothing in it (docs/operating.md)
TAIL = 1000  # entries that a snapshot takes the place of
EVERYDAY = "everyday, a tenth of it to spaces that are closed: a write"
BEHIND_CHECKPOINT = "an append right behind a checkpoint"
EMPTY_SNAPSHOT, LARGE_SNAPSHOT = "a snapshot of an empty space", "a snapshot of a large space"
STATUS = "confided store"
HELD = (256, 1000)  # spaces that a node has open at once: [spaces] max_open_spaces, and what a large one may set
BEAT = "a heartbeat that asks for"
BEATS_COUNTED = 20
LOOK = "a look at the registry's end"
_HEAD = "SELECT head, base, schema FROM log WHERE id = %(id)s"


class Simulation:
    """Nodes over one server; `costs` and `notes` are what was found."""

    def __init__(self, postgres: Postgres, plan: Plan, root: Path, *, seed: int = 1) -> None:
        self.plan = plan
        self.url = postgres.database()
        self._postgres = postgres
        self._engine = PostgresEngine(self.url)
        self.scales = Scales(postgres, self.url)
        self.costs: dict[str, Cost] = {}
        self.notes: list[str] = []
        self.written: dict[str, tuple[int, bytes]] = {}
        self.disk: dict[str, int] = {}
        self.entries = 0
        self.brought_mib = 0.0
        self.connection_mib = 0.0
        self.caller_bytes = 0.0
        self.apply_s = 0.0
        self.root = root
        self._random = random.Random(seed)
        self._nodes: list[Node] = []

    async def run(self) -> None:
        """All stages, one after the other."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))
        async with self._served():
            await self._register()
            await self._everyday()
            await self._appends()
            await self._beats()
            self._looks()
            await self._take_over()
            await self._snapshots()
            self._status()
            self._connections()
            self.caller_bytes, self.apply_s = await registries(self.root, self.url, self.plan, self.stage, self.say)
        # Nobody is there any more, so that the server's own counts are whole.
        self._vacuum()
        self.check()

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        self._engine.ready()
        config = StoreConfig(url=self.url, connections=self.plan.connections)
        ids = [blake2b(str(number).encode(), digest_size=16).hexdigest() for number in range(self.plan.spaces)]
        for number in range(self.plan.nodes):
            folder = DataFolder(self.root / f"node{number}")
            folder.root.mkdir(mode=0o700)
            leases = SpaceLeases(config, folder, open_engine(config))
            assert leases is not None
            self._nodes.append(Node(leases, ids[number :: self.plan.nodes], self.plan.open_each, self.written))
        try:
            for node in self._nodes:
                node.leases.start()
            yield
        finally:
            for node in self._nodes:
                await node.leases.close()
            self._engine.close()

    @contextmanager
    def stage(self, name: str) -> Iterator[Cost]:
        with self.scales.weighed(name) as cost:
            yield cost
        self.costs[name] = cost
        print(cost.line(), flush=True)

    def say(self, text: str) -> None:
        self.notes.append(text)
        print(text, flush=True)

    async def _each(self, work: Callable[[Node], Awaitable[None]]) -> None:
        await asyncio.gather(*(work(node) for node in self._nodes for _ in range(WORKERS)))

    def _patchset(self) -> bytes:
        return self._random.randbytes(self._random.randint(LEAST_PATCHSET, MOST_PATCHSET))

    async def _register(self) -> None:
        """Every space is opened, gets its first entry, and is closed."""
        left = {id(node): iter(node.ids) for node in self._nodes}
        end = time.monotonic() + self.plan.stage_s

        async def work(node: Node) -> None:
            for space_id in left[id(node)]:
                if time.monotonic() > end:
                    return
                await node.take(space_id)
                await node.write(space_id, self._patchset())
                await node.leave(space_id)
                cost.count += 1

        with self.stage("a new space: opened, one entry, closed") as cost:
            await self._each(work)
        if missing := [space_id for node in self._nodes for space_id in node.ids if space_id not in self.written]:
            # The rows as the leases would have left them, so that what follows meets tables of the full size.
            self.scales._postgres.sql("INSERT INTO log (id, lease) SELECT unnest(%s::text[]), 1", missing, url=self.url)
            self.say(f"  the other {len(missing):,} by one statement: {self.plan.stage_s:.0f} s were over")

    async def _everyday(self) -> None:
        """Writes to spaces that are open, and now and then to one that is not."""
        end = time.monotonic() + self.plan.seconds
        openings: list[float] = []

        async def work(node: Node) -> None:
            while time.monotonic() < end:
                waiting = [space_id for space_id in node.open if space_id not in node.busy]
                stays = len(waiting) > WORKERS and self._random.random() < STAYS
                space_id = self._random.choice(waiting if stays else node.ids)
                if space_id in node.busy:
                    continue
                node.busy.add(space_id)
                try:
                    if space_id not in node.open:
                        await node.make_room()
                        openings.append(await timed(lambda: node.take(space_id)))  # noqa: B023
                    node.open.move_to_end(space_id)
                    cost.times_ms.append(await timed(lambda: node.write(space_id, self._patchset())))  # noqa: B023
                    cost.count += 1
                finally:
                    node.busy.discard(space_id)

        looking = [asyncio.create_task(self._look()) for _ in self._nodes]
        with self.stage(EVERYDAY) as cost:
            await self._each(work)
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        if len(openings) > 1:
            p95 = statistics.quantiles(openings, n=20)[-1]
            self.say(f"  {len(openings):,} openings: p50 {statistics.median(openings):.1f} ms, p95 {p95:.1f} ms")

    async def _look(self) -> None:
        while True:
            await asyncio.to_thread(self._engine.run, _HEAD, {"id": REGISTRY})
            await asyncio.sleep(FOLLOW_S)

    async def _appends(self) -> None:
        """As many as go through, each to another space: right behind a checkpoint, where every page is logged whole once, and later."""
        for node in self._nodes:
            if not node.open:  # a busy machine came to none before its time was over
                await node.take(node.ids[0])
        for name, prepare in ((BEHIND_CHECKPOINT, "CHECKPOINT"), ("an append later", "SELECT 1")):
            self.scales.sql(prepare)
            end = time.monotonic() + self.plan.seconds / 6

            async def work(node: Node, end: float = end) -> None:
                spaces = list(node.open)
                while time.monotonic() < end or not cost.count:
                    space_id = self._random.choice(spaces)
                    if space_id in node.busy:
                        await asyncio.sleep(0)
                        continue
                    node.busy.add(space_id)
                    await node.write(space_id, self._patchset())
                    node.busy.discard(space_id)
                    cost.count += 1

            with self.stage(name) as cost:
                await self._each(work)

    async def _beats(self) -> None:
        """A heartbeat, with as many spaces held as a node has open."""
        node = self._nodes[0]
        for held in sorted({min(most, len(node.ids)) for most in HELD}):
            for space_id in node.ids:
                if len(node.open) >= held:
                    break
                if space_id not in node.open:
                    await node.take(space_id)
            with self.stage(f"{BEAT} {len(node.open):,} spaces") as cost:
                for _ in range(BEATS_COUNTED):
                    cost.times_ms.append(await timed(node.leases._ask))
                    cost.count += 1

    def _looks(self) -> None:
        with self.stage(LOOK) as cost:
            end = time.monotonic() + min(3.0, self.plan.seconds / 6)
            while time.monotonic() < end or not cost.count:
                self._engine.run(_HEAD, {"id": REGISTRY})
                cost.count += 1

    async def _take_over(self) -> None:
        """A node that is forgotten, and another one that takes what it had, eight at once."""
        dead, heir = self._nodes[-1], self._nodes[0]
        held = list(dead.open)
        self.scales.sql(f"DELETE FROM node WHERE id = {dead.leases._node}")
        heir._most += len(held)
        at_once = asyncio.Semaphore(8)

        async def take(space_id: str) -> None:
            async with at_once:
                cost.times_ms.append(await timed(lambda: heir.take(space_id)))
                cost.count += 1

        with self.stage("a space of a dead node, taken over") as cost:
            await asyncio.gather(*(take(space_id) for space_id in held))
        dead.open.clear()

    async def _snapshots(self) -> None:
        """Whole files, as they are brought there: of spaces with nothing in them, and with 10,000 pieces."""
        node = self._nodes[0]
        for name, size, count in (
            (EMPTY_SNAPSHOT, EMPTY_MIB, self.plan.small),
            (LARGE_SNAPSHOT, self.plan.large_mib, self.plan.large),
        ):
            file = self.root / "file"
            file.write_bytes(os.urandom(int(size * 2**20)))
            spaces = list(node.open)[:count]
            with self.stage(name) as cost:
                for space_id in spaces:
                    held = node.open[space_id]
                    began = time.perf_counter()
                    await asyncio.to_thread(bring, held, LogSealing(space_id, KEY), file)
                    cost.times_ms.append((time.perf_counter() - began) * 1e3)
                    cost.count += 1
                    self.brought_mib += size
        space_id = next(iter(node.open))
        for _ in range(min(TAIL, int(self.plan.seconds * 100))):
            await node.write(space_id, self._patchset())
        with self.stage("a snapshot that takes the place of a tail") as cost:
            await asyncio.to_thread(bring, node.open[space_id], LogSealing(space_id, KEY), file)
            cost.count = 1
        self.brought_mib += size

    def _status(self) -> None:
        with self.stage(STATUS) as cost:
            found = standing_of(self._engine)
            cost.count = 1
        assert len(found["logs"]) == self.plan.spaces

    def _connections(self) -> None:
        """Connections that have done something, as nodes hold them."""
        before = len(self.scales.connection_kib())
        with contextlib.ExitStack() as stack:
            for _ in range(self.plan.idle):
                connection = stack.enter_context(contextlib.closing(psycopg.connect(self.url, autocommit=True)))
                connection.execute(_HEAD, {"id": next(iter(self.written))})
            held = self.scales.connection_kib()
        self.connection_mib = sum(held) / len(held) / 1024
        self.say(
            f"connections: {before} of {self.plan.nodes} nodes, {len(held)} at once:"
            f" {self.connection_mib:.1f} MiB each, by shares"
        )

    def _vacuum(self) -> None:
        """What is left to clean up behind all this, and how long that takes."""
        tables = ("log", "entry", "part")
        for name, (table, indexes) in sorted(self.scales.sizes().items()):
            if name in tables:
                self.disk[name] = table + indexes
                self.say(
                    f"table {name}: {table / 2**20:.1f} MiB, its index {indexes / 2**20:.1f} MiB:"
                    f" {(table + indexes) / self.plan.spaces:,.0f} bytes a space"
                )
        rows = self.scales.sql(
            """SELECT relname, n_tup_upd, n_tup_hot_upd, n_dead_tup, autovacuum_count FROM pg_stat_user_tables
               WHERE relname IN ('log', 'entry', 'part') ORDER BY relname"""
        )
        for name, updated, hot, dead, vacuums in rows:
            began, server_s = time.monotonic(), self.scales.server_s()
            self.scales.sql(f"VACUUM {name}")
            took, used = time.monotonic() - began, self.scales.server_s() - server_s
            share = (
                f", {int(str(hot)) / int(str(updated)):.1%} of {updated:,} updates without the index" if updated else ""
            )
            self.say(
                f"  {name}: {dead:,} dead rows behind {vacuums} automatic vacuums{share};"
                f" a vacuum takes {took:.2f} s, {used:.2f} s of a processor"
            )

    def check(self) -> None:
        """What was acknowledged is there, once and without a gap, or all figures here are worth nothing. Raises AssertionError."""
        ((written, entries, gaps),) = self.scales.sql(
            f"""SELECT (SELECT sum(head) FROM log WHERE id <> '{REGISTRY}'),
                       (SELECT count(*) FROM entry WHERE log <> '{REGISTRY}'),
                       (SELECT count(*) FROM log WHERE head - base <> (SELECT count(*) FROM entry WHERE log = log.id))"""
        )
        acknowledged = sum(number for number, _ in self.written.values())
        assert int(str(written)) == acknowledged, (written, acknowledged)
        assert int(str(gaps)) == 0, f"{gaps} logs lack entries"
        self.entries = int(str(entries))
        self.say(f"acknowledged: {acknowledged:,}; in the logs: {written:,}, of which {entries:,} behind a snapshot")


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1e3
