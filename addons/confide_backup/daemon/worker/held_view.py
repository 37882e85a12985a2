"""Holds one state of a database while its files are copied byte by byte and while it is queried.

In SQLite's write-ahead mode, a state is the database file plus the log up to some frame. While a
read transaction uses that state, the log is not restarted. Checkpoints meanwhile only write frames
of that part of the log, which the copy has too (https://sqlite.org/walformat.html). If the whole
log was checkpointed already, the reader uses the file alone, and no checkpoint changes it. So the
file and that part of the log are exactly this state, in spite of concurrent writes.

SQLite reports that part without side effects (`SQLITE_CHECKPOINT_NOOP`), but not inside a
transaction. So a second connection asks for it before and after the transaction begins, until both
reports are equal. No writer has to wait.

POSIX drops all locks of a process on a file when the process closes any descriptor of it, including
SQLite's (os_unix.c). So this must run in a process that does not have the database open otherwise,
and the copied descriptors are closed after the connections.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from confide_daemon.errors import StorageError
from confide_daemon.store.database import close, connect, storage_errors
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.vector_scan import VectorScan

TRIES: Final = 1000
_DOING: Final = "hold the database still for a copy"
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_SALT: Final = slice(16, 24)
_PAGE_SIZE: Final = slice(8, 12)


@dataclass(frozen=True, slots=True)
class HeldView:
    """Access to the held state of a database, to copy its files and to query it."""

    store: Store  # in the transaction; for a registry, only its connection is used
    file: int  # a descriptor of the database
    log: int | None  # of its log; None if the state does not need it
    log_bytes: int  # bytes of the log that belong to the state


@contextmanager
def held_view(path: Path, key: bytes) -> Iterator[HeldView]:
    """Hold the newest state of the database within the context.

    Raise WrongKeyError if the key is not the database's, DamagedError if the database is damaged,
    and StorageError if it cannot be opened or changes too fast to hold a state.
    """
    with ExitStack() as stack:
        file = _open(path, stack)
        assert file is not None
        log = _open(path.with_name(path.name + "-wal"), stack, may_lack=True)
        probe = connect(path, key, writer=False)
        stack.callback(close, probe)
        if log is None:  # the connection has made it
            log = _open(path.with_name(path.name + "-wal"), stack, may_lack=True)
        connection = connect(path, key, writer=False)
        stack.callback(close, connection)
        with storage_errors(_DOING):
            for _ in range(TRIES):
                before = _position(probe, log)
                connection.execute("BEGIN DEFERRED")
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                if before == _position(probe, log):
                    break
                connection.execute("ROLLBACK")
            else:
                raise StorageError(f"cannot {_DOING}: it is written to all the time", hint="it is tried again")
            if os.fstat(file).st_ino != path.stat().st_ino:
                raise StorageError(f"cannot {_DOING}: it was replaced meanwhile", hint="it is tried again")
            frames, folded, _ = before
            store = Store(connection, VectorScan(), path=path, key=key)
            if log is None or frames in (0, folded):
                yield HeldView(store, file, None, 0)
            else:
                page_bytes = int.from_bytes(os.pread(log, _WAL_HEADER, 0)[_PAGE_SIZE], "big")
                yield HeldView(store, file, log, _WAL_HEADER + frames * (_FRAME_HEADER + page_bytes))
            connection.execute("ROLLBACK")


def _position(probe: apsw.Connection, log: int | None) -> tuple[int, int, bytes]:
    """Return the log's number of valid frames, the number checkpointed, and its salt, which changes
    when the log restarts.
    """
    frames, folded = probe.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return frames, folded, b"" if log is None else os.pread(log, _WAL_HEADER, 0)[_SALT]


def _open(path: Path, stack: ExitStack, *, may_lack: bool = False) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if may_lack:
            return None
        raise StorageError(f"cannot {_DOING}: its file is missing") from None
    stack.callback(os.close, descriptor)
    return descriptor
