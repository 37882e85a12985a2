"""The common steps of replacing a database file by a copy: a check for disk space, and a swap that
can be interrupted at any moment.

The path always leads to a complete database: the copy is on the disk before it gets the name, and
no log outlives the file it belongs to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from confide_crypto import atomic
from confide_daemon.errors import StorageError
from confide_daemon.store.database import connect, storage_errors


def check_room(path: Path, size_bytes: int, problem: str, then: str) -> None:
    """Raise StorageError if the disk has no room for a copy of `size_bytes` beside the file.

    `problem`: the error message; `then`: the end of its hint, after "free 12 MB".
    """
    if shutil.disk_usage(path.parent).free < size_bytes:
        raise StorageError(problem, hint=f"free {size_bytes / 1e6:.0f} MB{then}")


def empty_log(path: Path, key: bytes, doing: str) -> None:
    """Copy the write-ahead log into the file that is about to be replaced, and remove the log:
    SQLite would otherwise apply it to the new file.

    `doing` describes the work in error messages. Raises StorageError if another process has the
    file open.
    """
    connection = connect(path, key, writer=True, damaged=True)
    with storage_errors(doing):
        connection.set_busy_timeout(0)  # all readers and writers wait for this
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        connection.close()
    if busy:
        raise StorageError(
            f"cannot {doing}: another process reads it",
            hint="end confided doctor, and others like it; it is tried again",
        )
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)


def put_in_place(copy: Path, path: Path) -> None:
    """Rename a finished copy to the database's name. On return the rename is on the disk. The old
    file's log must have been removed (`empty_log`).
    """
    copy.replace(path)
    atomic.sync(path.parent)
