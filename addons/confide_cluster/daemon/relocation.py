"""Moves spaces from files into PostgreSQL, and back, while no daemon serves them.

Import this module late, since it loads `store.log`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confide_cluster.daemon.log import log_snapshot, opening, replication_position
from confide_cluster.daemon.log.log_sealing import GENESIS, LogSealing
from confide_cluster.daemon.log.log_tables import Log, LogStatus
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_cluster.daemon.log.replicated_tables import rows_of, truths
from confide_cluster.daemon.spaces.leases import begin_node
from confide_daemon.access.registry import RegistryState
from confide_daemon.errors import EngineError, LockedError, StorageError
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.store.database import connect, storage_errors, transaction
from confide_daemon.store.migrations import migrate, version

Follow = Callable[[str], None]
"""Called with the name of each space before it is moved."""
_HINT_LOCKED = (
    "with one of its devices connected: confided space key NAME server; then stop the daemon and say it again"
)
_COMPARED = ".compared"


@dataclass(frozen=True, slots=True)
class RelocatedSpaces:
    """The names of the spaces that were moved."""

    moved_spaces: list[str]
    there: list[str]  # they were there already


def to_store(state: RegistryState, engine: PostgresEngine, lease_s: float, *, follow: Follow) -> RelocatedSpaces:
    """Upload all spaces of a data folder to PostgreSQL, and compare each with the result. The local
    files are copies from then on.

    It can be interrupted and repeated. Raises LockedError, before any change, if the key of a space
    is only on its devices; StorageError if a file cannot be read; EngineError if PostgreSQL is
    unavailable.
    """
    keys = _keys(state)
    done = RelocatedSpaces([], [])
    with _node(state, engine, lease_s) as log_of:
        for name, (space_id, key) in keys.items():
            follow(name)
            space_log = log_of(space_id)
            standing = space_log.take()
            path = state.folder.space(space_id)
            if standing.head or standing.snapshot is not None:
                opening.bring(space_log, standing, path, key, now=time.time())
                done.there.append(name)
            else:
                custody = Custodian(space_id, state.folder, state.master).custody.to_json()
                _bring(space_log, standing, path, key, custody)
                done.moved_spaces.append(name)
            space_log.give_back(standing.lease)
    return done


def to_files(state: RegistryState, engine: PostgresEngine, lease_s: float, *, follow: Follow) -> RelocatedSpaces:
    """Move all spaces of a data folder out of PostgreSQL. The local files are independent from then
    on, and the logs are deleted.

    Raises LockedError, before any change, if the key of a space is only on its devices;
    StorageError if a file cannot be written; EngineError if PostgreSQL is unavailable.
    """
    keys = _keys(state, with_absent=True)
    done = RelocatedSpaces([], [])
    with _node(state, engine, lease_s) as log_of:
        for name, (space_id, key) in keys.items():
            follow(name)
            space_log = log_of(space_id)
            standing = space_log.take()
            path = state.folder.space(space_id)
            if standing.head or standing.snapshot is not None:
                opening.bring(space_log, standing, path, key, now=time.time())
                _release(path, key)
                done.moved_spaces.append(name)
            else:
                done.there.append(name)
            space_log.forget(standing.lease)
    state.folder.node.unlink(missing_ok=True)
    return done


def forget(engine: PostgresEngine, space_id: str) -> None:
    """Delete the log of a removed space, whichever node holds it. Raises EngineError if PostgreSQL
    is unavailable.
    """
    for table, column in (("log", "id"), ("entry", "log"), ("part", "log")):
        engine.run(f"DELETE FROM {table} WHERE {column} = %(id)s", {"id": space_id})  # noqa: S608 - ours


@contextmanager
def _node(state: RegistryState, engine: PostgresEngine, lease_s: float) -> Iterator[Callable[[str], Log]]:
    """Register this process as a node within the block."""
    node = begin_node(engine, state.folder)
    try:
        yield lambda space_id: Log(engine, space_id, lambda: node, lease_s)
    finally:
        with suppress(EngineError):  # else it is taken for dead soon
            engine.run("DELETE FROM node WHERE id = %(node)s", {"node": node})
        engine.close()


def _keys(state: RegistryState, *, with_absent: bool = False) -> dict[str, tuple[str, bytes]]:
    """Return the ids and keys of the spaces by name; `with_absent`: also of those without a file,
    which may be in a store.
    """
    found = {}
    for name, space_id in state.registry.spaces().items():
        if not with_absent and not state.folder.space(space_id).exists():
            continue
        try:
            _, key = Custodian(space_id, state.folder, state.master).opening_key()
        except LockedError:
            raise LockedError(f"the machines of {name} keep its key; {_HINT_LOCKED}") from None
        found[name] = space_id, key
    return found


def _bring(space_log: Log, standing: LogStatus, path: Path, key: bytes, custody: dict[str, object]) -> None:
    with closing(connect(path, key, writer=True)) as connection:
        migrate(connection, now=time.time())
        schema = version(connection)
        with storage_errors("prepare the database for its log"), transaction(connection):
            connection.execute("DROP TABLE IF EXISTS shipped")
            replication_position.begin(connection)
            replication_position.write(connection, 0, GENESIS)
    copy = log_snapshot.copy_beside(path, key)
    sealing = LogSealing(space_log.id, key)
    try:
        number = log_snapshot.upload(space_log.bring_part, sealing, copy, replication_position.Shipped())
        compared = path.with_name(path.name + _COMPARED)
        log_snapshot.fetch(space_log, sealing, number, compared, key)
        try:
            if _digest(compared, key) != _digest(path, key):
                raise StorageError("the space is not in the store as it is here; nothing was changed")
        finally:
            log_snapshot.remove(compared)
        space_log.settle(number, standing.lease, base=0, tag=GENESIS, schema=schema, custody=custody)
    finally:
        copy.unlink(missing_ok=True)


def _release(path: Path, key: bytes) -> None:
    """Mark the file as no longer a copy."""
    with closing(connect(path, key, writer=True)) as connection, storage_errors("take the space out of its store"):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("DROP TABLE IF EXISTS shipped")


def _digest(path: Path, key: bytes) -> bytes:
    """Return a digest of all replicated rows in a database."""
    digest = hashlib.blake2b(digest_size=32)
    with closing(connect(path, key, writer=False)) as connection, storage_errors("compare the space"):
        for table in truths(connection):
            digest.update(table.encode())
            for row in rows_of(connection, table):
                digest.update(repr(row).encode())
    return digest.digest()
