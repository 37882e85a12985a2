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
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import psycopg
from tests.support.daemon.postgres import Postgres, server

from bench.scale_model import SERVER, USE, Measured, lines, walls
from confide_daemon.access.callers import Grants, insert_caller
from confide_daemon.access.registry import Registry
from confide_daemon.config import StoreConfig
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import EngineError
from confide_daemon.server.nodes import FOLLOW_S
from confide_daemon.spaces.leases import BEATS, Lease, Leases, standing_of
from confide_daemon.store.database import connect
from confide_daemon.store.log import snapshot
from confide_daemon.store.log.engine import DEADLINE_S, Engine
from confide_daemon.store.log.entry import GENESIS, Place, Sealing, tag_of
from confide_daemon.store.log.shared import REGISTRY
from confide_daemon.store.log.shipped import Shipped

SCHEMA = 1
KEY = bytes(32)
LEAST_PATCHSET, MOST_PATCHSET = 60, 720  # bytes, evenly: entries of 570 on average; notes had 579 (docs/numbers.md)
WORKERS = 2  # of a node, at once
STAYS = 0.9  # of writes go to a space that is open
EMPTY_MIB = 0.3  # the file of a space with nothing in it (docs/capacity.md)
TAIL = 1000  # entries that a snapshot takes the place of
SETTINGS = {  # PostgreSQL's defaults, and nobody tunes them here; only the tests' server has others
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum": "on",
}
EVERYDAY = "everyday, a tenth of it to spaces that are closed: a write"
BEHIND_CHECKPOINT = "an append right behind a checkpoint"
EMPTY_SNAPSHOT, LARGE_SNAPSHOT = "a snapshot of an empty space", "a snapshot of a large space"
STATUS = "confided store status"
HELD = (256, 1000)  # spaces that a node has open at once: [spaces] max_open_spaces, and what a large one may set
BEAT = "a heartbeat that asks for"
BEATS_COUNTED = 20
SHARED = "a snapshot of the registry"
ALONE = "a change of the registry, by one node"
CHANGES = "a change of the registry, by all nodes at once"
REGISTRYS = 2  # connections of a node for its registry (access/registry.py)
APPLIED = 200  # changes of the registry that another node applies
LOOK = "a look at the registry's end"
_HEAD = "SELECT head, base, schema FROM log WHERE id = %(id)s"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it.

    Attributes:
        open_each: spaces that a node has open at once.
        seconds: of everyday load.
        stage_s: after so long a stage ends where it is, and says how far it came.
        connections: of a node.
    """

    spaces: int = 100_000
    nodes: int = 8
    open_each: int = 256
    seconds: float = 60.0
    stage_s: float = 100.0
    connections: int = 6
    idle: int = 100  # connections that are held at once, to be weighed
    small: int = 100  # snapshots of empty spaces
    large: int = 4
    large_mib: float = 26.0  # of a file with 10,000 pieces
    callers: int = 10_000  # that the registry has, to see how it grows


@dataclass
class Cost:
    """What the server needed for a stage.

    Attributes:
        count: of what was done.
        took_s: by the clock.
        server_s: on a processor, of all processes of the server.
        log_bytes: of its write-ahead log.
    """

    name: str
    count: int = 0
    took_s: float = 0.0
    server_s: float = 0.0
    log_bytes: int = 0
    times_ms: list[float] = field(default_factory=list)

    def line(self) -> str:
        each = max(1, self.count)
        text = (
            f"{self.name}: {self.count:,} in {self.took_s:.1f} s, {self.count / max(self.took_s, 1e-9):,.0f} a second"
        )
        text += f"; {self.server_s / each * 1e3:.3f} ms of the server's processor and {self.log_bytes / each:,.0f} bytes of its log each"
        if len(self.times_ms) > 1:
            text += f"; p50 {statistics.median(self.times_ms):.1f} ms, p95 {statistics.quantiles(self.times_ms, n=20)[-1]:.1f} ms"
        return text


class Scales:
    """Weighs what a server does."""

    def __init__(self, postgres: Postgres, url: str) -> None:
        self._postgres = postgres
        self._url = url
        self._postmaster = int((postgres.files / "postmaster.pid").read_text().split()[0])

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self._postgres.sql(statement, url=self._url)

    @contextmanager
    def weighed(self, name: str) -> Iterator[Cost]:
        """The caller counts what it does."""
        cost = Cost(name)
        log_bytes, server_s, began = self._log_bytes(), self.server_s(), time.monotonic()
        yield cost
        cost.took_s = time.monotonic() - began
        cost.server_s = self.server_s() - server_s
        cost.log_bytes = self._log_bytes() - log_bytes

    def server_s(self) -> float:
        """Seconds on a processor of all its processes so far, those that have ended too."""
        ticks = 0
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):  # no process, or one that has just ended
                pid = int(place.name)
                values = (place / "stat").read_text().rpartition(")")[2].split()
                if pid == self._postmaster:
                    ticks += sum(map(int, values[11:15]))
                elif int(values[1]) == self._postmaster:
                    ticks += sum(map(int, values[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def connection_kib(self) -> list[float]:
        """Memory of each connection's process by shares, the shared buffers among them."""
        found = []
        for (pid,) in self.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"):
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                found.append(float(next(line.split()[1] for line in lines if line.startswith("Pss:"))))
        return found

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Bytes of each table and of its indexes."""
        rows = self.sql("SELECT relname, pg_table_size(relid), pg_indexes_size(relid) FROM pg_stat_user_tables")
        return {str(name): (int(str(table)), int(str(indexes))) for name, table, indexes in rows}

    def _log_bytes(self) -> int:
        ((position,),) = self.sql("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return int(str(position))


@dataclass
class Open:
    """A space that a node has the lease of."""

    lease: Lease
    number: int
    tag: bytes


class Node:
    """What a daemon does with the engine, for the spaces that it was given."""

    def __init__(self, leases: Leases, ids: list[str], most: int, tags: dict[str, tuple[int, bytes]]) -> None:
        self.leases = leases
        self.ids = ids
        self._most = most
        self._tags = tags
        self.open: OrderedDict[str, Open] = OrderedDict()
        self._sealings: dict[str, Sealing] = {}
        self.busy: set[str] = set()
        self.is_stale = False

    async def take(self, space_id: str) -> Open:
        """As a space is opened whose copy is there: the lease, what was interrupted, whether it is the copy's log, and what it lacks."""
        lease = await self.leases.take(space_id, self._stale)
        number, tag = self._tags.get(space_id, (0, GENESIS))
        await asyncio.to_thread(lease.log.sweep, lease.standing.snapshot)
        assert await asyncio.to_thread(lease.log.has, number, tag, lease.standing)
        assert not await asyncio.to_thread(lambda: list(lease.log.entries(number)))
        found = self.open[space_id] = Open(lease, number, tag)
        return found

    async def write(self, space_id: str, patchset: bytes) -> None:
        """One entry behind the last one."""
        held = self.open[space_id]
        sealing = self._sealings.setdefault(space_id, Sealing(space_id, KEY))
        lease = held.lease.standing.lease
        body = sealing.seal(Place(held.number + 1, lease, SCHEMA, held.tag), patchset)
        assert await asyncio.to_thread(held.lease.log.append, held.number + 1, lease, SCHEMA, body), "fenced"
        held.number, held.tag = held.number + 1, tag_of(body)
        self._tags[space_id] = held.number, held.tag

    async def leave(self, space_id: str) -> None:
        del self.open[space_id]
        self._sealings.pop(space_id, None)
        await self.leases.leave(space_id)

    async def make_room(self) -> None:
        """Close the longest unused, as `spaces.room` does."""
        for space_id in list(self.open):
            if len(self.open) < self._most:
                return
            if space_id not in self.busy and space_id in self.open:
                await self.leave(space_id)

    def _stale(self) -> None:
        self.is_stale = True


