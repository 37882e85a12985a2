"""The single daemon of a data folder: its lock, and a small file with its address.

The kernel drops the lock when the process ends, however it ends. Sessions on the same computer find
a daemon that was started on demand by the address. It can be stale (a killed process removes
nothing), so a reader trusts it only after a connection.

Standard library only: a daemon started on demand takes the lock before it imports anything heavy,
so that the second of two exits at once.
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
    """The content of `daemon.address`."""

    url: str  # `confide://host:port`
    key: str  # the daemon's public key as `confide join --pin` takes it
    pid: int  # the process that serves
    version: str  # of the daemon
    listens: str = ""  # the host it is bound to, `0.0.0.0` for every interface; "": an older version does not say


def listen_address(url: str, host: str) -> str:
    """Return the `host:port` on which a daemon with this `url`, bound to `host`, listens."""
    return f"{f'[{host}]' if ':' in host else host}:{url.rpartition(':')[2].strip('/')}"


def write(path: Path, address: Address) -> None:
    """Write the file atomically (mode 0600). Raises OSError if the folder is not writable or full."""
    atomic.write(path, json.dumps(asdict(address)).encode(), is_kept=False)


def read(path: Path) -> Address | None:
    """Return the last address written, or None if no readable one exists."""
    try:
        return Address(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def remove(path: Path) -> None:
    """Delete the address, as the daemon's last step before it releases the lock."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


class DaemonLock:
    """The lock of a data folder, held until `release` or the end of the process."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def take(cls, path: Path) -> DaemonLock | None:
        """Return the lock at `path`, or None while another process holds it. Raises OSError if the
        file cannot be created or opened.
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
        """Release the lock. The file stays: deleting it would let two processes lock different
        files.
        """
        os.close(self._handle)
