"""Which folder has a path now: a clone made anew, a disk that was mounted there or a copy put in its place has the path of another one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

_BORN: Final = 0x800
"""STATX_BTIME, of `statx(2)`."""
_HERE: Final = -100
"""AT_FDCWD."""
_STATX_BYTES: Final = 256
_MASK_AT, _BORN_AT = 0, 80
"""Where `struct statx` has what it knows, and the time of birth: seconds (64 bits) and nanoseconds (32)."""


def identity_of(path: Path) -> str:
    """What tells this folder or file from every other one that had its path, also after a reboot; "" where there is none.

    The time of its birth where the file system keeps it, since inode numbers are given again, and by some file systems at every mount.
    """
    try:
        status = path.stat()
    except OSError:
        return ""
    birth = _birth_ns(path, status)
    return f"born {birth}" if birth else f"inode {status.st_ino}"


def seen_as(path: Path) -> tuple[int, int] | None:
    """Device and inode, by which a running process tells cheaply whether something else is there now; None where nothing is."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def born_after(path: Path, moment_ns: int) -> bool:
    """Whether it was made after a time, in nanoseconds since 1970; False where that is not known."""
    try:
        return _birth_ns(path, path.stat()) >= moment_ns
    except OSError:
        return False


def _birth_ns(path: Path, status: os.stat_result) -> int:
    """0 where it is not known."""
    if sys.platform == "linux":
        call = _statx()
        return 0 if call is None else call(path)
    return int(getattr(status, "st_birthtime", 0) * 1e9)


@cache
def _statx() -> Callable[[Path], int] | None:
    """`os.stat` of Python leaves the time of birth out on Linux."""
    import ctypes  # who watches a folder has it loaded

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
