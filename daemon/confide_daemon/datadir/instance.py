"""The one daemon of a data folder: its lock, and where it can be reached, a small file beside that.

The kernel drops the lock when the process ends, however it ends. Sessions on the same machine find a daemon that was started on demand
through the address. It can be stale (a killed process removes nothing), so a reader believes it only after a connection.

Standard library only: a daemon started on demand takes the lock before it imports anything heavy, so that the one of two that comes second
is gone at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from confide_crypto import atomic


@dataclass(frozen=True, slots=True)
class Address:
    """What `daemon.address` holds."""

    url: str  # `confide://host:port`
    key: str  # the daemon's public key as `confide join --pin` takes it
    pid: int  # the process that serves
    version: str  # of the daemon
    listens: str = ""  # the host it is bound to, `0.0.0.0` for every interface; "": an older version does not say


def bound(url: str, host: str) -> str:
    """What a daemon that has this `url` and is bound to `host` listens on, as `host:port`."""
    return f"{f'[{host}]' if ':' in host else host}:{url.rpartition(':')[2].strip('/')}"


def write(path: Path, address: Address) -> None:
    """Write the file so that a reader sees a whole one or none (mode 0600). Raises OSError where the folder is not writable or full."""
    atomic.write(path, json.dumps(asdict(address)).encode(), is_kept=False)


def read(path: Path) -> Address | None:
    """The address that was last written, or None where there is none that can be read."""
    try:
        return Address(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def remove(path: Path) -> None:
    """Take the address away, as the last thing a daemon does before it gives back the lock."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


class DaemonLock:
    """The lock of a data folder, held until `release` or the end of the process."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def take(cls, path: Path) -> DaemonLock | None:
        """The lock at `path`, or None while another process holds it. Raises OSError where the file cannot be made or opened."""
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