class Simulation:
    """Nodes over one server; `costs` and `notes` are what was found."""

    def __init__(self, postgres: Postgres, plan: Plan, root: Path, *, seed: int = 1) -> None:
        self.plan = plan
        self.url = postgres.database()
        self._postgres = postgres
        self._engine = Engine(self.url)
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
        self._root = root
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
            await self._registries()
        # Nobody is there any more, so that the server's own counts are whole.
        self._vacuum()
        self.check()

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        self._engine.ready()
        config = StoreConfig(url=self.url, connections=self.plan.connections)
        ids = [blake2b(str(number).encode(), digest_size=16).hexdigest() for number in range(self.plan.spaces)]
        for number in range(self.plan.nodes):
            folder = DataFolder(self._root / f"node{number}")
            folder.root.mkdir(mode=0o700)
            leases = Leases.configured(config, folder)
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
    def _stage(self, name: str) -> Iterator[Cost]:
        with self.scales.weighed(name) as cost:
            yield cost
        self.costs[name] = cost
        print(cost.line(), flush=True)

    def _say(self, text: str) -> None:
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

        with self._stage("a new space: opened, one entry, closed") as cost:
            await self._each(work)
        if missing := [space_id for node in self._nodes for space_id in node.ids if space_id not in self.written]:
            # The rows as the leases would have left them, so that what follows meets tables of the full size.
            self.scales._postgres.sql("INSERT INTO log (id, lease) SELECT unnest(%s::text[]), 1", missing, url=self.url)
            self._say(f"  the other {len(missing):,} by one statement: {self.plan.stage_s:.0f} s were over")

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
        with self._stage(EVERYDAY) as cost:
            await self._each(work)
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        if len(openings) > 1:
            p95 = statistics.quantiles(openings, n=20)[-1]
            self._say(f"  {len(openings):,} openings: p50 {statistics.median(openings):.1f} ms, p95 {p95:.1f} ms")

    async def _look(self) -> None:
        while True:
            await asyncio.to_thread(self._engine.run, _HEAD, {"id": REGISTRY})
            await asyncio.sleep(FOLLOW_S)

    async def _appends(self) -> None:
        """As many as go through, each to another space: right behind a checkpoint, where every page is logged whole once, and later."""
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

            with self._stage(name) as cost:
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
            with self._stage(f"{BEAT} {len(node.open):,} spaces") as cost:
                for _ in range(BEATS_COUNTED):
                    cost.times_ms.append(await timed(node.leases._ask))
                    cost.count += 1

    def _looks(self) -> None:
        with self._stage(LOOK) as cost:
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

        with self._stage("a space of a dead node, taken over") as cost:
            await asyncio.gather(*(take(space_id) for space_id in held))
        dead.open.clear()

    async def _snapshots(self) -> None:
        """Whole files, as they are brought there: of spaces with nothing in them, and with 10,000 pieces."""
        node = self._nodes[0]
        for name, size, count in (
            (EMPTY_SNAPSHOT, EMPTY_MIB, self.plan.small),
            (LARGE_SNAPSHOT, self.plan.large_mib, self.plan.large),
        ):
            file = self._root / "file"
            file.write_bytes(os.urandom(int(size * 2**20)))
            spaces = list(node.open)[:count]
            with self._stage(name) as cost:
                for space_id in spaces:
                    held = node.open[space_id]
                    began = time.perf_counter()
                    await asyncio.to_thread(_bring, held, Sealing(space_id, KEY), file)
                    cost.times_ms.append((time.perf_counter() - began) * 1e3)
                    cost.count += 1
                    self.brought_mib += size
        space_id = next(iter(node.open))
        for _ in range(min(TAIL, int(self.plan.seconds * 100))):
            await node.write(space_id, self._patchset())
        with self._stage("a snapshot that takes the place of a tail") as cost:
            await asyncio.to_thread(_bring, node.open[space_id], Sealing(space_id, KEY), file)
            cost.count = 1
        self.brought_mib += size

    def _status(self) -> None:
        with self._stage(STATUS) as cost:
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
        self._say(
            f"connections: {before} of {self.plan.nodes} nodes, {len(held)} at once:"
            f" {self.connection_mib:.1f} MiB each, by shares"
        )

    async def _registries(self) -> None:
        """The registry, which every node has whole: each change takes its row in turn, and every node applies those of all others."""
        with contextlib.ExitStack() as stack:
            folders = [DataFolder(self._root / f"registry{number}") for number in range(self.plan.nodes)]
            registries = []
            for folder in folders:
                folder.root.mkdir(mode=0o700)
                config = StoreConfig(url=self.url)
                registry = stack.enter_context(contextlib.closing(Registry.open(folder.registry, KEY, store=config)))
                registry.join_store()
                registries.append(registry)
            first = registries[0]
            empty = folders[0].registry.stat().st_size
            with first.transaction() as database:
                for number in range(self.plan.callers):
                    grants = Grants(f"machine{number}")
                    insert_caller(
                        database, os.urandom(32), grants, space=f"space{number}", added_by="line", now=time.time()
                    )
            with contextlib.closing(connect(folders[0].registry, KEY, writer=True)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self.caller_bytes = (folders[0].registry.stat().st_size - empty) / self.plan.callers
            self._say(f"a machine with its space is {self.caller_bytes:,.0f} bytes of the registry")
            with self._stage(ALONE) as cost:
                await asyncio.to_thread(_change, first, time.monotonic() + self.plan.seconds / 12, cost)
            for registry in registries:
                registry.follow()
            with self._stage(CHANGES) as cost:
                end = time.monotonic() + self.plan.seconds / 6
                await asyncio.gather(*(asyncio.to_thread(_change, one, end, cost) for one in registries))
            for registry in registries:
                registry.follow()
            for _ in range(APPLIED):
                first.add_caller(
                    os.urandom(32), Grants(os.urandom(8).hex()), space=os.urandom(8).hex(), added_by="line"
                )
            began = time.thread_time()
            registries[1].follow()
            self.apply_s = (time.thread_time() - began) / APPLIED
            self._say(f"  a change that another node has made: {self.apply_s * 1e3:.2f} ms of a node's processor")
            assert first.shared is not None
            with self._stage(SHARED) as cost:
                first.shared.take_snapshot()
                cost.count = 1
            self._say(f"  of {folders[0].registry.stat().st_size / 2**20:.1f} MiB")

    def _vacuum(self) -> None:
        """What is left to clean up behind all this, and how long that takes."""
        tables = ("log", "entry", "part")
        for name, (table, indexes) in sorted(self.scales.sizes().items()):
            if name in tables:
                self.disk[name] = table + indexes
                self._say(
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
            self._say(
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
        self._say(f"acknowledged: {acknowledged:,}; in the logs: {written:,}, of which {entries:,} behind a snapshot")


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


def _change(registry: Registry, end: float, cost: Cost) -> None:
    """As many as one node can make, and one at least."""
    while time.monotonic() < end or not cost.count:
        began = time.perf_counter()
        with contextlib.suppress(EngineError):  # it is brought up to date: whoever asked is told to say it again
            registry.add_caller(os.urandom(32), Grants(os.urandom(8).hex()), space=os.urandom(8).hex(), added_by="line")
            cost.count += 1
        cost.times_ms.append((time.perf_counter() - began) * 1e3)


def _bring(held: Open, sealing: Sealing, file: Path) -> None:
    """As `Outbox.take_snapshot`, with a file that is there already."""
    found = Shipped(held.number, held.tag)
    number = snapshot.upload(held.lease.log, sealing, file, found)
    lease = held.lease.standing.lease
    held.lease.log.settle(number, lease, base=held.number, tag=held.tag, schema=SCHEMA, custody=None)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1e3


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


if __name__ == "__main__":
    main()
