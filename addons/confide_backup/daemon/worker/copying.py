"""Copies files to the disk and hashes them on the way. A copy that equals the previous one becomes
a hard link to it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_backup.daemon.manifest import HASH_BYTES
from confide_daemon.errors import StorageError

PIECE_BYTES: Final = 1 << 20
SYNC_BYTES: Final = 4 << 20
"""Bytes between syncs: a backlog of gigabytes would delay the next commit of every process."""
_NO_LINKS: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
)
# os_unix.c: the position of SQLite's shared lock in a database file.
_SHARED_FIRST: Final = 0x40000000 + 2
_SHARED_SIZE: Final = 510
_LOCK_S: Final = 10.0

Follow = Callable[[int], None]
"""Called with the number of bytes read."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that was copied to a snapshot."""

    size: int
    hash: bytes
    is_linked: bool  # to that of the last snapshot


def copy(source: int, target: Path, *, size: int | None, previous: Path | None, follow: Follow) -> Copied:
    """Copy a file from an open descriptor.

    Args:
        size: number of bytes to copy from its beginning; None for all.
        previous: the copy in the last snapshot, or None. It is compared byte by byte, so that a
            copy that a bad disk has damaged is not linked again.
        follow: called after every piece.

    Raise OSError if the disk fails, FileExistsError if the target exists, and StorageError if the
    source is shorter than `size`.
    """
    wanted = os.fstat(source).st_size if size is None else size
    if previous is not None and (found := _same(source, previous, wanted, follow)) is not None:
        try:
            os.link(previous, target, follow_symlinks=False)
            return Copied(wanted, found, True)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
    digest, done, synced = hashlib.blake2b(digest_size=HASH_BYTES), 0, 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for piece in _pieces(source, size):
            digest.update(piece)
            _write(descriptor, piece)
            done += len(piece)
            follow(len(piece))
            if done - synced >= SYNC_BYTES:
                os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)
                # Drops pages early: a gigabyte of the copy would evict cached databases on a small
                # device.
                _forget_cached(descriptor)
                synced = done
        os.fsync(descriptor)
        _forget_cached(descriptor)
    finally:
        os.close(descriptor)
    if size is not None and done != size:
        raise StorageError("cannot copy the database: it became shorter meanwhile", hint="it is tried again")
    return Copied(done, digest.digest(), False)


@contextmanager
def open_closed(path: Path) -> Iterator[tuple[int, int | None]]:
    """Open descriptors of a database that no process has open, and of its write-ahead log, or None
    if it has none. Keep the log unchanged within the context.

    Holds SQLite's shared lock: another command, such as `confided doctor`, can read the database,
    but closing it leaves the log unchanged. Raise StorageError if another process writes to it, and
    OSError if a file cannot be opened.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    log = None
    try:
        deadline = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
                break
            except (BlockingIOError, PermissionError):
                if time.monotonic() > deadline:
                    raise StorageError("cannot copy the database: another process holds it") from None
                time.sleep(0.02)
        with suppress(FileNotFoundError):
            log = os.open(path.with_name(path.name + "-wal"), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        yield file, log
    finally:
        if log is not None:
            os.close(log)
        os.close(file)


def hash_file(path: Path, follow: Follow, *, target: Path | None = None) -> tuple[int, bytes]:
    """Return the size and hash of a file. With `target`, which must not exist, also copy it there.
    Raise OSError if the disk fails.
    """
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if target is not None:
            copied = copy(source, target, size=None, previous=None, follow=follow)
            return copied.size, copied.hash
        digest, size = hashlib.blake2b(digest_size=HASH_BYTES), 0
        for piece in _pieces(source, None):
            digest.update(piece)
            size += len(piece)
            follow(len(piece))
        _forget_cached(source)
        return size, digest.digest()
    finally:
        os.close(source)


def _same(source: int, previous: Path, size: int, follow: Follow) -> bytes | None:
    """Return the hash if the previous copy has exactly these bytes, or None."""
    try:
        other = os.open(previous, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(other).st_size != size:
            return None
        digest = hashlib.blake2b(digest_size=HASH_BYTES)
        for piece, then in zip(_pieces(source, size), _pieces(other, size), strict=False):
            if piece != then:
                return None
            digest.update(piece)
            follow(len(piece))
        return digest.digest()
    except OSError:
        return None  # unreadable: the file is copied instead
    finally:
        _forget_cached(other)
        os.close(other)


def _pieces(descriptor: int, size: int | None) -> Iterator[bytes]:
    if hasattr(os, "POSIX_FADV_NOREUSE"):
        with suppress(OSError):
            # Reads here do not count as use (Linux 6.3), so cached databases stay in memory.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_NOREUSE)
    place = 0
    while size is None or place < size:
        most = PIECE_BYTES if size is None else min(PIECE_BYTES, size - place)
        piece = os.pread(descriptor, most, place)
        if not piece:
            return
        place += len(piece)
        yield piece


def _write(descriptor: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(descriptor, left) :]


def _forget_cached(descriptor: int) -> None:
    """Drop the file from the page cache: a snapshot is not read again soon, databases are."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
