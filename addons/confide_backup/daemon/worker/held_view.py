"""One state of a database, held while its files are copied byte by byte and while it is asked.

In SQLite's write-ahead mode a state is the database file plus the log up to some frame. As long as a read transaction sees it, the log is
not begun anew; what is folded into the file meanwhile are frames of that part of the log, which the copy has too
(https://sqlite.org/walformat.html). Where the whole log was folded in already, the reader uses the file alone, and nobody folds anything
more into that. So file and that part of the log make up just this state, whoever writes meanwhile.

Which part it is SQLite tells without doing anything (`SQLITE_CHECKPOINT_NOOP`), yet not inside of a transaction. So it is asked before and
behind the beginning of one, over another connection, until both say the same: no writer has to wait for that.

POSIX drops all locks of a process on a file when the process closes any descriptor of it, SQLite's own too (os_unix.c). So this belongs in
a process that has the database open for nothing else, and the descriptors that are copied from are closed behind the connections.
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
    """What is to be copied, and asked."""

    store: Store  # inside of the transaction; of a registry, of which only the connection is of use
    file: int  # a descriptor of the database
    log: int | None  # of its log; None where the state needs none of it
    log_bytes: int  # so much of the log from its beginning


@contextmanager
def held_view(path: Path, key: bytes) -> Iterator[HeldView]:
    """Holds the newest state of the database within this.

    Raises StorageError: it cannot be opened, or is changed so fast that no state could be held; WrongKeyError, DamagedError.
    """
    with ExitStack() as stack:
        file = _opened(path, stack)
        assert file is not None
        log = _opened(path.with_name(path.name + "-wal"), stack, may_lack=True)
        probe = connect(path, key, writer=False)
        stack.callback(close, probe)
        if log is None:  # the connection has made it
            log = _opened(path.with_name(path.name + "-wal"), stack, may_lack=True)
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
    """How many frames of the log count, how many of them are folded in, and which log it is: it is begun anew with another salt."""
    frames, folded = probe.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return frames, folded, b"" if log is None else os.pread(log, _WAL_HEADER, 0)[_SALT]


def _opened(path: Path, stack: ExitStack, *, may_lack: bool = False) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if may_lack:
            return None
        raise StorageError(f"cannot {_DOING}: its file is gone") from None
    stack.callback(os.close, descriptor)
    return descriptor
