"""One drawn schedule of faults around two or three nodes in this process, over a real PostgreSQL: a tenth of a second each.

A node here is what of a daemon writes and reads the log: the lease, the opening, the outbox, the writer and what it derives, the registry.
All run in one thread, so that a fault falls on a moment that is drawn, not on what a clock makes of it: before or behind each statement of
the engine, each note of how far a copy is, each part of a snapshot, a commit here. There a node ends as by kill -9, an answer is lost, a
statement stays on its way and comes late, connections are cut, the disk is full, or another node takes the space and writes on, before the
first one goes on as if nothing had been. In between a file is lost, put back as it was some writes ago (as a power cut may leave it, where
what is committed is not forced to the disk), or a snapshot is taken.

What is not here: processes, sockets of machines, sessions, heartbeats, frozen kernels, crashes of PostgreSQL. `log_schedule` has those.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.daemon.logged import held
from tests.support.daemon.postgres import Postgres

from confide_cluster.daemon.log import log_snapshot, opening, replication_position
from confide_cluster.daemon.log.log_tables import Log
from confide_cluster.daemon.log.postgres_engine import Far, PendingStatement, PostgresEngine
from confide_cluster.daemon.log.replicated_tables import REGISTRY_DERIVED, rows_of, truths
from confide_cluster.daemon.spaces.leases import SpaceLease
from confide_cluster.daemon.store import Postgres as Logs
from confide_cluster.settings import StoreConfig
from confide_crypto.errors import ConfideError
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites, JoinedInvite
from confide_daemon.config import ChunkSettings
from confide_daemon.documents.writer import RepeatableChange, Writer
from confide_daemon.errors import EngineError, StorageError
from confide_daemon.retrieval.indexing.indexer import Derivation
from confide_daemon.spaces import file
from confide_daemon.store.database import Damage, connect
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import PieceTable
from confide_daemon.store.tables.vector_scan import VectorScan

LINES = 8
FAULTS = 6
TRIES = 60
SPACE = "5a" * 16
KEY = bytes(range(32))
LEASE_S = 3.0
WATCHED: tuple[tuple[Any, str], ...] = (
    (PostgresEngine, "send"),
    (PendingStatement, "answer"),
    (Log, "take"),
    (Log, "bring_part"),
    (Log, "settle"),
    (replication_position, "write"),
    (replication_position, "keep"),
    (PieceTable, "replace"),
)
_CUT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE application_name = 'confided' AND datname = current_database()"""
OF_ENGINE = ("send", "answer", "take", "bring_part", "settle", "COMMIT")


class Killed(BaseException):
    """The node ends here. Not an Exception: what handles those is not reached by a kill either."""


class Node:
    """What of a daemon is about the log, over a folder of its own."""

    def __init__(self, root: Path, url: str, name: str) -> None:
        self.name = name
        self.path = root / f"{name}.db"
        self.registry_path = root / f"{name}-registry.db"
        self._url = url
        self.store: Store | None = None
        self.registry: Registry | None = None
        self.number = 0
        self._is_stale = False
        self._lease: SpaceLease | None = None
        self._derivation = Derivation(ChunkSettings())
        self.begin()

    def begin(self) -> None:
        """A process of its own from now on, which holds nothing."""
        self.engine = PostgresEngine(self._url)
        self.engine.ready()
        # Alive until somebody says otherwise: who is taken for dead is drawn, and no matter of clocks.
        statement = (
            "INSERT INTO node (address, version, seen_at) VALUES ('', '', now() + interval '1 day') RETURNING id"
        )
        _, rows = self.engine.run(statement)
        self.number = rows[0][0]

    @property
    def log(self) -> Log:
        return Log(self.engine, SPACE, lambda: self.number, LEASE_S)

    def writer(self) -> Writer:
        """Of the space, which is opened where it is not. Raises ConfideError."""
        if self._is_stale:
            self.leave()
        if self.store is None:
            log = self.log
            self._lease = SpaceLease(log, log.take(), self._stale, list)
            store, _, behind = file._open_and_mark(self.path, KEY, VectorScan(), Damage(), self._lease)
            self.store = store
            self._derivation.follow_all(store, behind)
        return Writer(self.store, self._derivation.judge)

    def register(self) -> Registry:
        """Its registry, followed. Raises ConfideError."""
        if self.registry is None:
            registry = Registry.open(self.registry_path, KEY, store=Logs(StoreConfig(url=self._url)))
            try:
                registry.join_store()
            except BaseException:
                registry.close()
                raise
            self.registry = registry
        self.registry.follow()
        return self.registry

    def leave(self) -> None:
        """Let others have the space, in good order as far as that can be."""
        self._is_stale = False
        store, self.store = self.store, None
        if store is not None:
            outbox: Any = store.outbox
            with suppress(ConfideError):
                outbox.flush()
            with suppress(ConfideError):
                store.close()
            with suppress(ConfideError):
                self.log.give_back(outbox.lease)

    def die(self) -> None:
        """What a killed process leaves: its files; begin again as another one."""
        self._is_stale = False
        for one in (self.store, self.registry):
            if one is not None:
                one.close()
        self.store = self.registry = None
        self.engine.close()
        before = self.number
        self.begin()
        self.engine.run("DELETE FROM node WHERE id = %(id)s", {"id": before})  # its folder is served anew

    def end(self) -> None:
        self.leave()
        if self.registry is not None:
            self.registry.close()
            self.registry = None
        self.engine.close()

    def _stale(self) -> None:
        self._is_stale = True


