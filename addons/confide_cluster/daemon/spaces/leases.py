"""The leases of this node on spaces with logs in PostgreSQL, and its heartbeat.

A daemon is one node: a row that its heartbeat refreshes, with times of PostgreSQL's clock. A lease
is a number in the log of a space. Taking it increases the number, and writes under an older number
are refused, so no clock decides about writes.
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
"""A number that no node has."""
BEATS: Final = 3
"""Heartbeats within the time after which a node counts as dead."""


TAKEN_OVER_S: Final = 60.0
"""Least interval of taking a space from a node that refuses connections but may be alive."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Another node that holds the lease of a space and counts as alive.

    Attributes:
        address: the address at which other nodes reach it; "" if it accepts no forwarded sessions.
        lease: the number of its lease.
    """

    node: int
    address: str
    lease: int


@dataclass
class SpaceLease:
    """The lease of one space, until it is released.

    Attributes:
        on_stale: called on the space's writer thread if the log is ahead of the local copy.
        warnings: returns the warnings about the space's log for its users.
    """

    log: Log
    standing: LogStatus
    on_stale: Callable[[], None]
    warnings: Callable[[], list[str]]
    newest: int | None = None  # its number when the space was closed, where that was counted up meanwhile

    @property
    def custody(self) -> Custody | None:
        """The keeper of the database's key, as recorded in the log; None if that is not recorded.
        Raises StorageError if a newer version has written the record.
        """
        said = self.standing.custody
        try:
            return None if said is None else Custody.of_json(said)
        except ValueError:
            raise StorageError(
                "it is not known who keeps the key of a space: its log was written by a newer version of confide",
                hint="upgrade confide on this machine",
            ) from None

    def bring(self, path: Path, key: bytes) -> OpenedCopy:
        """Update the local copy from the log; no process may have it open. Raises EngineError,
        LogError, WrongKeyError or StorageError as `opening.bring` does.
        """
        return opening.bring(self.log, self.standing, path, key, now=time.time())

    def follow(self, path: Path, key: bytes) -> OpenedCopy:
        """Update the local copy like `bring`, but without holding the lease, and without any change
        in PostgreSQL.
        """
        return opening.follow(self.log, self.standing, path, key, now=time.time())

    def drop_overtaken(self, path: Path, key: bytes) -> bool:
        """Remove a closed copy that is older than the log's snapshot (`opening.drop_overtaken`).
        Return True if it was removed.
        """
        return opening.drop_overtaken(self.standing, path, key)

    def join(self, store: Store, opened: OpenedCopy) -> None:
        """Send the writes of an open database through the log from now on. Raises StorageError if
        that fails.
        """
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
            # Entries from before a migration cannot be applied after it: continue with a snapshot
            # of the migrated database.
            outbox.take_snapshot()

    def discard(self, path: Path) -> None:
        """Mark a local copy as damaged, so that it is fetched when it is next opened."""
        log_snapshot.discard_marker(path).touch(mode=0o600)

    def keep_custody(self, custody: Custody) -> None:
        """Record in the log who keeps the key, unless that is recorded. Raises EngineError if
        PostgreSQL is unavailable.
        """
        if self.standing.custody is None:
            self.log.keep_custody(self.standing.lease, custody.to_json())


class SpaceLeases:
    """Takes, confirms and releases the leases of a daemon. Runs on the event loop unless a method
    says otherwise.
    """

    def __init__(self, config: StoreConfig, folder: DataFolder, engine: PostgresEngine, *, address: str = "") -> None:
        """`address`: at which other nodes reach this one; "" if they cannot."""
        self._address = address
        self._taken_over: dict[str, float] = {}
        self._config = config
        self._folder = folder
        self._engine = engine
        self._node = NOBODY
        self._beginning = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._leases: dict[str, SpaceLease] = {}
        self._confirmed_at = float("-inf")
        self._confirming = asyncio.Lock()
        self.on_lost: Callable[[str, bool], None] = lambda _space_id, _is_elsewhere: None
        """Called with a space that another node has taken or an operator has released, and with
        True if another node has it now.
        """
        self.spaces_in_use: Callable[[], dict[str, int]] = dict
        """Spaces whose sessions are forwarded, with the nodes that receive them."""
        self.on_moved: Callable[[str], None] = lambda _space_id: None
        """Called with one of these spaces whose node no longer holds it, or is dead."""
        self.failure: ConfideError | None = None
        """Why the last query of the engine failed, if it did."""
        self._failed_at = 0.0

    def start(self) -> None:
        """Start the heartbeat, which runs until `close`, even while PostgreSQL does not answer."""
        self._beating = asyncio.create_task(self._beat(), name="confide-heartbeat")

    async def take(self, space_id: str, on_stale: Callable[[], None]) -> SpaceLease:
        """Take the lease of a space. Raises FencedError if another node holds it, and EngineError
        if PostgreSQL is unavailable.
        """
        await self._ready()
        space_log = Log(self._engine, space_id, lambda: self._node, float(self._config.lease_s))
        standing = await asyncio.to_thread(space_log.take)
        held = self._leases[space_id] = SpaceLease(space_log, standing, on_stale, self.warnings)
        return held

    @contextlib.contextmanager
    def view(self, space_id: str) -> Iterator[SpaceLease | None]:
        """Yield access to the log of a space for reading without a lease, in one snapshot; None if
        there is no log.

        Thread-safe. Raises EngineError if PostgreSQL is unavailable.
        """
        with self._engine.moment() as engine:
            space_log = Log(engine, space_id, lambda: NOBODY, float(self._config.lease_s))
            standing = space_log.look()
            yield None if standing is None else SpaceLease(space_log, standing, lambda: None, list)

    def spaces_with_logs(self) -> set[str]:
        """Return the ids of the spaces that have data in PostgreSQL. Thread-safe. Raises
        EngineError if it is unavailable.
        """
        _, rows = self._engine.run("SELECT id FROM log WHERE head > 0 OR snapshot IS NOT NULL")
        return {str(space_id) for (space_id,) in rows}

    async def confirm(self) -> None:
        """Check that this node still holds its spaces, if the last check is older than the time
        after which a node counts as dead.

        A process that was stopped, or a computer that slept, must not go on writing after another
        node has written. If PostgreSQL does not answer, open spaces are read-only.
        """
        if self.is_confirmed or self.failure is not None:  # the heartbeat retries in the background
            return
        async with self._confirming:
            if not self.is_confirmed:
                try:
                    await self._ask()
                except ConfideError as error:
                    self._fail(error)

    async def node(self) -> int:
        """Return this node's number in PostgreSQL. Raises EngineError if it is unavailable."""
        return await self._ready()

    async def is_succeeded(self) -> bool:
        """Return True if a node with another version of Confide is alive. Raises EngineError if
        PostgreSQL is unavailable.
        """
        node = await self._ready()
        statement = """SELECT 1 FROM node WHERE id <> %(node)s AND version <> %(version)s
                       AND seen_at > now() - make_interval(secs => %(lease_s)s)"""
        values = {"node": node, "version": __version__, "lease_s": float(self._config.lease_s)}
        _, rows = await asyncio.to_thread(self._engine.run, statement, values)
        return bool(rows)

    async def holder(self, space_id: str) -> Holder | None:
        """Return the other node that holds a space, or None if this node does, or no live node.
        Raises EngineError if PostgreSQL is unavailable.
        """
        if space_id in self._leases and self.is_confirmed:
            return None
        node = await self._ready()
        statement = """SELECT node.id, node.address, log.lease FROM log JOIN node ON node.id = log.holder
                       WHERE log.id = %(id)s AND node.id <> %(node)s AND seen_at > now() - make_interval(secs => %(lease_s)s)"""
        values = {"id": space_id, "node": node, "lease_s": float(self._config.lease_s)}
        _, rows = await asyncio.to_thread(self._engine.run, statement, values)
        return Holder(*rows[0]) if rows else None

    async def free(self, space_id: str, holder: Holder) -> bool:
        """Take a space from a node that refuses connections, without waiting until it counts as
        dead. Return False if this was done for the space too recently.

        If that node is alive, its later writes are refused. Raises EngineError if PostgreSQL is
        unavailable.
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
        """Keep the lease of a space that was closed, since local sessions still use the space.
        `lease` is its number when the space was closed, None if unchanged.
        """
        if (held := self._leases.get(space_id)) is not None:
            held.newest = lease

    def warnings(self) -> list[str]:
        """Return the warnings for users of a space; empty while PostgreSQL answers."""
        if self.failure is None:
            return []
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self._failed_at))
        return [
            f"the database of the store does not answer since {since}: nothing new is stored, and devices keep what waits"
        ]

    def _fail(self, error: ConfideError) -> None:
        if self.failure is None:
            self._failed_at = time.time()
        self.failure = error

    async def leave(self, space_id: str, lease: int | None = None) -> None:
        """Release a lease at once. If PostgreSQL does not answer, other nodes can take it once this
        node counts as dead.
        """
        held = self._leases.pop(space_id, None)
        # With an unavailable engine each of hundreds of spaces would wait at the daemon's end.
        if held is not None and self.failure is None:
            with contextlib.suppress(EngineError):
                newest = next(one for one in (lease, held.newest, held.standing.lease) if one is not None)
                await asyncio.to_thread(held.log.give_back, newest)

    async def close(self) -> None:
        """Release all leases and end the heartbeat. Every space must be closed before."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        for space_id in list(self._leases):
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
        """True if this node must count as alive for other nodes, judged by its own clock."""
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
                # A bug must not end the heartbeat silently. Log only its type, since its text may
                # quote anything.
                self._fail(StorageError(f"its heartbeat is broken ({type(error).__name__})"))
                log.error("the heartbeat of this node broke: %s", type(error).__name__)
            await asyncio.sleep(self._config.lease_s / BEATS)

    async def _ask(self) -> None:
        """Send a heartbeat and find spaces that another node has taken. Raises EngineError."""
        began = time.monotonic()
        node = await self._ready()
        if not await asyncio.to_thread(self._is_seen, node):
            # The others declared this node dead and deleted it: register as a new node without
            # leases.
            self._node = NOBODY
            node = await self._ready()
        relied_on = self.spaces_in_use()
        for space_id, holder, is_alive in await asyncio.to_thread(self._holders, [*self._leases, *relied_on]):
            if space_id in relied_on and (holder != relied_on[space_id] or not is_alive):
                self.on_moved(space_id)
            if holder != node and self._leases.pop(space_id, None) is not None:
                self.on_lost(space_id, is_alive)
        self._confirmed_at = began

    def _is_seen(self, node: int) -> bool:
        count, _ = self._engine.run("UPDATE node SET seen_at = now() WHERE id = %(node)s", {"node": node})
        return count == 1

    def _holders(self, spaces: list[str]) -> list[tuple[str, int | None, bool]]:
        """Return for each space its holder, and True if that node is alive."""
        if not spaces:
            return []
        statement = """SELECT log.id, log.holder, coalesce(seen_at > now() - make_interval(secs => %(lease_s)s), false)
                       FROM log LEFT JOIN node ON node.id = log.holder WHERE log.id = ANY(%(spaces)s)"""
        _, rows = self._engine.run(statement, {"spaces": spaces, "lease_s": float(self._config.lease_s)})
        return [(space_id, holder, is_alive) for space_id, holder, is_alive in rows]


def begin_node(engine: PostgresEngine, folder: DataFolder, address: str = "") -> int:
    """Register this process as a node, in place of the last process that served this data folder;
    return the node's number.

    Only one process serves a folder, so the last one is dead, and its leases are free at once.
    Raises StorageError if PostgreSQL cannot be used, and KeyFileError if the file with the node's
    number cannot be used.
    """
    engine.ready()
    status = folder.root.stat()
    # A copied folder is a different node, and the daemon of the original may be alive.
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
