"""What so many spaces need, on paper: arithmetic over what `bench.scale` has weighed and what bench/README.md and docs/operating.md say.

It knows no server. README.md has its answers, and where each figure comes from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

DAY_S = 86_400.0
MOST_ENTRIES = 20_000  # of the registry, between two of its snapshots; before, as many as are a quarter of it (store/log/shared.py)
SNAPSHOT_SHARE, LEAST_BYTES = 4, 2**20
CHANGE_BYTES = 552  # of an entry of it
FEW = 8  # that are applied while its row is held
SIZES = (10_000, 100_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Use:
    """How a space is used, a person's or a small team's. It is a guess: who knows better, puts in their own.

    Attributes:
        active: share of spaces that are used on a day.
        stores, searches: of such a space on that day; each is an entry, since use counts of what is found are kept.
        pieces: that it gets on that day, files and transcripts included.
        peak: the busiest hour against the day's mean.
        open_h: hours for which it is open on that day.
        file_mib: of its database; 6.0 MB are six months of daily logs.
        snapshots: of it on that day: when it is closed behind 200 entries.
        machines: that it has.
    """

    active: float = 0.3
    stores: int = 100
    searches: int = 100
    pieces: int = 150
    peak: float = 5.0
    open_h: float = 2.0
    file_mib: float = 6.0
    snapshots: float = 1.0
    machines: int = 2

    @property
    def entries(self) -> int:
        return self.stores + self.searches


@dataclass(frozen=True, slots=True)
class Node:
    """What a daemon needs, by bench/README.md and docs/operating.md.

    Attributes:
        base_mib, open_mib, session_mib: resident with no space open, for each that is open, and for each machine that is connected.
        store_s, search_s: of a core: of a note with its look for duplicates, and of a search; of both the model's part.
        pieces_a_core_s: indexed in a second by a core.
        most_open: spaces that are open at once.
        cores: of which half are busy in the worst hour.
    """

    base_mib: float = 126.0
    open_mib: float = 5.0
    session_mib: float = 0.07
    store_s: float = 0.0197
    search_s: float = 0.0103
    store_model_s: float = 0.0093
    search_model_s: float = 0.005
    pieces_a_core_s: float = 137.0
    most_open: int = 1000
    cores: int = 4


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL that one can have.

    Attributes:
        log_mb_s: of its write-ahead log, on its own disk and a standby's.
        reserved: connections for its own and its operator's.
    """

    cores: int = 16
    log_mb_s: int = 100
    connections: int = 500
    reserved: int = 10
    disk_gb: int = 4000


USE, NODE, SERVER = Use(), Node(), Server()


@dataclass(frozen=True, slots=True)
class Measured:
    """What `bench.scale` has weighed; seconds are of the server's processors, `log` is bytes of its write-ahead log.

    Attributes:
        write_s, write_log: of an entry, openings and closings of spaces included.
        snapshot_s, snapshot_log, snapshot_disk: of a MiB of a file.
        entry_disk: bytes of an entry with its index.
        beat_s, look_s: of a heartbeat that asks for a thousand spaces, and of a look at the registry's end.
        status_s: by the clock, of `confided store`, for each space.
        connection_mib: of memory.
        deadline_s: of a statement.
        connections: of a node.
        heartbeats_s: between two of a node.
        looks: of a node in a second.
        change_s: by the clock, of a change of the registry by a node that has nothing to apply.
        apply_s: of a node's processor, of a change that another one has made.
        caller_bytes: of the registry, for a machine with its space.
    """

    write_s: float
    write_log: float
    snapshot_s: float
    snapshot_log: float
    snapshot_disk: float
    entry_disk: float
    beat_s: float
    look_s: float
    status_s: float
    connection_mib: float
    deadline_s: float
    connections: int
    heartbeats_s: float
    looks: float
    change_s: float
    apply_s: float
    caller_bytes: float


@dataclass(frozen=True, slots=True)
class Need:
    """What so many spaces need in the worst hour.

    Attributes:
        used: spaces on a day; `open` of them at once.
        nodes: by their open spaces or their cores, whatever is more, and two at least.
        node_cores, embedding_cores: that are busy on all nodes, and how many of these with the model.
        node_gib: memory of all nodes.
        entries: a second.
        server_cores: that are busy.
        log_mb: of the write-ahead log in a second, and `log_gb` in a day.
        disk_gb: of tables and indexes.
        connections: of all nodes.
        status_s: that `confided store` takes.
        registry: share of the changes that its registry can take, of which each node makes one a second.
    """

    used: float
    open: float
    nodes: int
    node_cores: float
    embedding_cores: float
    node_gib: float
    entries: float
    server_cores: float
    log_mb: float
    log_gb: float
    disk_gb: float
    connections: int
    status_s: float
    registry: float