class Drawn:
    """Drawn by a seed; `run` says what is wrong, `trace` what was done."""

    def __init__(self, root: Path, postgres: Postgres, url: str, seed: int) -> None:
        """`url`: of a database that this may empty."""
        self._draw = random.Random(seed)
        self._postgres = postgres
        self._url = url
        self._root = root
        self.trace: list[str] = []
        self.on_kill: Callable[[], None] = lambda: None
        self._armed = ""
        self._moments = 0
        self._acting: list[Node] = []
        self._late: list[tuple[Any, ...]] = []
        self._acknowledged: set[int] = set()
        self._enrolled: dict[str, bool] = {}  # by name: whether it is in still
        self._copies: dict[str, Path] = {}
        self._nodes: list[Node] = []

    def run(self) -> list[str]:
        engine = PostgresEngine(self._url)
        engine.ready()
        engine.close()
        self._postgres.sql("DELETE FROM entry; DELETE FROM part; DELETE FROM log; DELETE FROM node", url=self._url)
        self._nodes = [Node(self._root, self._url, f"n{one}") for one in range(self._draw.choice((2, 2, 3)))]
        try:
            with self._watching():
                faults = sorted(self._draw.sample(range(LINES + 4), FAULTS))
                for number in range(LINES):
                    self._fault_at(number, faults)
                    self._until(lambda node, n=number: self._append(node, n))
                self._fault_at(LINES, faults)
                self._registry(faults)
            self._armed = ""
            self._deliver()
            for node in self._nodes:
                node.leave()
                node.die()  # with connections that nobody has cut
            return self._wrong()
        finally:
            for node in self._nodes:
                node.end()

    # What machines do

    def _until(self, work: Callable[[Node], bool]) -> None:
        """As a machine that asks one node after the other until it is answered."""
        for _ in range(TRIES):
            node = self._draw.choice(self._nodes)
            if self._asked(node, work):
                return
            if self._draw.random() < 0.3:
                self._declare_dead(node)  # the others hold it, or it is broken: somebody lets go in the end
            if self._draw.random() < 0.2:
                self._deliver()
        raise AssertionError("nobody answers")

    def _asked(self, node: Node, work: Callable[[Node], bool]) -> bool:
        self._acting.append(node)
        try:
            return work(node)
        except ConfideError as error:
            self.trace.append(f"{node.name}: {error}")
            return False
        except Killed:
            self.trace.append(f"{node.name}: killed")
            self.on_kill()
            node.die()
            return False
        finally:
            self._acting.pop()

    def _append(self, node: Node, number: int) -> bool:
        """One line more, which is acknowledged when this ends."""
        text = f"line {number}.\n"
        operation = RepeatableChange(f"{number:032x}", "asked")
        node.writer().append("p", "memory/log.md", text, heading=None, author="a", operation=operation)
        self._acknowledged.add(number)
        self.trace.append(f"{node.name}: line {number} acknowledged")
        return True

    def _registry(self, faults: list[int]) -> None:
        """Machines that are enrolled and revoked, and one invite with which two come."""
        names = [f"m{one}" for one in range(3)]
        for at, name in enumerate(names):
            self._fault_at(LINES + 1 + at, faults)
            self._until(lambda node, name=name: self._enroll(node, name))
        self._until(lambda node: self._revoke(node, names[0]))
        token = self._draw.randbytes(16)
        self._until(lambda node: self._invite(node, token))
        machines = [self._draw.randbytes(32), self._draw.randbytes(32)]
        if self._draw.random() < 0.5:
            self._arm()
        joined: dict[bytes, bool] = {}
        for key in machines:
            self._until(lambda node, key=key: self._join(node, token, key, joined))
        if sorted(joined.values()) != [False, True]:
            self._enrolled["one invite, two machines"] = True  # which nobody finds

    def _enroll(self, node: Node, name: str) -> bool:
        registry = node.register()
        if registry.caller_named(name) is None:
            registry.add_caller(name.encode().ljust(32), Grants(name), space="home", added_by="line")
        self._enrolled[name] = True
        return True

    def _revoke(self, node: Node, name: str) -> bool:
        node.register().revoke(name)
        self._enrolled[name] = False
        return True

    def _invite(self, node: Node, token: bytes) -> bool:
        invites = Invites(node.register())
        with suppress(StorageError):
            invites.add(token, bytes(32), Grants("guest"), space="home", ttl_s=600.0)
            return True
        return False

    def _join(self, node: Node, token: bytes, key: bytes, joined: dict[bytes, bool]) -> bool:
        registry = node.register()
        known = registry.caller(key)
        outcome = known is not None or isinstance(Invites(registry).join(token, key), JoinedInvite)
        joined[key] = outcome
        return True

    # Faults

    def _fault_at(self, number: int, faults: list[int]) -> None:
        if number not in faults:
            return
        kind = self._draw.choice(("arm",) * 6 + ("lose", "put back", "copy", "snapshot", "leave", "dead"))
        node = self._draw.choice(self._nodes)
        match kind:
            case "arm":
                self._arm()
            case "lose":
                self._asked(node, _kill)
                log_snapshot.remove(node.path)
                if self._draw.random() < 0.3:
                    log_snapshot.remove(node.registry_path)
            case "copy":
                self._copy(node)
            case "put back":
                self._put_back(node)
            case "snapshot":
                if self._draw.random() < 0.6:
                    self._arm()
                self._asked(node, _take_snapshot)
            case "leave":
                node.leave()
            case "dead":
                self._declare_dead(node)
        self.trace.append(f"{kind} {node.name}")
        if self._draw.random() < 0.5:
            self._copy(self._draw.choice(self._nodes))

    def _arm(self) -> None:
        self._armed = self._draw.choice(("kill", "kill", "unheard", "late", "cut", "full", "taken", "taken"))
        self._moments = self._draw.randrange(1, 16)

    def _declare_dead(self, but: Node) -> None:
        """One that is alive is taken for dead, as where its heartbeat does not get through."""
        for node in self._nodes:
            if node is not but:
                self._postgres.sql("DELETE FROM node WHERE id = %s", node.number, url=self._url)

    def _copy(self, node: Node) -> None:
        """The file as it may be found behind a power cut, from now on: whole, and as old as this."""
        if node.path.exists():
            place = self._copies.setdefault(node.name, self._root / f"{node.name}-copy")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for end in ("", "-wal"):
                if (file := node.path.with_name(node.path.name + end)).exists():
                    shutil.copy(file, place)

    def _put_back(self, node: Node) -> None:
        place = self._copies.pop(node.name, None)
        self._asked(node, _kill)
        if place is not None:
            log_snapshot.remove(node.path)
            for file in place.iterdir():
                shutil.copy(file, node.path.parent)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Every call that counts passes `_moment`, before it and behind it."""
        with mock.patch.multiple(Far, execute=self._watched_commits(Far.execute)):
            patches = [
                mock.patch.object(owner, name, self._watched(getattr(owner, name), name)) for owner, name in WATCHED
            ]
            for patch in patches:
                patch.start()
            try:
                yield
            finally:
                for patch in patches:
                    patch.stop()

    def _watched(self, work: Callable[..., Any], name: str) -> Callable[..., Any]:
        def watched(*values: Any, **options: Any) -> Any:
            self._moment(name, values)
            found = work(*values, **options)
            self._moment(f"behind {name}", (*values, found))
            return found

        return watched

    def _watched_commits(self, work: Callable[..., Any]) -> Callable[..., Any]:
        whole = self._watched(work, "COMMIT")

        def execute(far: Far, query: Any, *values: Any, **options: Any) -> Any:
            return (whole if query == "COMMIT" else work)(far, query, *values, **options)

        return execute

    def _moment(self, name: str, values: tuple[Any, ...]) -> None:
        if not self._armed or not self._acting:
            return
        self._moments -= 1
        if self._moments > 0 or not _fits(self._armed, name):
            return
        kind, node = self._armed, self._acting[-1]
        self._armed = ""
        self.trace.append(f"{node.name}: {kind}, {name}")
        match kind:
            case "kill":
                _lose(values)
                raise Killed
            case "unheard":
                _lose(values)
                raise EngineError("it is lost")
            case "late":
                self._late.append(values[1:])
                raise EngineError("it is on its way")
            case "cut":
                self._postgres.sql(_CUT, url=self._url)
            case "full" if name == "replace":
                raise StorageError("the disk is full")
            case "full" if node.store is not None:
                # Its next commit fails here, whatever is in the log by then.
                node.store.connection.set_commit_hook(_refuse(node.store.connection))
            case "taken":
                self._take_over(node)

    def _take_over(self, node: Node) -> None:
        """Another node has the space and writes on, in the middle of what this one does."""
        other = self._draw.choice([one for one in self._nodes if one is not node])
        self._postgres.sql("DELETE FROM node WHERE id = %s", node.number, url=self._url)
        number = LINES + len(self._acknowledged)
        if self._draw.random() < 0.3:
            self._arm()
        if self._asked(other, lambda it: self._append(it, number)) and self._draw.random() < 0.5:
            other.leave()

    def _deliver(self) -> None:
        """What was on its way comes to the engine."""
        late, self._late = self._late, []
        if late:
            engine = PostgresEngine(self._url)
            for statement, values in late:
                engine.send(statement, values).answer()
            engine.close()

    # What came of it

    def _wrong(self) -> list[str]:
        self._declare_dead(self._nodes[0])
        for node in self._nodes[1:]:
            node.leave()
        self._until(lambda node: self._append(node, 1000))
        for node in self._nodes:
            node.leave()
        wrong: list[str] = []
        text = ""
        found = []
        places = [node.path for node in self._nodes] + [self._root / "new.db"]
        log = self._nodes[0].log
        for place in places:
            opening.bring(log, log.take(), place, KEY, now=time.time())
            found.append(held(place, KEY))
        with closing(Store.open(places[-1], KEY, writer=False, now=0.0)) as store:
            row = store.documents.find("p", "memory/log.md")
            revision = store.documents.revision(row.id, row.revision) if row is not None else None
            text = revision.text or "" if revision is not None else ""
        lines = text.split("\n")
        wrong += [f"line {one} is lost" for one in sorted(self._acknowledged) if f"line {one}." not in lines]
        wrong += [f"{line} is twice there" for line in sorted(set(lines)) if line and lines.count(line) > 1]
        wrong += [f"{one} differs" for other in found[1:] for one in other if found[0][one] != other[one]]
        return wrong + self._wrong_registries()

    def _wrong_registries(self) -> list[str]:
        for node in self._nodes:
            self._acting.append(node)
            node.register()
        registries = []
        for node in self._nodes:
            node.register()
            with closing(connect(node.registry_path, KEY, writer=False)) as one:
                registries.append(
                    {table: list(map(repr, rows_of(one, table))) for table in truths(one, REGISTRY_DERIVED)}
                )
        names = {caller.alias for caller in self._nodes[0].register().callers()}
        wrong = [
            f"{name} is {'not ' if is_in else ''}in"
            for name, is_in in self._enrolled.items()
            if (name in names) != is_in
        ]
        wrong += [] if "guest" in names else ["the invite let nobody in"]
        return wrong + [
            f"{table} of the registry differs"
            for other in registries[1:]
            for table in other
            if registries[0][table] != other[table]
        ]


def _fits(kind: str, name: str) -> bool:
    """Whether a fault can happen at that moment; else it waits for the next one."""
    match kind:
        case "unheard":
            return name.removeprefix("behind ") in OF_ENGINE
        case "late":
            return name == "send"
        case "full":
            return "COMMIT" not in name  # of the registry
        case "taken":
            return "COMMIT" not in name and "take" not in name
    return True


def _kill(_node: Node) -> bool:
    raise Killed


def _take_snapshot(node: Node) -> bool:
    outbox = node.writer().store.outbox
    assert outbox is not None
    outbox.take_snapshot()
    return True


def _lose(values: tuple[Any, ...]) -> None:
    """The connection with the answer is gone."""
    for one in values:
        if isinstance(one, PendingStatement):
            one.drop()
        if isinstance(one, Far):
            one.close()


def _refuse(connection: Any) -> Callable[[], bool]:
    def refuse() -> bool:
        connection.set_commit_hook(None)
        return True

    return refuse


def folder(seed: int) -> Path:
    """For the files of one, in memory where there is room: nothing here cuts the power."""
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")
    place = root / f"confide-drawn-{os.getpid()}-{seed}"
    place.mkdir()
    return place
