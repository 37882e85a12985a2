"""A path that another process of this machine holds: waited for, but not for ever."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from confide_proxy.errors import FolderError
from confide_proxy.sync import ledger

HOLD = """
import asyncio, pathlib, sys
from confide_proxy.sync.ledger import path_locks

async def hold():
    async with path_locks(pathlib.Path(sys.argv[1])).held("memory/a.md"):
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(hold())
"""


@contextmanager
def holding(file: Path) -> Iterator[None]:
    """Another process has the path until the end of the block, where it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.kill()


async def test_a_holder_that_stands_still_is_waited_for_with_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "locks"
    locks = ledger.path_locks(file)
    with holding(file):
        monkeypatch.setattr(ledger, "LONGEST_STEP_S", 0.2)
        with pytest.raises(FolderError, match="stands still"):
            async with locks.held("memory/a.md"):
                pass
        async with locks.held("memory/b.md"):
            pass
    async with locks.held("memory/a.md"):
        pass
