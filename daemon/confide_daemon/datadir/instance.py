"""The lock that makes a daemon the only one of its data folder, and a small file with the daemon's
address.

The kernel releases the lock when the process ends, however it ends. Proxies on the same computer
use the address to find a daemon that was started on demand. The file may be stale, because a killed
process does not delete it. So a reader trusts the address only after it has connected.

The module uses the standard library only: a daemon that is started on demand takes the lock before
it imports anything large, so that a second one exits at once.
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
    """The content of the file `daemon.address`."""

    url: str  # `confide://host:port`
    key: str  # the daemon's public key as `confide join --pin` takes it
    pid: int  # the process that serves
    version: str  # of the daemon
    listens: str = ""  # the host it is bound to, `0.0.0.0` for every interface; "": an older version does not say


def listen_address(url: str, host: str) -> str:
    """Return the `host:port` on which a daemon listens that has this `url` and is bound to `host`."""
    return f"{f'[{host}]' if ':' in host else host}:{url.rpartition(':')[2].strip('/')}"


def write(path: Path, address: Address) -> None:
    """Write the address file atomically, with mode 0600. Raises OSError if the folder is not
    writable or the disk is full.
    """
    atomic.write(path, json.dumps(asdict(address)).encode(), is_kept=False)


def read(path: Path) -> Address | None:
    """Return the content of the address file, or None if there is none or it cannot be read."""
    try:
        return Address(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def remove(path: Path) -> None:
    """Delete the address file. The daemon does this just before it releases the lock."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


class DaemonLock:
    """The lock of a data folder. It is held until `release` is called or the process ends."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def take(cls, path: Path) -> DaemonLock | None:
        """Take the lock at `path` and return it, or return None if another process holds it. Raises
        OSError if the file cannot be created or opened.
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
        """Release the lock. The file is not deleted, because then two processes could lock
        different files.
        """
        os.close(self._handle)
