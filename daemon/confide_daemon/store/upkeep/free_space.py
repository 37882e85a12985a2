"""Returns the disk space of deleted data to the file system. All of it runs outside of
transactions.

A database made by this version has `auto_vacuum = INCREMENTAL`: its free pages are cut off in small
steps. An older database is rewritten once as a whole (`compact`). That takes the writer as long as
copying the file, while readers continue with the log. The full-text table is merged as well: FTS5
keeps deleted words until the segments that contain them are merged (https://sqlite.org/fts5.html,
"merge").
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
    """Returns free pages of the database file to the disk, and empties its write-ahead log."""

    def give_back(self) -> int:
        """Cut off some free pages from the file; return how many bytes that saved, 0 if too little
        is free.
        """
        with storage_errors("shorten the database"):
            connection = self._database.connection
            free = int(connection.pragma("freelist_count"))
            size = int(connection.pragma("page_size"))
            if free * size < WORTH_BYTES or int(connection.pragma("auto_vacuum")) != _INCREMENTAL:
                return 0
            connection.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
            return (free - int(connection.pragma("freelist_count"))) * size

    def merge_words(self, *, begin: bool) -> bool:
        """Run one step of merging the full-text table into one segment without deleted words;
        return False once nothing is left to merge. `begin`: True for the first step.
        """
        with storage_errors("merge the keyword index"):
            connection = self._database.connection
            before = connection.total_changes()
            pages = -_MERGE_PAGES if begin else _MERGE_PAGES
            connection.execute("INSERT INTO keyword (keyword, rank) VALUES ('merge', ?)", (pages,))
            return connection.total_changes() - before >= 2

    def optimize_words(self) -> None:
        """Remove all deleted words from the full-text table. This is fast if `merge_words` has
        finished before.
        """
        with storage_errors("merge the keyword index"):
            self._database.connection.execute("INSERT INTO keyword (keyword) VALUES ('optimize')")

    def recount_words(self) -> None:
        """Correct the full-text table's own counts of rows and words.

        A deletion from a table without content leaves the counts as they were (fts5_storage.c,
        `sqlite3Fts5StorageDelete`). They influence every BM25 score, which would reveal that
        something was deleted. They are in row 1 of the table's data: varints of the number of rows,
        then of each column's words (fts5_index.c, `FTS5_AVERAGES_ROWID`). FTS5 reads them again in
        the next connection.
        """
        with storage_errors("count the keyword index"):
            connection = self._database.connection
            totals = [0]
            for (sizes,) in connection.execute("SELECT sz FROM keyword_docsize"):
                found = [1, *_varints(sizes)]
                totals += [0] * (len(found) - len(totals))
                totals = [total + size for total, size in zip(totals, found, strict=True)]
            block = b"".join(map(_varint, totals))
            connection.execute("UPDATE keyword_data SET block = ? WHERE id = 1", (block,))

    def is_old(self) -> bool:
        """Return True if an older version made the file, so that it cannot be shortened in steps,
        and the disk has room to rewrite it.
        """
        with storage_errors("read the database"):
            if int(self._database.connection.pragma("auto_vacuum")) == _INCREMENTAL:
                return False
        path = self._database.path
        disk = os.statvfs(path.parent)
        # Room for the copy and for the log that brings it into the file.
        return disk.f_bavail * disk.f_frsize > 2.5 * path.stat().st_size

    def compact(self) -> None:
        """Rewrite the whole file, so that it can be shortened in steps later. Searches continue
        meanwhile; writes wait.
        """
        with storage_errors("rewrite the database"):
            self._database.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._database.connection.execute("VACUUM")

    def fold_log(self) -> bool:
        """Copy the write-ahead log into the file and empty it; return False if a reader prevents
        that.
        """
        with storage_errors("fold the log into the database"):
            connection = self._database.connection
            connection.set_busy_timeout(0)
            try:
                return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            finally:
                connection.set_busy_timeout(BUSY_MS)


def _varint(number: int) -> bytes:
    """Return a number below 2**56 as SQLite writes it: seven bits a byte, the highest first."""
    found = [number & 0x7F]
    while number := number >> 7:
        found.append(number & 0x7F | 0x80)
    return bytes(reversed(found))


def _varints(data: bytes) -> list[int]:
    """Return the numbers below 2**56 that SQLite wrote one behind the other."""
    found, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(number)
            number = 0
    return found
