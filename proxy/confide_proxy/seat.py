"""A seat that one process of this machine holds at a time: who watches a folder, who streams a transcript, who replays the journal.

It is a lock on a file, which the kernel lets go when its holder ends, however it ends. So nobody has to be told of a crash: the others
look again every `LOOK_AGAIN_S` and one of them sits down.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path

LOOK_AGAIN_S = 0.5
"""How often to try for a seat that is taken; a try costs a system call."""


class Seat:
    """The seat named `name` below `folder`. `try_take` and `leave` touch the disk briefly."""

    def __init__(self, folder: Path, name: str) -> None:
        digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        self._file = folder / f"{digest}.lock"
        self._fd: int | None = None
        self._is_taken = False

    @property
    def is_taken(self) -> bool:
        """Whether this process holds it."""
        return self._is_taken

    def try_take(self) -> bool:
        """Sit down if nobody else has; True also where it is ours already.

        Raises:
            OSError: the folder cannot be written to.
        """
        if self._is_taken:
            return True
        if self._fd is None:  # and it stays open, so that to look again is one system call
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._is_taken = True
        return True

    def show_life(self) -> None:
        """Let those who look for the seat see that its holder is not frozen. Raises OSError."""
        if self._is_taken and self._fd is not None:
            os.utime(self._fd)

    def silent_s(self) -> float:
        """For how many seconds a holder has shown no life; 0 where that cannot be told."""
        try:
            return max(0.0, time.time() - os.fstat(self._fd).st_mtime) if self._fd is not None else 0.0
        except OSError:
            return 0.0

    def leave(self) -> None:
        """Let another have it, or stop trying."""
        self._is_taken = False
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.leave()
