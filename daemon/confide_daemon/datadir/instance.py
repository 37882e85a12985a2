"""Where the running daemon can be reached: a small file beside its lock.

Sessions on the same machine find a daemon that was started on demand through it. It can be stale (a killed process removes nothing), so
a reader believes it only after a connection.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Address:
    """What `daemon.address` holds.

    Attributes:
        url: `confide://host:port`.
        key: the daemon's public key as `confide pin` takes it.
        pid: the process that serves.
        version: of the daemon.
    """

    url: str
    key: str
    pid: int
    version: str


def write(path: Path, address: Address) -> None:
    """Write the file so that a reader sees a whole one or none (mode 0600).

    Raises:
        OSError: the folder is not writable or full.
    """
    part = path.with_suffix(f".{os.getpid()}.tmp")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(address), file)
    part.replace(path)


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
