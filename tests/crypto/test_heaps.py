"""What a process gives back to the system is no loss to it, whatever its C library."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable

import pytest

from confide_crypto import heaps


@pytest.mark.parametrize("call", [heaps.give_back, heaps.give_back_files, lambda: heaps.share(8)])
def test_another_c_library_is_no_error(call: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    call()


CODE = """
import numpy as np, psutil
from confide_crypto import heaps
own = psutil.Process()
before = own.memory_info().rss
heaps.give_back_files()
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
