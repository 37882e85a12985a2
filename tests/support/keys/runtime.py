"""A runtime folder in memory, as a login makes one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def runtime_folder() -> Iterator[Path]:
    """A folder of mode 0700 on tmpfs, gone afterwards; skips the test where the system has none."""
    memory = Path("/dev/shm")
    mounts = Path("/proc/self/mounts")
    if not mounts.exists() or " /dev/shm tmpfs " not in mounts.read_text():
        pytest.skip("no file system in memory at /dev/shm")
    with tempfile.TemporaryDirectory(prefix="confide-test-", dir=memory) as folder:
        yield Path(folder)
