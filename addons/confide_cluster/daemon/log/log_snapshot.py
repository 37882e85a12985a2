"""Snapshots of a space's log: full copies of its database in PostgreSQL, in parts. Functions
create, upload and fetch them.

The pages of the copy are encrypted as in every file of the space, and so are its parts. An
encrypted manifest describes them together. A fetched copy is kept in a file of its own until it is
complete and verified.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from confide_cluster.daemon.log import replication_position
from confide_cluster.daemon.log.log_sealing import LogSealing, SnapshotManifest
from confide_cluster.daemon.log.log_tables import PART_BYTES, Log
from confide_cluster.daemon.log.replication_position import Shipped
from confide_cluster.errors import LogError
from confide_crypto import atomic
from confide_daemon.errors import StorageError
from confide_daemon.store.database import connect, create_private, storage_errors
from confide_daemon.store.migrations import version
from confide_daemon.store.upkeep import copies

_COPY: Final = ".snapshot"
_FETCHING: Final = ".fetching"
_DISCARDED: Final = ".discarded"
AHEAD: Final = ".ahead"
PUT_BACK: Final = ".put-back"
_ACCEPTED: Final = ".accepted"
_DOING: Final = "copy the database for its log"


def copy_beside(path: Path, key: bytes) -> Path:
    """Copy the committed content of the database to a new file beside it, and return that file,
    which the caller must delete. Other connections may write meanwhile. Raises StorageError if that
    fails.
    """
    copy = path.with_name(path.name + _COPY)
    copy.unlink(missing_ok=True)
    copies.check_room(path, path.stat().st_size, f"cannot {_DOING}: the disk has no room for it", "; it is tried again")
    create_private(copy)
    try:
        with closing(connect(path, key, writer=False)) as connection, storage_errors(_DOING):
            connection.execute("PRAGMA query_only = OFF")
            connection.execute("VACUUM INTO ?", (str(copy),))
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    return copy


def position(copy: Path, key: bytes) -> tuple[Shipped, int]:
    """Return the replication position of a copy, and its newest migration. Raises StorageError if
    the file is not a copy of a log or the key is wrong.
    """
    with closing(connect(copy, key, writer=False)) as connection:
        found = replication_position.read(connection)
        if found is None:
            raise StorageError(f"cannot {_DOING}: it is not a copy of a log's")
        return found, version(connection)


def upload(
    put: Callable[[int, int, bytes], None],
    sealing: LogSealing,
    copy: Path,
    found: Shipped,
    *,
    number: int | None = None,
) -> int:
    """Upload a file that no process writes to, in parts of `PART_BYTES`, then its manifest as part
    0. Return the snapshot's number, which is 62 random bits unless given. The snapshot counts only
    once the log adopts it (`Log.settle`).

    `put` is called with the number of the snapshot, the number of a part, and its bytes. Raises
    what `put` raises.
    """
    snapshot = secrets.randbits(62) if number is None else number
    digest, size, part = hashlib.blake2b(digest_size=32), 0, 0
    with copy.open("rb") as file:
        while data := file.read(PART_BYTES):
            part += 1
            size += len(data)
            digest.update(data)
            put(snapshot, part, data)
    manifest = SnapshotManifest(found.number, found.tag.hex(), size, digest.hexdigest())
    put(snapshot, 0, sealing.seal_manifest(manifest))
    return snapshot


def fetch(
    log: Log,
    sealing: LogSealing,
    snapshot: int,
    path: Path,
    key: bytes,
    *,
    settle: Callable[[apsw.Connection], None] = replication_position.settle,
) -> None:
    """Replace the local file by the snapshot. No process may have the file open.

    `settle` is called with the fetched database, which another node may have marked as open, to
    make it this node's copy. Raises LogError if the snapshot is missing or differs from what was
    uploaded, and StorageError if the disk is full.
    """
    copy = path.with_name(path.name + _FETCHING)
    copy.unlink(missing_ok=True)
    parts = log.parts(snapshot)
    first = next(parts, None)
    if first is None:
        raise LogError("cannot use the log of the space: its snapshot is not there")
    manifest = sealing.open_manifest(first)
    copies.check_room(path, manifest.size, "cannot fetch the space: the disk has no room for it", "; it is tried again")
    create_private(copy)
    try:
        digest, size = hashlib.blake2b(digest_size=32), 0
        with copy.open("wb") as file:
            for data in parts:
                file.write(data)
                digest.update(data)
                size += len(data)
        if (size, digest.hexdigest()) != (manifest.size, manifest.digest):
            raise LogError(
                "cannot use the log of the space: the parts of its snapshot are not what was written there",
                hint="rows were changed, left out or put back in the engine: restore its database from a backup",
            )
        with closing(connect(copy, key, writer=True)) as connection, storage_errors("open what was fetched"):
            settle(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        remove(path)
        copies.put_in_place(copy, path)
    except OSError as error:
        raise StorageError(f"cannot fetch the space: {error.strerror}", hint="is the disk full?") from None
    finally:
        remove(copy)


def remove(path: Path) -> None:
    """Delete a local copy with its write-ahead log, its journal and its marker files. No process
    may have it open.
    """
    for name in ("-wal", "-shm", "-journal", "", _DISCARDED):
        path.with_name(path.name + name).unlink(missing_ok=True)


def put_aside(path: Path, key: bytes) -> Path:
    """Rename a copy that has changes which its log lacks to `<name>.ahead` or a similar free name,
    and return the new path.
    """
    copies.empty_log(path, key, "keep what the log has not")
    kept = free(path, AHEAD)
    path.rename(kept)
    atomic.sync(path.parent)
    return kept


def free(path: Path, ending: str) -> Path:
    """Return an unused path beside a copy, with this ending."""
    names = (f"{path.name}{ending}{'' if number == 1 else f'.{number}'}" for number in range(1, 1000))
    return next(place for name in names if not (place := path.with_name(name)).exists())


def restore_marker(path: Path) -> Path:
    """Return the path of a marker file. It exists while a copy is not used because its log was
    restored to an earlier state and the operator has not accepted that.
    """
    return path.with_name(path.name + PUT_BACK)


def accept_marker(path: Path) -> Path:
    """Return the path of a marker file. It exists once the operator has accepted that the log was
    restored, until the copy is renamed.
    """
    return path.with_name(path.name + _ACCEPTED)


def accept(folder: Path) -> list[str]:
    """Accept the restored logs of all copies in a folder that were not used for that reason; return
    the names of the copies without endings.
    """
    found = []
    for mark in sorted(folder.glob(f"*{PUT_BACK}")):
        path = mark.with_name(mark.name.removesuffix(PUT_BACK))
        mark.rename(accept_marker(path))
        found.append(path.stem)
    return found


def discard_marker(path: Path) -> Path:
    """Return the path of a marker file. It exists if the copy must not be read any more."""
    return path.with_name(path.name + _DISCARDED)


def sweep(path: Path) -> None:
    """Delete the files that interrupted work has left beside a copy that no process has open."""
    for end in (_COPY, _FETCHING):
        remove(path.with_name(path.name + end))
