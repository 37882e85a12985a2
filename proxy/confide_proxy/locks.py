"""Locks between the processes of this device: on a file, or on a named role.

The operating system holds all of them, and releases them when their holder ends, even by a crash.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Final

from confide_crypto import portable
from confide_crypto.keys.private_files import make_closed_dirs

LOOK_AGAIN_S: Final = 0.01
"""Seconds between attempts for a lock that is held; holders need it for about one round trip."""
SEAT_AGAIN_S: Final = 0.5
"""Seconds between attempts for a `Seat` that is held; an attempt costs one system call."""


def lock_file(file: Path) -> int:
    """Open a lock file, create it if it is missing, and return its descriptor. Raises OSError."""
    return os.open(file, os.O_RDWR | os.O_CREAT | portable.CLOSED | portable.NO_LINK, 0o600)


def try_lock(descriptor: int, *, wait_s: float = 0.0) -> bool:
    """Lock the file, and return True; return False if another process holds it for all of `wait_s`.

    Raises OSError if the file system has no locks.
    """
    end = time.monotonic() + wait_s
    while True:
        try:
            portable.lock(descriptor)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(LOOK_AGAIN_S)
        else:
            return True


class Seat:
    """A role that one process of this device holds at a time, such as watching a folder, streaming
    a transcript or replaying the journal.

    A process that does not hold it tries again every `SEAT_AGAIN_S`. `try_take` and `leave` touch
    the disk briefly.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Prepare the lock of the role `name`, as a file in `folder`, without taking it."""
        digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        self._file = folder / f"{digest}.lock"
        self._fd: int | None = None
        self._seen = (0, 0.0)
        """The holder's last sign of life, and when this process first saw it, on its own clock."""
        self.is_taken = False
        """True if this process holds the role."""

    def try_take(self) -> bool:
        """Take the role unless another process holds it; return True if this process holds it now.

        Never waits. Raises OSError if the folder is not writable.
        """
        if self.is_taken:
            return True
        if self._fd is None:  # stays open, so that another attempt is one system call
            make_closed_dirs(self._file.parent)
            self._fd = lock_file(self._file)
        self.is_taken = try_lock(self._fd)
        return self.is_taken

    def show_life(self) -> None:
        """Show the processes that wait that the holder is not frozen. Raises OSError."""
        if self.is_taken and self._fd is not None:
            os.utime(self._fd)

    def silent_s(self) -> float:
        """Return for how many seconds this process has seen no new `show_life` of the holder; 0 at its
        first look.

        A clock that is set, or a device that wakes up, says nothing about the holder.
        """
        try:
            shown = os.fstat(self._fd).st_mtime_ns if self._fd is not None else 0
        except OSError:
            return 0.0
        if shown != self._seen[0]:
            self._seen = (shown, time.monotonic())
        return time.monotonic() - self._seen[1] if shown else 0.0

    def leave(self) -> None:
        """Release the role, or stop trying for it."""
        self.is_taken = False
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.leave()
