"""What every copy that takes the place of a database has in common: room for it, and a swap that can be interrupted at any moment.

The name always leads to a whole database: the copy is on the disk before it takes the name, and no log outlives the file it belongs to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from confide_crypto import atomic
from confide_daemon.errors import StorageError
from confide_daemon.store.database import connect, storage_errors


def check_room(path: Path, size_bytes: int, problem: str, then: str) -> None:
    """Raises StorageError where the disk cannot take a copy beside the file.

    `problem`: what cannot be done, and why; `then`: what happens behind "free 12 MB".
    """
    if shutil.disk_usage(path.parent).free < size_bytes:
        raise StorageError(problem, hint=f"free {size_bytes / 1e6:.0f} MB{then}")


def empty_log(path: Path, key: bytes, doing: str) -> None:
    """Folds and removes the log of a file that is about to be replaced: one that outlived it would be taken for the new one's.

    Raises StorageError: another process holds the file; `doing` is for the error.
    """
    connection = connect(path, key, writer=True, damaged=True)
    with storage_errors(doing):
        connection.set_busy_timeout(0)  # everybody waits for this
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
    """Gives the copy the name of the file, on the disk on return; the log of the file must be gone (`empty_log`)."""
    copy.replace(path)
    atomic.sync(path.parent)
