"""One path of a folder is handled by one step at a time, in all processes of this machine: an edit on its way up and a revision on its
way down must not cross, whichever of them each is in.

Within a process that is a lock of asyncio's. Between processes it is a record lock on one byte of a file, which the kernel lets go when
its holder ends; a lock file for each path would be thousands of them.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from confide_proxy.errors import FolderError

LOOK_AGAIN_S = 0.01
"""A path that another process handles is tried again so soon: it is done within a round trip."""
LONGEST_STEP_S = 300.0
"""More than a file of the largest size has for being sent and indexed."""
_REMEMBERED = 1024
_OFFSETS = 2**62


@functools.cache
def path_locks(file: Path) -> PathLocks:
    """The locks in `file`: one object in a process, since to close a file lets go of every record lock that the process has in it."""
    return PathLocks(file)


class PathLocks:
    """Locks by path, below one file that is made when it is first needed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fd: int | None = None
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def held(self, path: str) -> AsyncIterator[None]:
        """Wait for the path, and hold it.

        Raises:
            FolderError: another process of this machine has held it for longer than any step takes: it stands still.
        """
        async with self._lock(path):
            offset = int.from_bytes(hashlib.blake2b(path.encode(errors="surrogateescape"), digest_size=8).digest())
            offset %= _OFFSETS
            try:
                async with asyncio.timeout(LONGEST_STEP_S):
                    while not self._try(offset):  # noqa: ASYNC110 - another process lets go of it, which no event tells
                        await asyncio.sleep(LOOK_AGAIN_S)
            except TimeoutError:
                raise FolderError(path, "is held by another confide process that stands still") from None
            try:
                yield
            finally:
                self._let_go(offset)

    def _lock(self, path: str) -> asyncio.Lock:
        if len(self._locks) > _REMEMBERED:
            self._locks = {known: lock for known, lock in self._locks.items() if lock.locked()}
        return self._locks.setdefault(path, asyncio.Lock())

    def _try(self, offset: int) -> bool:
        try:
            if self._fd is None:
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):  # as POSIX lets a system say that it is taken
            return False
        except OSError:
            return True  # a file system without locks, or a full disk: the daemon merges what crosses
        return True

    def _let_go(self, offset: int) -> None:
        if self._fd is not None:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, offset)
            except OSError:
                return
