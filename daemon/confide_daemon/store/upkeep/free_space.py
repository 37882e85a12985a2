"""Gives the room of what was deleted back to the file system. All of it outside of any transaction.

A database made by this version has `auto_vacuum = INCREMENTAL`: its free pages are cut off in small steps. An older one is rewritten once
as a whole (`compact`), which takes its writer as long as copying it, while readers go on with the log. Full text is merged as well:
FTS5 keeps what is deleted until the segments that hold it are merged (https://sqlite.org/fts5.html, "merge").
"""

from __future__ import annotations

import os
from typing import Final

from confide_daemon.store.database import BUSY_MS, Table, storage_errors

# Less is not worth the moving: the next documents use it.
WORTH_BYTES: Final = 256 * 1024
_STEP_PAGES: Final = 256  # 1 MiB: 10 ms of the writer
_MERGE_PAGES: Final = 64
_INCREMENTAL: Final = 2


class FreeSpace(Table):
    """What is free in the database file, and its log."""

    def give_back(self) -> int:
        """Cuts off some free pages; how many bytes were, 0 when it is not worth more."""
        with storage_errors("shorten the database"):
            connection = self._database.connection
            free = int(connection.pragma("freelist_count"))
            size = int(connection.pragma("page_size"))
            if free * size < WORTH_BYTES or int(connection.pragma("auto_vacuum")) != _INCREMENTAL:
                return 0
            connection.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
            return (free - int(connection.pragma("freelist_count"))) * size

    def merge_words(self, *, begin: bool) -> bool:
        """A step of merging the full text into one segment, without what was deleted; False when there is nothing more to do."""
        with storage_errors("merge the keyword index"):
            connection = self._database.connection
            before = connection.total_changes()
            pages = -_MERGE_PAGES if begin else _MERGE_PAGES
            connection.execute("INSERT INTO keyword (keyword, rank) VALUES ('merge', ?)", (pages,))
            return connection.total_changes() - before >= 2

    def optimize_words(self) -> None:
        """Leaves no word of what was deleted in the full text; `merge_words` comes before it, so that it takes little."""
        with storage_errors("merge the keyword index"):
            self._database.connection.execute("INSERT INTO keyword (keyword) VALUES ('optimize')")

    def is_old(self) -> bool:
        """Whether the file cannot be shortened in steps, and there is room on the disk to rewrite it."""
        with storage_errors("read the database"):
            if int(self._database.connection.pragma("auto_vacuum")) == _INCREMENTAL:
                return False
        path = self._database.path
        disk = os.statvfs(path.parent)
        # Once for the copy, once for the log that carries it into the file.
        return disk.f_bavail * disk.f_frsize > 2.5 * path.stat().st_size

    def compact(self) -> None:
        """Rewrites the whole file, and makes it one that can be shortened in steps; searches go on, writes wait."""
        with storage_errors("rewrite the database"):
            self._database.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._database.connection.execute("VACUUM")

    def fold_log(self) -> bool:
        """Brings the log into the file and empties it, unless somebody reads; whether it could."""
        with storage_errors("fold the log into the database"):
            connection = self._database.connection
            connection.set_busy_timeout(0)
            try:
                return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            finally:
                connection.set_busy_timeout(BUSY_MS)
