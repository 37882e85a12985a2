"""What a daemon carries: registered spaces, spaces that are used one after the other, and what each costs in memory and time.

    python -m bench.capacity [--registered N] [--used N] [--open N] [--store]

Without options, both forms of docs/operating.md: a thousand spaces of which 64 may be open, and ten thousand registered ones of which a
thousand are used. Every caller has a key and a space of its own; each connects, stores a note, searches, and leaves, so that its space is
opened and stays open until it is the longest unused. The model is left out: what it takes does not grow with the spaces
(`bench.daemon_memory`).

With `--store` their logs are in a real PostgreSQL, and a thousand of ten thousand are open at once: the form of a node of several
(docs/cluster.md). It takes some five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from mcp.client.client import Client
from tests.support.daemon.loopback import Machine
from tests.support.daemon.postgres import server as postgres_server
from tests.support.programs import forked
from tests.support.programs.processes import Daemon

from confide_cluster.daemon.store import Postgres
from confide_cluster.settings import StoreConfig
from confide_crypto.keys.identity import Identity, parse_daemon_key
from confide_crypto.transport.open_channel import connect
from confide_daemon.access.enrolled_callers import Grants, Scope, insert_caller
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder

ROUNDS = 7
SEARCHES = 60
PAUSE_S = 0.005
CHANGES = 20
HELD = "SELECT count(*) FROM log WHERE holder IS NOT NULL AND id <> 'registry'"
WATCHED_S = 0.5
"""Behind each change of the registry, which is noticed within 0.2 s."""
PARCEL = "# Parcels\n\nThe parcel API listens on port 8010.\n"
CONFIG = """
[embedding]
provider = "none"
[at_rest]
custody = "server"
[spaces]
max_open_spaces = {most_open}
"""


@dataclass(frozen=True, slots=True)
class Form:
    """One row of the table, and what must hold for it."""

    registered: int
    used: int
    most_open: int
    most_mib: float
    most_start_s: float = 2.0
    most_ratio: float = 2.0
    most_change_ms: float = 20.0
    has_store: bool = False


ON_A_NODE = Form(10_000, 1000, 1000, most_mib=4096, has_store=True)
FORMS = (Form(1000, 1000, 64, most_mib=400), Form(10_000, 1000, 256, most_mib=700))


@dataclass(frozen=True, slots=True)
class Carried:
    """What was measured: seconds to listening, MiB, milliseconds, descriptors and threads at the end."""

    start_s: float
    start_cpu_s: float
    empty_mib: float
    peak_mib: float
    opening_ms: float
    alone_p95_ms: float
    among_p95_ms: float
    change_ms: float
    quiet_ms: float
    descriptors: int
    threads: int


def enroll(data: Path, identities: Sequence[Identity], more: int) -> None:
    """A space for each, and `more` of callers that never come."""
    state = open_state(DataFolder(data))
    try:
        now = time.time()
        keys = [identity.public_key for identity in identities] + [secrets.token_bytes(32) for _ in range(more)]
        with state.registry.transaction() as database:
            for number, key in enumerate(keys):
                name = f"caller-{number}"
                insert_caller(database, key, Grants(name), space=name, added_by="line", now=now)
    finally:
        state.close()


class Server:
    """A daemon that is measured."""

    def __init__(self, root: Path, form: Form, url: str = "") -> None:
        """`url`: of the database of its store; "" for none."""
        self.store = Postgres(StoreConfig(url=url)) if url else None
        (root / "server-home").mkdir()
        said = CONFIG.format(most_open=form.most_open) + (f'[store]\nurl = "{url}"\n' if url else "")
        (root / "server-home" / "daemon.toml").write_text(said)
        self.daemon = Daemon(root, has_model=True)
        self.static = parse_daemon_key(self.daemon.run("key").strip())
        self.callers = [Identity.generate() for _ in range(form.used)]
        enroll(self.daemon.data, self.callers, form.registered - form.used)
        started = time.perf_counter()
        self.daemon.start()
        self.start_s = time.perf_counter() - started
        assert self.daemon._process is not None
        self.process = psutil.Process(self.daemon._process.pid)
        times = self.process.cpu_times()
        self.start_cpu_s = times.user + times.system

    @property
    def mib(self) -> float:
        """Resident."""
        return float(self.process.memory_info().rss) / 2**20

    async def machine(self, number: int) -> Machine:
        """A caller's, attached."""
        machine = Machine(await connect(f"ws://127.0.0.1:{self.daemon.port}/", self.callers[number], self.static))
        await machine.attach()
        return machine


async def searched(client: Client) -> float:
    """The 95th percentile of a round of searches, milliseconds."""
    times = []
    for number in range(SEARCHES):
        started = time.perf_counter()
        result = await client.call_tool("memory_search", {"query": f"parcel {number}"})
        assert not result.is_error, result
        times.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(PAUSE_S)
    return statistics.quantiles(times, n=20)[-1]


async def compared(alone: Server, among: Server) -> tuple[float, float]:
    """Searches in the only space of a daemon and in one of many, by turns, since the machine may be busy with other things."""
    async with (
        await alone.machine(0) as one,
        await among.machine(0) as other,
        one.mcp() as first,
        other.mcp() as second,
    ):
        for machine in (one, other):
            await machine.put("memory/parcel.md", PARCEL)
        await searched(first)
        await searched(second)
        rounds = [(await searched(first), await searched(second)) for _ in range(ROUNDS)]
    return statistics.median(one for one, _ in rounds), statistics.median(other for _, other in rounds)


