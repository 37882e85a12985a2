"""A copy of a space's database that has all that its log has, before anybody opens it as a store."""

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
from confide_daemon.errors import DamagedError, LogError, StorageError, WrongKeyError
from confide_daemon.store.database import connect, storage_errors, transaction
from confide_daemon.store.migrations import migrate, migrations, version, written_by_newer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedCopy:
    """What was done to the copy.

    Attributes:
        documents: those whose derived rows are to be made anew before anybody searches.
        tail: what is in the log behind its snapshot.
    """

    documents: list[int]
    tail: Tail


def bring(space_log: Log, standing: LogStatus, path: Path, key: bytes, *, now: float) -> OpenedCopy:
    """The copy as the log is. Nobody has it open, and the caller has the lease.

    Args:
        key: of the database, 32 bytes.
        now: seconds since 1970, for the tables of one that is made.

    Raises:
        EngineError: nothing was done that could not be done again.
        LogError: the log is not what was written there.
        WrongKeyError: the key is not the one of the database.
        StorageError: a newer confide has written it, the disk is full, this memory was never moved to the store, or the store was put
            back to an earlier state.
    """
    space_log.sweep(standing)
    return follow(space_log, standing, path, key, now=now)


def follow(space_log: Log, standing: LogStatus, path: Path, key: bytes, *, now: float) -> OpenedCopy:
    """The same for whoever does not have the lease, and asks the engine as it is at one moment: nothing is changed there."""
    if standing.schema > migrations()[-1][0]:
        raise written_by_newer("the space", None)
    sealing = LogSealing(space_log.id, key)
    log_snapshot.sweep(path)
    is_fresh = _prepare(space_log, standing, sealing, path, key)
    try:
        return _replayed(space_log, standing, sealing, path, key, now=now)
    except (LogError, DamagedError) as error:
        if is_fresh:
            raise
        log.warning("the copy of space %s is fetched anew: %s", space_log.id, error)
        log_snapshot.remove(path)
        _prepare(space_log, standing, sealing, path, key)
        return _replayed(space_log, standing, sealing, path, key, now=now)


def _prepare(space_log: Log, standing: LogStatus, sealing: LogSealing, path: Path, key: bytes) -> bool:
    """Have a copy there that what follows in the log can be applied to, or none where the log begins with nothing; whether it is new."""
    if log_snapshot.discarded(path).exists():
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
    """Whether the file is a copy that is no further than the log. One that was written to without it is put aside; what is not a copy is
    left to be replaced.

    Raises StorageError: the log was put back to an earlier state, and no person has accepted that.
    """
    try:
        with closing(connect(path, key, writer=True)) as connection, storage_errors("open the copy of the space"):
            found = replication_position.read(connection)
            # It has taken a step that the log has not: what an older version has written meanwhile belongs before that.
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
        # One that was never there, or all of the store was lost, or its address is another one's: to begin anew would be no help.
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
    if is_back and not log_snapshot.accepted(path).exists():
        log_snapshot.put_back(path).touch(mode=0o600)
        raise StorageError(
            "cannot open the space: the store was put back to an earlier state, and this machine has more",
            hint="confided store --accept goes on from what the store has; what is here is kept beside it",
        )
    if found.is_alone or is_back:
        _put_aside(space_log, path, key)
        log_snapshot.accepted(path).unlink(missing_ok=True)
        return False
    log_snapshot.put_back(path).unlink(missing_ok=True)  # the log is what it was again
    return True


def _put_aside(space_log: Log, path: Path, key: bytes) -> None:
    kept = log_snapshot.put_aside(path, key)
    log.error("a file of space %s has what the store has not: it is kept as %s", space_log.id, kept.name)


def _is_empty(connection: apsw.Connection) -> bool:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    held = tables & {"revision", "sealed_record"}
    return not any(connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall() for table in held)  # noqa: S608 - ours


def _replayed(
    space_log: Log, standing: LogStatus, sealing: LogSealing, path: Path, key: bytes, *, now: float
) -> OpenedCopy:
    newest = migrations()[-1][0]
    tail = Tail()
    with closing(connect(path, key, writer=True)) as connection, storage_errors("apply the log of the space"):
        if version(connection) == 0:
            # As it was when its first entry was written, so that what later migrations did to rows is done to these too.
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
                    raise written_by_newer("the space", None)
                replay.apply(sealing.open(place, entry.body))
                number, tag = entry.number, tag_of(entry.body)
                tail.entries += 1
                tail.size_bytes += len(entry.body)
            if number != standing.head:
                raise LogError("cannot use the log of the space: its last entries are missing")
            documents = replay.finish()
            if tail.entries:
                replication_position.write(connection, number, tag)
    # Of what a copy had already, nobody has counted the bytes; a snapshot comes the sooner by the number alone.
    return OpenedCopy(documents, Tail(standing.head - standing.base, tail.size_bytes))
