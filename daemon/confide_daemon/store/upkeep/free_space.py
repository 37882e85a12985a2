"""Returns the disk space of deleted data to the file system. All of it runs outside of
transactions.

A database made by this version has `auto_vacuum = INCREMENTAL`: its free pages are cut off in small
steps. An older one is rewritten once as a whole (`compact`). That occupies the writer as long as
copying the file does, while readers continue with the log. The full-text table is merged as well:
FTS5 keeps deleted words until the segments that contain them are merged
(https://sqlite.org/fts5.html, "merge").
"""

from __future__ import annotations

import os
from typing import Final

from confide_daemon.store.database import BUSY_MS, Table, storage_errors

# Less is not worth moving pages for: the next documents use it.
WORTH_BYTES: Final = 256 * 1024
_STEP_PAGES: Final = 256  # 1 MiB: 10 ms of the writer
_MERGE_PAGES: Final = 64
_INCREMENTAL: Final = 2


class FreeSpace(Table):
    """Free pages in the database file, and its log."""

    def give_back(self) -> int:
        """Cut off some free pages; return the number of bytes, or 0 if too little is free."""
        with storage_errors("shorten the database"):
            connection = self._database.connection
            free = int(connection.pragma("freelist_count"))
            size = int(connection.pragma("page_size"))
            if free * size < WORTH_BYTES or int(connection.pragma("auto_vacuum")) != _INCREMENTAL:
                return 0
            connection.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
            return (free - int(connection.pragma("freelist_count"))) * size

    def merge_words(self, *, begin: bool) -> bool:
        """Run a step of merging the full-text table into one segment without deleted words; return
        False when it is finished.
        """
        with storage_errors("merge the keyword index"):
            connection = self._database.connection
            before = connection.total_changes()
            pages = -_MERGE_PAGES if begin else _MERGE_PAGES
            connection.execute("INSERT INTO keyword (keyword, rank) VALUES ('merge', ?)", (pages,))
            return connection.total_changes() - before >= 2

    def optimize_words(self) -> None:
        """Remove all deleted words from the full-text table; fast if `merge_words` has finished
        before.
        """
        with storage_errors("merge the keyword index"):
            self._database.connection.execute("INSERT INTO keyword (keyword) VALUES ('optimize')")

    def is_old(self) -> bool:
        """Return True if the file cannot be shortened in steps and the disk has room to rewrite it."""
        with storage_errors("read the database"):
            if int(self._database.connection.pragma("auto_vacuum")) == _INCREMENTAL:
                return False
        path = self._database.path
        disk = os.statvfs(path.parent)
        # Room for the copy and for the log that brings it into the file.
        return disk.f_bavail * disk.f_frsize > 2.5 * path.stat().st_size

    def compact(self) -> None:
        """Rewrite the whole file so that it can be shortened in steps later; searches continue,
        writes wait.
        """
        with storage_errors("rewrite the database"):
            self._database.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._database.connection.execute("VACUUM")

    def fold_log(self) -> bool:
        """Copy the log into the file and empty it; return False if a reader prevents it."""
        with storage_errors("fold the log into the database"):
            connection = self._database.connection
            connection.set_busy_timeout(0)
            try:
                return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            finally:
                connection.set_busy_timeout(BUSY_MS)
