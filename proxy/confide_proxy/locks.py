"""Locks between the processes of this machine: on a file, on a seat that one of them has.

All are locks of the kernel's, which lets them go when their holder ends, however it ends: nobody has to be told of a crash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Final

from confide_crypto.keys.private_files import make_closed_dirs

LOOK_AGAIN_S: Final = 0.01
"""What another process holds is tried for again so soon: it is done within a round trip."""
SEAT_AGAIN_S: Final = 0.5
"""How often to try for a seat that is taken; a try costs a system call."""


def lock_file(file: Path) -> int:
    """A descriptor of a file to lock, made where there is none. Raises OSError."""
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def taken(descriptor: int, *, wait_s: float = 0.0) -> bool:
    """Whether the lock on a file is ours now; False where another process does not let go of it in time.

    Raises OSError: this file system has no locks.
    """
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(LOOK_AGAIN_S)
        else:
            return True


class Seat:
    """A seat that one process has at a time: who watches a folder, who streams a transcript, who replays the journal.

    Whoever finds it taken looks again every `SEAT_AGAIN_S`. `try_take` and `leave` touch the disk briefly.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """`name` is of the seat, below `folder`."""
        digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        self._file = folder / f"{digest}.lock"
        self._fd: int | None = None
        self.is_taken = False
        """Whether this process holds it."""

    def try_take(self) -> bool:
        """Sit down if nobody else has; True also where it is ours already. Raises OSError: the folder cannot be written to."""
        if self.is_taken:
            return True
        if self._fd is None:  # and it stays open, so that to look again is one system call
            make_closed_dirs(self._file.parent)
            self._fd = lock_file(self._file)
        self.is_taken = taken(self._fd)
        return self.is_taken

    def show_life(self) -> None:
        """Let those who look for the seat see that its holder is not frozen. Raises OSError."""
        if self.is_taken and self._fd is not None:
            os.utime(self._fd)

    def silent_s(self) -> float:
        """For how many seconds a holder has shown no life; 0 where that cannot be told."""
        try:
            return max(0.0, time.time() - os.fstat(self._fd).st_mtime) if self._fd is not None else 0.0
        except OSError:
            return 0.0

    def leave(self) -> None:
        """Let another have it, or stop trying."""
        self.is_taken = False
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.leave()
