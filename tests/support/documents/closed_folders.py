"""Folders that this user may not list or enter, for root too, who may otherwise read all."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_VERSION = 0x20080522
_READS_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextmanager
def closed(folder: Path, mode: int = 0o000) -> Iterator[None]:
    """Give a folder this mode, and hold this thread to it, and those that it starts meanwhile."""
    before = folder.stat().st_mode
    folder.chmod(mode)
    try:
        with _as_others():
            yield
    finally:
        folder.chmod(before)


@contextmanager
def _as_others() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    if not sys.platform.startswith("linux"):
        pytest.skip("root may read everything")
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    had = (ctypes.c_uint32 * 6)()
    libc.capget(header, had)
    less = (ctypes.c_uint32 * 6)(*had)
    less[0] &= ~_READS_ALL
    libc.capset(header, less)
    try:
        yield
    finally:
        libc.capset(header, had)
