"""Recognize if another file or folder has taken a path. A new clone, a newly mounted disk or a copy
has the same path as the folder before it, but another identity.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

_BORN: Final = 0x800
"""STATX_BTIME, of `statx(2)`: the flag for the creation time."""
_HERE: Final = -100
"""AT_FDCWD: resolve a path from the current directory."""
_STATX_BYTES: Final = 256
_MASK_AT, _BORN_AT = 0, 80
"""Offsets in `struct statx` of the mask of filled fields and of the creation time: seconds (64
bits), then nanoseconds (32 bits).
"""


def identity_of(path: Path) -> str:
    """Return a text that identifies the file or folder at `path`, stable across reboots; "" if
    nothing exists there.

    Uses the creation time where the file system records it, since inode numbers are reused, and
    some file systems assign new ones at every mount.
    """
    try:
        status = path.stat()
    except OSError:
        return ""
    birth = _birth_ns(path, status)
    return f"born {birth}" if birth else f"inode {status.st_ino}"


def seen_as(path: Path) -> tuple[int, int] | None:
    """Return the device and inode numbers of `path`; None if nothing exists there. A cheap check,
    within one process, that the path still leads to the same file.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def born_after(path: Path, moment_ns: int) -> bool:
    """Return True if the file was created at or after `moment_ns` (nanoseconds since 1970). False
    if not, or if the creation time is unknown.
    """
    try:
        return _birth_ns(path, path.stat()) >= moment_ns
    except OSError:
        return False


def _birth_ns(path: Path, status: os.stat_result) -> int:
    """Return the creation time in nanoseconds since 1970, or 0 if it is unknown."""
    if sys.platform == "linux":
        call = _statx()
        return 0 if call is None else call(path)
    return int(getattr(status, "st_birthtime", 0) * 1e9)


@cache
def _statx() -> Callable[[Path], int] | None:
    """Return a function that reads the creation time by `statx(2)`, which Python's `os.stat` omits
    on Linux; None if the C library lacks it.
    """
    import ctypes  # loaded already in a process that watches a folder

    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None  # a C library from before 2018

    def birth_of(path: Path) -> int:
        found = ctypes.create_string_buffer(_STATX_BYTES)
        if statx(_HERE, os.fsencode(path), 0, _BORN, found) != 0:
            return 0
        known = int.from_bytes(found.raw[_MASK_AT : _MASK_AT + 4], sys.byteorder)
        if not known & _BORN:
            return 0
        seconds = int.from_bytes(found.raw[_BORN_AT : _BORN_AT + 8], sys.byteorder, signed=True)
        return seconds * 1_000_000_000 + int.from_bytes(found.raw[_BORN_AT + 8 : _BORN_AT + 12], sys.byteorder)

    return birth_of
