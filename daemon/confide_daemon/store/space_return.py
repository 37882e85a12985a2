"""Gives the room of what was deleted back to the file system, as SQL.

A database made by this version has `auto_vacuum = INCREMENTAL`: its free pages are cut off in small steps. An older one is rewritten once
as a whole (`compact`), which takes its writer as long as copying it, while readers go on with the log. Full text is merged as well:
FTS5 keeps what is deleted until the segments that hold it are merged (https://sqlite.org/fts5.html, "merge").
"""

# ruff: noqa: S608 - only names and numbers of our own are put into SQL

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import apsw

from confide_daemon.store.health import MIRRORS

# Less is not worth the moving: the next documents use it.
WORTH_BYTES: Final = 256 * 1024
_STEP_PAGES: Final = 256  # 1 MiB: 10 ms of the writer
_MERGE_PAGES: Final = 64
_INCREMENTAL: Final = 2


def give_back(connection: apsw.Connection) -> int:
    """Cuts off some free pages; how many bytes were, 0 when it is not worth more."""
    free = int(connection.pragma("freelist_count"))
    size = int(connection.pragma("page_size"))
    if free * size < WORTH_BYTES or int(connection.pragma("auto_vacuum")) != _INCREMENTAL:
        return 0
    connection.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
    return (free - int(connection.pragma("freelist_count"))) * size


def merge(connection: apsw.Connection, *, begin: bool) -> bool:
    """A step of merging the full text into one segment; False when there is nothing more to do."""
    moved = False
    for mirror in MIRRORS:
        before = connection.total_changes()
        pages = -_MERGE_PAGES if begin else _MERGE_PAGES
        connection.execute(f"INSERT INTO {mirror.table} ({mirror.table}, rank) VALUES ('merge', {pages})")
        moved |= connection.total_changes() - before >= 2
    return moved


def is_old(connection: apsw.Connection) -> bool:
    """Whether the file cannot be shortened in steps, and there is room on the disk to rewrite it."""
    if int(connection.pragma("auto_vacuum")) == _INCREMENTAL:
        return False
    path = Path(connection.filename)
    disk = os.statvfs(path.parent)
    # Once for the copy, once for the log that carries it into the file.
    return disk.f_bavail * disk.f_frsize > 2.5 * path.stat().st_size


def compact(connection: apsw.Connection) -> None:
    """Rewrites the whole file, and makes it one that can be shortened in steps."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")


def fold_log(connection: apsw.Connection) -> bool:
    """Brings the log into the file and empties it, unless somebody reads; whether it could."""
    connection.set_busy_timeout(0)
    try:
        return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
    finally:
        connection.set_busy_timeout(5000)
