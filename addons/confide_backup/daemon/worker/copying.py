"""Files copied as they are, hashed on the way, and on the disk at the end; what equals its copy of last time becomes a hard link."""

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
"""So much is written before it is brought to the disk: a backlog of gigabytes would make everybody's next commit wait."""
_NO_LINKS: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
)
# os_unix.c: where SQLite's shared lock lies in a database file.
_SHARED_FIRST: Final = 0x40000000 + 2
_SHARED_SIZE: Final = 510
_LOCK_S: Final = 10.0

Follow = Callable[[int], None]
"""Told of bytes that were read."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A file of a snapshot, as it was written."""

    size: int
    hash: bytes
    is_linked: bool  # to that of the last snapshot


def copy(source: int, target: Path, *, size: int | None, previous: Path | None, follow: Follow) -> Copied:
    """Copies a file from an open descriptor.

    Args:
        size: so many bytes from its beginning; None: all.
        previous: the copy of the last snapshot, compared byte by byte: what a bad disk has made of it is not linked on.
        follow: told of every piece.

    Raises OSError; FileExistsError where the target is there; StorageError: the source is shorter than `size`.
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
                # As it goes: a gigabyte of the copy would push out what a small machine keeps of the databases that are searched.
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
def unopened(path: Path) -> Iterator[tuple[int, int | None]]:
    """Descriptors of a database that nobody has open, and of its log where there is one, while nobody folds that in.

    Within this SQLite's shared lock is held: a command beside the daemon, such as `confided doctor`, may open the file and read it, but as
    the last one that closes it leaves the log alone. Raises StorageError: another process writes to it; OSError.
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
    """Size and hash of a file; with `target`, which must not be there, it is copied on the way. Raises OSError."""
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
    """The hash, where the file that was copied last time has these bytes and no others."""
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
        return None  # it cannot be read: then it is written anew
    finally:
        _forget_cached(other)
        os.close(other)


def _pieces(descriptor: int, size: int | None) -> Iterator[bytes]:
    if hasattr(os, "POSIX_FADV_NOREUSE"):
        with suppress(OSError):
            # Nothing that is read here counts as used (Linux 6.3): what is searched stays in memory before it.
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
    """What is in a snapshot is not read again soon; the memory is for what is searched."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
