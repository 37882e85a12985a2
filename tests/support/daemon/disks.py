"""Small file systems, to be filled: only root can mount them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mounted(folder: Path, options: str) -> bool:
    """Whether a small file system could be mounted there; only root can."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def remount(folder: Path, options: str) -> None:
    """The same with other options, such as its size."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


@contextmanager
def small(folder: Path) -> Iterator[Path]:
    """8 MiB in a new folder until the end of this; the test is skipped where nothing can be mounted."""
    folder.mkdir()
    if not mounted(folder, "size=8m"):
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
