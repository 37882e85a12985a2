"""Updates a local copy of a space's database from its log, before it is opened."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from confide_cluster.daemon.log import log_snapshot, replication_position
from confide_cluster.daemon.log.log_outbox import Tail
from confide_cluster.daemon.log.log_sealing import LogPosition, LogSealing, tag_of
from confide_cluster.daemon.log.log_tables import Log, LogStatus
from confide_cluster.daemon.log.replicated_tables import LogReplay
from confide_cluster.daemon.log.replication_position import Shipped
from confide_cluster.errors import LogError
from confide_daemon.errors import DamagedError, StorageError, WrongKeyError
from confide_daemon.store.database import connect, storage_errors, transaction
from confide_daemon.store.migrations import migrate, migrations, newer_version_error, version
from confide_daemon.store.upkeep import replacement, salvage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedCopy:
    """The result of updating a copy from its log.

    Attributes:
        documents: the ids of documents whose derived rows must be rebuilt before any search.
        tail: the size of the log since its last snapshot.
    """

    documents: list[int]
    tail: Tail


def bring(space_log: Log, standing: LogStatus, path: Path, key: bytes, *, now: float) -> OpenedCopy:
    """Update the copy from the log. No process may have the copy open, and the caller must have the
    lease.

    Args:
        key: the key of the database, 32 bytes.
        now: seconds since 1970, for the tables of a new database.

    Raises:
        EngineError: if PostgreSQL is unavailable; a retry may succeed.
        LogError: if the log differs from what was written.
        WrongKeyError: if the key is not the one of the database.
        StorageError: if a newer version of Confide has written the log, the disk is full, this
            space was never moved to the store, or the store was restored to an earlier state.
    """
    space_log.sweep(standing)
    return follow(space_log, standing, path, key, now=now)


def follow(space_log: Log, standing: LogStatus, path: Path, key: bytes, *, now: float) -> OpenedCopy:
    """Update the copy without the lease, and change nothing in the log. `space_log` must read
    PostgreSQL in one snapshot then (`PostgresEngine.moment`).

    Raises EngineError if PostgreSQL is unavailable; LogError if the log was changed; WrongKeyError
    if the key is not the one of the database; StorageError if the copy cannot be used.
    """
    if standing.schema > migrations()[-1][0]:
        raise newer_version_error("the space", None)
    sealing = LogSealing(space_log.id, key)
    log_snapshot.sweep(path)
    is_fresh = _prepare(space_log, standing, sealing, path, key)
    try:
        return _replay(space_log, standing, sealing, path, key, now=now)
    except (LogError, DamagedError) as error:
        if is_fresh:
            raise
        log.warning("the copy of space %s is fetched again: %s", space_log.id, error)
        log_snapshot.remove(path)
        _prepare(space_log, standing, sealing, path, key)
        return _replay(space_log, standing, sealing, path, key, now=now)


def drop_overtaken(standing: LogStatus, path: Path, key: bytes) -> bool:
    """Remove a copy that is older than the log's snapshot, with its leftover files. No process may
    have it open. Return True if the copy was removed.

    Opening the copy would replace it anyway, and until then it would keep texts that were forgotten
    on another node. Raises StorageError if a file cannot be deleted.
    """
    for sweep in (log_snapshot.sweep, replacement.sweep, salvage.sweep):
        sweep(path)
    if standing.snapshot is None or (path.exists() and path.stat().st_size and _is_needed(standing, path, key)):
        return False
    log_snapshot.remove(path)
    return True


def _is_needed(standing: LogStatus, path: Path, key: bytes) -> bool:
    """Return True if the log's entries continue this file, or if it may have what the log has not."""
    try:
        with closing(connect(path, key, writer=False)) as connection, storage_errors("look at the copy of the space"):
            found = replication_position.read(connection)
            if found is None:
                return not _is_empty(connection)
            return found.is_alone or found.number >= standing.base
    except (DamagedError, WrongKeyError):
        log.warning("a copy of space %s that cannot be read is removed", path.stem)  # it would be fetched, too
        return False


