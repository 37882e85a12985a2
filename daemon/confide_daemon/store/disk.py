"""Room on the disk, and what it goes to when there is little: first to documents.

Two things would take what a person has freed on a full disk, so that every write is refused as before. A checkpoint copies the log's pages
into the database file, which may grow by all that the log holds, while the log keeps its length until the last page is across: SQLite
tries one behind every commit of a long log, takes what room there is, and ends half done (https://sqlite.org/wal.html, "Checkpointing").
And the index, which is derived, would go on with the vectors it owes.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from confide_daemon.errors import StorageError

# When the log is folded into the database file. SQLite's own number: 4 MiB.
LONG_LOG_PAGES = 1000
# The largest document takes so much: its revision, its pieces, their keywords.
RESERVE_BYTES = 4 * 1024 * 1024


def checkpoint_where_there_is_room(connection: apsw.Connection) -> None:
    """Make the writer's connection look for room before each checkpoint, in place of SQLite's automatic ones."""
    connection.set_wal_hook(_committed)


def close(connection: apsw.Connection) -> None:
    """Close a connection; the last one of a file folds the log in, unless there is no room: then the log stays for the next start."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(not _has_room_for_log(connection)))
    connection.close()


def check_room_for_derived(connection: apsw.Connection) -> None:
    """Keep the last room for documents.

    Raises:
        StorageError: less is free than they may need.
    """
    if _free_bytes(connection) < RESERVE_BYTES:
        raise StorageError(
            "cannot write to the index: the disk is nearly full",
            hint="free some space; what is left is kept for documents, which are found by their words meanwhile",
        )


def _committed(connection: apsw.Connection, _database: str, pages: int) -> int:
    if pages >= LONG_LOG_PAGES:
        try:
            if _has_room_for_log(connection):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            # The commit is done and must not be told as failed; what is wrong with the disk, the next write tells.
            pass
    return apsw.SQLITE_OK


def _has_room_for_log(connection: apsw.Connection) -> bool:
    """Whether the disk can take all that the database file would grow by."""
    try:
        present = Path(connection.filename).stat().st_size
    except OSError:
        return True  # removed while it was open; SQLite finds out what that means
    pages, page_bytes = (int(connection.pragma(name)) for name in ("page_count", "page_size"))
    return pages * page_bytes - present <= _free_bytes(connection)


def _free_bytes(connection: apsw.Connection) -> float:
    try:
        disk = os.statvfs(Path(connection.filename).parent)
    except OSError:
        return float("inf")
    return disk.f_bavail * disk.f_frsize