async def visit(server: Server, number: int) -> float:
    """A caller comes, stores, asks and leaves; milliseconds until its space was open."""
    started = time.perf_counter()
    async with await server.machine(number) as machine:
        opened = (time.perf_counter() - started) * 1e3
        await machine.put("memory/parcel.md", f"# Parcels\n\nThe parcel API of {number} listens on port 8010.\n")
        await machine.request("lookup", {"project": "proj", "tool": "memory_search", "arguments": {"query": "parcel"}})
    return opened


async def loop_ms(server: Server, *, changes: bool) -> float:
    """How long the thread of the event loop computes in half a second, median: while nothing happens, or behind a change of the registry.

    Time on a processor, as the kernel counts it for the thread: what others on the machine do does not count.
    """
    pid = server.process.pid
    schedstat = Path(f"/proc/{pid}/task/{pid}/schedstat")
    state = open_state(DataFolder(server.daemon.data), store=server.store)
    computed = []
    try:
        for number in range(CHANGES):
            before = int(schedstat.read_text().split()[0])
            if changes:
                scope: Scope = "read" if number % 2 else "write"
                await asyncio.to_thread(
                    state.registry.grant,
                    "caller-1",
                    lambda caller: (replace(caller.grants, scope=scope), None),  # noqa: B023 - called at once
                )
            await asyncio.sleep(WATCHED_S)
            computed.append((int(schedstat.read_text().split()[0]) - before) / 1e6)
    finally:
        state.close()
    return statistics.median(computed)


async def carry(server: Server, reference: Server, form: Form) -> Carried:
    """Use the spaces one after the other, and look at what that costs. `reference`: a daemon with one space."""
    empty = server.mib
    peak, opening = 0.0, []
    for number in range(form.used):
        opening.append(await visit(server, number))
        if number % 10 == 0:
            peak = max(peak, server.mib)
    peak = max(peak, server.mib)
    alone, among = await compared(reference, server)
    async with await server.machine(0):
        quiet, change = await loop_ms(server, changes=False), await loop_ms(server, changes=True)
    return Carried(
        server.start_s,
        server.start_cpu_s,
        empty,
        max(peak, server.mib),
        statistics.median(opening),
        alone,
        among,
        change,
        quiet,
        server.process.num_fds(),
        server.process.num_threads(),
    )


def measure(form: Form) -> bool:
    """Print what a form costs; whether it keeps to its figures."""
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder, ExitStack() as stack:
        servers = []
        postgres = stack.enter_context(postgres_server(is_forced=True)) if form.has_store else None
        for name, its in (("many", form), ("one", Form(1, 1, form.most_open, most_mib=0))):
            (Path(folder) / name).mkdir()
            servers.append(Server(Path(folder) / name, its, postgres.database() if postgres is not None else ""))
            stack.callback(servers[-1].daemon.stop)
        found = asyncio.run(carry(*servers, form))
        logs = servers[0].store
        held = None if postgres is None or logs is None else postgres.sql(HELD, url=logs.settings.url)[0][0]
    where = ", their logs in PostgreSQL" if form.has_store else ""
    print(f"{form.registered:,} spaces registered{where}, {form.used:,} used in turn, at most {form.most_open} open")
    ratio = found.among_p95_ms / found.alone_p95_ms
    rows = (
        ("start to listening", found.start_s, "s", form.most_start_s),
        ("  of it on a processor", found.start_cpu_s, "s", None),
        ("resident, no space open", found.empty_mib, "MiB", None),
        ("resident, most", found.peak_mib, "MiB", form.most_mib),
        ("first visit, until its space is open", found.opening_ms, "ms", None),
        ("a search, p95, a daemon with one space", found.alone_p95_ms, "ms", None),
        ("a search, p95, this one, by turns", found.among_p95_ms, "ms", None),
        ("  ratio", ratio, "", form.most_ratio),
        ("the loop in half a second, nothing changes", found.quiet_ms, "ms", None),
        ("  behind a change of the registry, more", found.change_ms - found.quiet_ms, "ms", form.most_change_ms),
        ("descriptors, threads", found.descriptors, f"and {found.threads}", None),
        *(() if held is None else (("open in the end, by their leases", held, "", None),)),
    )
    is_kept = True
    for name, value, unit, most in rows:
        said = "" if most is None else f"must be <= {most:g}" + ("" if value <= most else "  NOT KEPT")
        is_kept = is_kept and (most is None or value <= most)
        print(f"  {name:42} {value:9.1f} {unit:6} {said}".rstrip())
    return is_kept


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table; 1 if a figure is not kept."""
    forked.IS_SUPPORTED = False  # type: ignore[misc] # a process that was forked weighs what its parent has loaded, and starts at once
    parser = argparse.ArgumentParser(prog="bench.capacity")
    parser.add_argument("--registered", type=int, help="spaces in the registry")
    parser.add_argument("--used", type=int, help="of these, how many somebody comes to")
    parser.add_argument("--open", type=int, help="max_open_spaces")
    parser.add_argument("--store", action="store_true", help="their logs are in a PostgreSQL")
    said = parser.parse_args(arguments)
    forms = (ON_A_NODE,) if said.store else FORMS
    if said.registered:
        used = min(said.registered, said.used or said.registered)
        most_mib = ON_A_NODE.most_mib if said.store else 700
        forms = (Form(said.registered, used, said.open or 256, most_mib, has_store=said.store),)
    kept = [measure(form) for form in forms]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
