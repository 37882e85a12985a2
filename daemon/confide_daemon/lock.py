"""One daemon a data folder: a lock that the kernel drops when its process ends, however it ends.

Standard library only: a daemon started on demand takes it before it imports anything heavy, so that the one of two that comes second
is gone at once.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DaemonLock:
    """The lock of a data folder, held until `release` or the end of the process."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def take(cls, path: Path) -> DaemonLock | None:
        """The lock at `path`, or None while another process holds it.

        Raises:
            OSError: the file cannot be made or opened.
        """
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:  # a file system without locks
            os.close(handle)
            raise
        return cls(handle)

    def release(self) -> None:
        """Give the folder back. The file stays: removing it would let two processes lock different files."""
        os.close(self._handle)
