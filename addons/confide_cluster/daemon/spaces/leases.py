"""Which spaces this daemon holds of those whose logs are in PostgreSQL, and that others see that it is alive.

A daemon is one node: a row that its heartbeat keeps fresh by the engine's clock. A lease is a number in the log of a space; whoever takes
it counts it up, and what is written under an older one is refused, so no clock decides who may write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_cluster.daemon.log import log_snapshot, opening
from confide_cluster.daemon.log.log_outbox import LogOutbox
from confide_cluster.daemon.log.log_tables import Log, LogStatus
from confide_cluster.daemon.log.opening import OpenedCopy
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_cluster.settings import StoreConfig
from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon import __version__, figures
from confide_daemon.datadir.key_state import Custody
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import EngineError, StorageError
from confide_daemon.store.space_store import Store

log = logging.getLogger(__name__)

NOBODY: Final = 0
"""No node has this number."""
BEATS: Final = 3
"""In the time after which a node is taken for dead."""


TAKEN_OVER_S: Final = 60.0
"""A space is taken from a node that refuses connections, and may be alive, no more often than this."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Another node that has a space, and is alive as far as anybody knows.

    Attributes:
        address: by which it is reached; "" where it takes no sessions of other nodes.
        lease: the number of its lease.
    """

    node: int
    address: str
    lease: int


@dataclass
class SpaceLease:
    """The lease of one space, from its taking until it is given back.

    Attributes:
        on_stale: called in the space's writer's thread where the log has what the copy has not.
        warnings: what whoever uses the space should know of its log.
    """

    log: Log
    standing: LogStatus
    on_stale: Callable[[], None]
    warnings: Callable[[], list[str]]
    newest: int | None = None  # its number when the space was closed, where that was counted up meanwhile

    @property
    def custody(self) -> Custody | None:
        """Who keeps the key of its database, as the log says. Raises StorageError: a newer version has written it."""
        said = self.standing.custody
        try:
            return None if said is None else Custody.of_json(said)
        except ValueError:
            raise StorageError(
                "cannot tell who keeps the key of a space: its log was written by a newer version of confide",
                hint="upgrade confide on this machine",
            ) from None

    def bring(self, path: Path, key: bytes) -> OpenedCopy:
        """Have the copy as the log is; nobody has it open. Raises as `store.log.opening.bring`."""
        return opening.bring(self.log, self.standing, path, key, now=time.time())

    def follow(self, path: Path, key: bytes) -> OpenedCopy:
        """The same without having the lease; nothing is changed in the engine."""
        return opening.follow(self.log, self.standing, path, key, now=time.time())

    def join(self, store: Store, opened: OpenedCopy) -> None:
        """What the store writes from now on goes through the log. Raises StorageError."""
        outbox = LogOutbox(
            self.log,
            self.standing,
            store.connection,
            path=store.path,
            key=store.key,
            tail=opened.tail,
            on_stale=self.on_stale,
        )
        store.outbox = outbox
        if 0 < self.standing.schema < outbox.schema:
            # Entries before a migration cannot be applied behind it: what follows begins with a snapshot that is migrated.
            outbox.take_snapshot()

    def discard(self, path: Path) -> None:
        """Have a damaged copy fetched anew by whoever opens it next."""
        log_snapshot.discarded(path).touch(mode=0o600)

    def keep_custody(self, custody: Custody) -> None:
        """Have the log know who keeps the key, where it does not. Raises EngineError."""
        if self.standing.custody is None:
            self.log.keep_custody(self.standing.lease, custody.to_json())


class SpaceLeases:
    """One for a daemon. On the event loop, but for what says otherwise."""

    def __init__(self, config: StoreConfig, folder: DataFolder, engine: PostgresEngine, *, address: str = "") -> None:
        """`address`: by which other nodes reach this one; "" where they cannot."""
        self._address = address
        self._taken_over: dict[str, float] = {}
        self._config = config
        self._folder = folder
        self._engine = engine
        self._node = NOBODY
        self._beginning = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._held: dict[str, SpaceLease] = {}
        self._confirmed_at = float("-inf")
        self._confirming = asyncio.Lock()
        self.on_lost: Callable[[str, bool], None] = lambda _space_id, _is_elsewhere: None
        """Told of a space that another node has taken, or an operator has released, and whether another one has it now."""
        self.relied_on: Callable[[], dict[str, int]] = dict
        """Spaces whose sessions are passed on, and the nodes that they are passed to."""
        self.on_moved: Callable[[str], None] = lambda _space_id: None
        """Told of one of these that this node does not hold any more, or that is dead."""
        self.failure: ConfideError | None = None
        """Why the engine could not be asked the last time, if it could not."""
        self._failed_at = 0.0

    def start(self) -> None:
        """Begin to be seen, and go on until `close`, also where the engine does not answer yet."""
        self._beating = asyncio.create_task(self._beat(), name="confide-heartbeat")

    async def take(self, space_id: str, on_stale: Callable[[], None]) -> SpaceLease:
        """The lease of a space. Raises FencedError: another node holds it; EngineError."""
        await self._ready()
        space_log = Log(self._engine, space_id, lambda: self._node, float(self._config.lease_s))
        standing = await asyncio.to_thread(space_log.take)
        held = self._held[space_id] = SpaceLease(space_log, standing, on_stale, self.warnings)
        return held

    @contextlib.contextmanager
    def looked_at(self, space_id: str) -> Iterator[SpaceLease | None]:
        """The log of a space as it is at one moment, for whoever only reads it and takes no lease; None: there is none.

        From any thread. Raises EngineError.
        """
        with self._engine.moment() as engine:
            space_log = Log(engine, space_id, lambda: NOBODY, float(self._config.lease_s))
            standing = space_log.look()
            yield None if standing is None else SpaceLease(space_log, standing, lambda: None, list)

    def logged(self) -> set[str]:
        """The spaces that the store has something of. From any thread. Raises EngineError."""
        _, rows = self._engine.run("SELECT id FROM log WHERE head > 0 OR snapshot IS NOT NULL")
        return {str(space_id) for (space_id,) in rows}

    async def confirm(self) -> None:
        """Ask, where nobody has for as long as a node may be silent, whether the spaces are still this node's.

        A process that was stopped for a while, or a machine that slept, must not go on with what another node has written on. Where the
        engine does not answer, nothing is known, and what is open is read from.
        """
        if self.is_confirmed or self.failure is not None:  # the heartbeat goes on trying, and nobody waits for that
            return
        async with self._confirming:
            if not self.is_confirmed:
                try:
                    await self._ask()
                except ConfideError as error:
                    self._fail(error)

    async def node(self) -> int:
        """Its number in the store. Raises EngineError."""
        return await self._ready()

    async def is_succeeded(self) -> bool:
        """Whether a node of another version is alive. Raises EngineError."""
        node = await self._ready()
        statement = """SELECT 1 FROM node WHERE id <> %(node)s AND version <> %(version)s
                       AND seen_at > now() - make_interval(secs => %(lease_s)s)"""
        values = {"node": node, "version": __version__, "lease_s": float(self._config.lease_s)}
        _, rows = await asyncio.to_thread(self._engine.run, statement, values)
        return bool(rows)

    async def holder(self, space_id: str) -> Holder | None:
        """The other node that holds a space; None: this one does, or nobody who is alive. Raises EngineError."""
        if space_id in self._held and self.is_confirmed:
            return None
        node = await self._ready()
        statement = """SELECT node.id, node.address, log.lease FROM log JOIN node ON node.id = log.holder
                       WHERE log.id = %(id)s AND node.id <> %(node)s AND seen_at > now() - make_interval(secs => %(lease_s)s)"""
        values = {"id": space_id, "node": node, "lease_s": float(self._config.lease_s)}
        _, rows = await asyncio.to_thread(self._engine.run, statement, values)
        return Holder(*rows[0]) if rows else None

    async def free(self, space_id: str, holder: Holder) -> bool:
        """Take a space away from a node that refuses connections, whatever the clocks say; False: not again so soon.

        Should it be alive, it is fenced: what it writes from now on is refused. Raises EngineError.
        """
        now = time.monotonic()
        if now - self._taken_over.get(space_id, float("-inf")) < TAKEN_OVER_S:
            return False
        self._taken_over = {one: at for one, at in self._taken_over.items() if now - at < TAKEN_OVER_S}
        self._taken_over[space_id] = now
        statement = """UPDATE log SET holder = NULL, lease = lease + 1
                       WHERE id = %(id)s AND holder = %(node)s AND lease = %(lease)s"""
        values = {"id": space_id, "node": holder.node, "lease": holder.lease}
        count, _ = await asyncio.to_thread(self._engine.run, statement, values)
        if count:
            log.warning("space %s was taken from node %d, which refuses connections", space_id, holder.node)
            figures.TAKEOVERS.inc()
        return True

    def keep(self, space_id: str, lease: int | None) -> None:
        """Hold on to a space that is closed, since sessions are here that go on to use it."""
        if (held := self._held.get(space_id)) is not None:
            held.newest = lease

    def warnings(self) -> list[str]:
        """What whoever uses a space should know while the engine does not answer."""
        if self.failure is None:
            return []
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self._failed_at))
        return [
            f"the database of the store does not answer since {since}: nothing new is stored, and machines keep what waits"
        ]

    def _fail(self, error: ConfideError) -> None:
        if self.failure is None:
            self._failed_at = time.time()
        self.failure = error

    async def leave(self, space_id: str, lease: int | None = None) -> None:
        """Let others have it at once; where that cannot be said, they have it once this node is not seen any more."""
        held = self._held.pop(space_id, None)
        # An engine that is away would make each of hundreds wait, at the end of a daemon.
        if held is not None and self.failure is None:
            with contextlib.suppress(EngineError):
                newest = next(one for one in (lease, held.newest, held.standing.lease) if one is not None)
                await asyncio.to_thread(held.log.give_back, newest)

    async def close(self) -> None:
        """Be seen no more; every space is closed by now."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        for space_id in list(self._held):
            await self.leave(space_id)
        if self._node != NOBODY:
            with contextlib.suppress(EngineError):
                await asyncio.to_thread(self._engine.run, "DELETE FROM node WHERE id = %(node)s", {"node": self._node})
        self._engine.close()

    async def _ready(self) -> int:
        async with self._beginning:
            if self._node == NOBODY:
                beginning = asyncio.create_task(
                    asyncio.to_thread(begin_node, self._engine, self._folder, self._address)
                )
                try:
                    self._node = await asyncio.shield(beginning)
                except asyncio.CancelledError:
                    self._node = await beginning  # it ends all the same, and `close` takes it back
                    raise
                log.info("this daemon is node %d of its store", self._node)
            return self._node

    @property
    def is_confirmed(self) -> bool:
        """Whether others take this node for alive, by its own clock."""
        return time.monotonic() - self._confirmed_at <= self._config.lease_s

    async def _beat(self) -> None:
        while True:
            try:
                await self._ask()
                if self.failure is not None:
                    log.warning("the database of the store answers again")
                self.failure = None
            except ConfideError as error:
                raise_if_cancelled()
                if self.failure is None:
                    log.warning("the database of the store cannot be asked: %s", error)
                self._fail(error)
            except Exception as error:
                raise_if_cancelled()
                # A bug must not end the heartbeat untold; its text may quote anything.
                self._fail(StorageError(f"its heartbeat is broken ({type(error).__name__})"))
                log.error("the heartbeat of this node broke: %s", type(error).__name__)
            await asyncio.sleep(self._config.lease_s / BEATS)

    async def _ask(self) -> None:
        """Be seen, and see which spaces another node has. Raises EngineError."""
        began = time.monotonic()
        node = await self._ready()
        if not await asyncio.to_thread(self._seen, node):
            # This node was taken for dead, and forgotten: it is another one from now on, which holds nothing.
            self._node = NOBODY
            node = await self._ready()
        relied_on = self.relied_on()
        for space_id, holder, is_alive in await asyncio.to_thread(self._holders, [*self._held, *relied_on]):
            if space_id in relied_on and (holder != relied_on[space_id] or not is_alive):
                self.on_moved(space_id)
            if holder != node and self._held.pop(space_id, None) is not None:
                self.on_lost(space_id, is_alive)
        self._confirmed_at = began

    def _seen(self, node: int) -> bool:
        count, _ = self._engine.run("UPDATE node SET seen_at = now() WHERE id = %(node)s", {"node": node})
        return count == 1

    def _holders(self, spaces: list[str]) -> list[tuple[str, int | None, bool]]:
        """Who holds each, and whether that one is alive."""
        if not spaces:
            return []
        statement = """SELECT log.id, log.holder, coalesce(seen_at > now() - make_interval(secs => %(lease_s)s), false)
                       FROM log LEFT JOIN node ON node.id = log.holder WHERE log.id = ANY(%(spaces)s)"""
        _, rows = self._engine.run(statement, {"spaces": spaces, "lease_s": float(self._config.lease_s)})
        return [(space_id, holder, is_alive) for space_id, holder, is_alive in rows]


def begin_node(engine: PostgresEngine, folder: DataFolder, address: str = "") -> int:
    """A node of its own for this process, in the place of the one that the last process of this data folder was.

    Only one process serves a folder, so that one is dead, and nobody has to wait for what it held. Raises StorageError, KeyFileError.
    """
    engine.ready()
    status = folder.root.stat()
    # A copy of the folder is another one, and the daemon of this one may live.
    here = f"{status.st_dev}:{status.st_ino}"
    with contextlib.suppress(KeyFileError, ValueError):
        before, where = read_private_file(folder.node).decode().split() if folder.node.exists() else ("0", here)
        if where == here:
            engine.run("DELETE FROM node WHERE id = %(node)s", {"node": int(before)})
    engine.run("DELETE FROM node WHERE seen_at < now() - interval '1 day'")
    insert = "INSERT INTO node (address, version, seen_at) VALUES (%(address)s, %(version)s, now()) RETURNING id"
    _, rows = engine.run(insert, {"address": address, "version": __version__})
    node = int(rows[0][0])
    write_private_file(folder.node, f"{node} {here}\n".encode(), replace=True)
    return node
