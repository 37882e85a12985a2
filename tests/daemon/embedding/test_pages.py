"""What a process gives back of its memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import numpy as np, psutil
from confide_daemon.embedding.memory import pages
own = psutil.Process()
before = own.memory_info().rss
pages.give_back()
after = own.memory_info().rss
assert np.linalg.norm(np.ones((64, 64)) @ np.ones((64, 64))) == 4096
print(before - after)
"""
LEAST = 2_000_000
"""Bytes: of Python and numpy alone it is some ten million."""


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux tells of a process what it has mapped")
def test_pages_of_libraries_are_let_go_and_read_again() -> None:
    """The process takes less, and goes on."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > LEAST