def need(spaces: int, measured: Measured, use: Use = USE, node: Node = NODE) -> Need:
    """What `spaces` spaces need, if they are used so."""
    used = spaces * use.active
    is_open = used * use.peak * use.open_h / 24
    worst = used * use.peak / DAY_S  # of what a space has once on a day, in a second of the worst hour
    model_s = use.stores * node.store_model_s + use.searches * node.search_model_s + use.pieces / node.pieces_a_core_s
    rest_s = use.stores * (node.store_s - node.store_model_s) + use.searches * (node.search_s - node.search_model_s)
    node_cores = worst * (model_s + rest_s)
    nodes = max(2, _up(is_open / node.most_open), _up(node_cores / (node.cores / 2)))
    node_cores += (
        nodes * nodes * measured.apply_s
    )  # each applies the audit log's batch of every other one, one a second
    registry_mib = spaces * use.machines * measured.caller_bytes / 2**20
    enough = max(LEAST_BYTES, registry_mib * 2**20 / SNAPSHOT_SHARE) / CHANGE_BYTES
    registry_snapshots = nodes / min(MOST_ENTRIES, enough)  # a second
    snapshot_mib = use.snapshots * use.file_mib
    log_a_day = use.entries * measured.write_log + snapshot_mib * measured.snapshot_log
    server_s = use.entries * measured.write_s + snapshot_mib * measured.snapshot_s
    idle = nodes * (measured.looks * measured.look_s + measured.beat_s / measured.heartbeats_s)
    return Need(
        used=used,
        open=is_open,
        nodes=nodes,
        node_cores=node_cores,
        embedding_cores=worst * model_s,
        node_gib=(nodes * node.base_mib + is_open * (node.open_mib + node.session_mib)) / 1024,
        entries=worst * use.entries,
        server_cores=worst * server_s + idle + registry_snapshots * registry_mib * measured.snapshot_s,
        log_mb=worst * log_a_day / 1e6 + registry_snapshots * registry_mib * measured.snapshot_log / 1e6,
        log_gb=used * log_a_day / 1e9 + DAY_S * registry_snapshots * registry_mib * measured.snapshot_log / 1e9,
        disk_gb=spaces * (use.file_mib * measured.snapshot_disk + use.entries * measured.entry_disk) / 1e9,
        connections=nodes * measured.connections,
        status_s=spaces * measured.status_s,
        registry=nodes / changes_a_s(measured),
    )


def changes_a_s(measured: Measured) -> float:
    """Changes that the registry can take in a second, of all nodes.

    Who makes one has the row of the log for as long as a change takes, and while it applies what came since it looked last, half a pause
    ago in the mean: so much that `rate * (change_s + rate * pause / 2 * apply_s)` is a whole second. Of more than a few it applies all but
    these before it has the row.
    """
    waits = measured.apply_s / measured.looks / 2
    if not waits:
        return 1 / measured.change_s
    rate = (math.sqrt(measured.change_s**2 + 4 * waits) - measured.change_s) / (2 * waits)
    return max(rate, 1 / (measured.change_s + FEW * measured.apply_s))


def walls(measured: Measured, server: Server = SERVER) -> dict[str, int]:
    """How many spaces such a server can have, by what is full first."""
    limits: dict[str, Callable[[Need], bool]] = {
        f"processors of the server: {server.cores}, half of them busy": lambda it: it.server_cores > server.cores / 2,
        f"its write-ahead log: {server.log_mb_s} MB a second": lambda it: it.log_mb > server.log_mb_s,
        f"its connections: {server.connections}": lambda it: it.connections > server.connections - server.reserved,
        f"its disk: {server.disk_gb:,} GB": lambda it: it.disk_gb > server.disk_gb,
        f"its registry: {changes_a_s(measured):.0f} changes a second": lambda it: it.registry > 1,
        f"confided store: {measured.deadline_s:.0f} s for a statement": lambda it: it.status_s > measured.deadline_s,
    }
    found = {name: _most(measured, is_over) for name, is_over in limits.items()}
    return dict(sorted(found.items(), key=lambda each: each[1]))


def lines(measured: Measured) -> list[str]:
    """The model for `SIZES`, as lines for people."""
    needs = [need(size, measured) for size in SIZES]
    rows: dict[str, Callable[[Need], str]] = {
        "used on a day / open at once": lambda it: f"{it.used:,.0f} / {it.open:,.0f}",
        "nodes, with 4 cores each": lambda it: f"{it.nodes:,}",
        "cores that are busy on all nodes / of these with the model": lambda it: (
            f"{it.node_cores:.1f} / {it.embedding_cores:.1f}"
        ),
        "memory of all nodes, GiB": lambda it: f"{it.node_gib:,.0f}",
        "entries a second": lambda it: f"{it.entries:,.0f}",
        "cores that are busy on the server": lambda it: f"{it.server_cores:.2f}",
        "its write-ahead log, MB a second / GB a day": lambda it: f"{it.log_mb:,.1f} / {it.log_gb:,.0f}",
        "its disk, GB": lambda it: f"{it.disk_gb:,.0f}",
        "its connections": lambda it: f"{it.connections:,}",
        "changes that the registry can take, used": lambda it: f"{it.registry:.0%}",
        "`confided store`, s": lambda it: f"{it.status_s:.1f}",
    }
    head = f"| | {' | '.join(f'{size:,}' for size in SIZES)} |"
    return [head, *(f"| {name} | {' | '.join(map(row, needs))} |" for name, row in rows.items())]


def _up(number: float) -> int:
    return int(-(-number // 1))


def _most(measured: Measured, is_over: Callable[[Need], bool]) -> int:
    """The largest number of spaces at which it is not over, to one in a hundred."""
    spaces = 1000.0
    while not is_over(need(int(spaces), measured)) and spaces < 1e10:
        spaces *= 1.01
    return int(spaces / 1.01)