def _prepare(space_log: Log, standing: LogStatus, sealing: LogSealing, path: Path, key: bytes) -> bool:
    """Make sure that the log's entries can be applied to the file: keep it, fetch the log's snapshot,
    or delete the file if the log has no snapshot. Return False if it was kept.
    """
    if log_snapshot.discard_marker(path).exists():
        log_snapshot.remove(path)
    has_file = path.exists() and path.stat().st_size > 0
    if has_file and _is_usable(space_log, standing, path, key):
        return False
    if standing.snapshot is None:
        log_snapshot.remove(path)
    else:
        log_snapshot.fetch(space_log, sealing, standing.snapshot, path, key)
    return True


def _is_usable(space_log: Log, standing: LogStatus, path: Path, key: bytes) -> bool:
    """Return True if the log's entries continue this file. If the file has changes that the log
    lacks, it is kept under another name.

    Raises StorageError: the log was restored to an earlier state, and the operator has not accepted
    that; or the store has no log of this space.
    """
    try:
        with closing(connect(path, key, writer=True)) as connection, storage_errors("open the copy of the space"):
            found = replication_position.read(connection)
            # The copy has a migration that the log has not: entries that an older version has
            # written meanwhile belong before it.
            is_early = 0 < standing.schema < version(connection)
            is_empty = found is None and _is_empty(connection)
    except DamagedError:
        return False
    except WrongKeyError:
        if standing.snapshot is None:
            raise
        return False
    if found is None and is_empty:
        return False  # it was being made when the daemon ended
    has_log = bool(standing.head) or standing.snapshot is not None
    if not has_log and (found is None or found.number):
        # The log never existed, the store lost all data, or its address is wrong: a new log would
        # not help.
        raise StorageError(
            "cannot open the space: the store has nothing of it, and this machine has",
            hint="is url of [store] the right one? then stop the daemon, and say confided store --to with that address",
        )
    if found is None:
        _put_aside(space_log, path, key)
        return False
    if is_early and found.number < standing.head:
        return False
    if found.number < standing.base or (found.pending and found.number < standing.head and not found.is_alone):
        return False
    is_back = not found.is_alone and not space_log.has(found.number, found.tag, standing)
    if is_back and not log_snapshot.accept_marker(path).exists():
        log_snapshot.restore_marker(path).touch(mode=0o600)
        raise StorageError(
            "cannot open the space: the store was put back to an earlier state, and this machine has more",
            hint="confided store --accept goes on from what the store has; what is here is kept beside it",
        )
    if found.is_alone or is_back:
        _put_aside(space_log, path, key)
        log_snapshot.accept_marker(path).unlink(missing_ok=True)
        return False
    log_snapshot.restore_marker(path).unlink(missing_ok=True)  # the log is what it was again
    return True


def _put_aside(space_log: Log, path: Path, key: bytes) -> None:
    kept = log_snapshot.put_aside(path, key)
    log.error("a file of space %s has what the store has not: it is kept as %s", space_log.id, kept.name)


def _is_empty(connection: apsw.Connection) -> bool:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    held = tables & {"revision", "sealed_record"}
    return not any(connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall() for table in held)  # noqa: S608 - ours


def _replay(
    space_log: Log, standing: LogStatus, sealing: LogSealing, path: Path, key: bytes, *, now: float
) -> OpenedCopy:
    newest = migrations()[-1][0]
    tail = Tail()
    with closing(connect(path, key, writer=True)) as connection, storage_errors("apply the log of the space"):
        if version(connection) == 0:
            # With the schema of the first entry, so that later migrations change these rows as
            # well.
            migrate(connection, now=now, to=standing.schema or newest)
            with transaction(connection):
                replication_position.begin(connection)
        at = replication_position.read(connection) or Shipped()
        number, tag = at.number, at.tag
        with transaction(connection):
            replay = LogReplay(connection)
            for entry in space_log.entries(number):
                place = LogPosition(number + 1, entry.lease, entry.schema, tag)
                if entry.number != place.number:
                    raise LogError("cannot use the log of the space: an entry is missing in it")
                if entry.schema > newest:
                    raise newer_version_error("the space", None)
                replay.apply(sealing.open(place, entry.body))
                number, tag = entry.number, tag_of(entry.body)
                tail.entries += 1
                tail.size_bytes += len(entry.body)
            if number != standing.head:
                raise LogError("cannot use the log of the space: its last entries are missing")
            documents = replay.finish()
            if tail.entries:
                replication_position.write(connection, number, tag)
    # The bytes of entries that a copy had already are not counted; a snapshot then depends on their
    # number alone.
    return OpenedCopy(documents, Tail(standing.head - standing.base, tail.size_bytes))
