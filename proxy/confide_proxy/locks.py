"""Locks between the processes of this device: on a file, or on a named role.

The operating system holds all of them, and releases a lock when its process ends, even by a crash.
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
    """Open a lock file, created if it is missing, and return its descriptor. Raises OSError if that
    fails.
    """
    return os.open(file, os.O_RDWR | os.O_CREAT | portable.CLOSED | portable.NO_LINK, 0o600)


def try_lock(descriptor: int, *, wait_s: float = 0.0) -> bool:
    """Lock a file, and return True. Return False if another process holds the lock for all of
    `wait_s` seconds.

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
    """A role that only one process of this device has at a time, such as watching a folder,
    streaming a transcript or replaying the journal. It is a lock on a file.

    A process that does not have the role tries again every `SEAT_AGAIN_S` seconds. `try_take` and
    `leave` access the disk briefly.
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
        """Take the role unless another process has it. Return True if this process has it now.

        Never waits. Raises OSError if the folder of the lock file is not writable.
        """
        if self.is_taken:
            return True
        if self._fd is None:  # stays open, so that another attempt is one system call
            make_closed_dirs(self._file.parent)
            self._fd = lock_file(self._file)
        self.is_taken = try_lock(self._fd)
        return self.is_taken

    def show_life(self) -> None:
        """Show other processes that this one, which has the role, is not frozen. Raises OSError if
        the lock file cannot be changed.
        """
        if self.is_taken and self._fd is not None:
            os.utime(self._fd)

    def silent_s(self) -> float:
        """Return for how many seconds this process has seen no new call of `show_life` by the
        process that has the role; 0 at the first look.

        The time is measured on this process's own clock, so a changed system time or a sleep of the
        device does not count.
        """
        try:
            shown = os.fstat(self._fd).st_mtime_ns if self._fd is not None else 0
        except OSError:
            return 0.0
        if shown != self._seen[0]:
            self._seen = (shown, time.monotonic())
        return time.monotonic() - self._seen[1] if shown else 0.0

    def leave(self) -> None:
        """Give up the role, or stop trying for it."""
        self.is_taken = False
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.leave()
