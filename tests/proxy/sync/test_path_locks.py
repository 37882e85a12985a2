"""A path that another process of this machine holds: waited for, but not for ever."""

from __future__ import annotations

import asyncio
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
    async with path_locks(pathlib.Path(sys.argv[1])).hold("memory/a.md"):
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
        with pytest.raises(FolderError, match="is stopped"):
            async with locks.hold("memory/a.md"):
                pass
        async with locks.hold("memory/b.md"):
            pass
    async with locks.hold("memory/a.md"):
        pass


async def test_one_holder_at_a_time_however_many_paths_there_were(tmp_path: Path) -> None:
    """What is let go of may be waited for: it is not forgotten then, however many other paths are."""
    locks = ledger.PathLocks(tmp_path / "locks")
    for number in range(1023):
        async with locks.hold(f"memory/{number}.md"):
            pass
    inside, most = 0, 0

    async def step() -> None:
        nonlocal inside, most
        async with locks.hold("memory/a.md"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.TaskGroup() as group:
        async with locks.hold("memory/a.md"):
            group.create_task(step())
            await asyncio.sleep(0)
        # Let go of and not taken yet: the one who waits has still to be woken.
        for _ in range(3):
            async with locks.hold("memory/b.md"):
                pass
            group.create_task(step())
    assert most == 1


async def test_nothing_is_kept_of_a_path_that_nobody_has(tmp_path: Path) -> None:
    """Also where a wait for it was given up."""
    locks = ledger.PathLocks(tmp_path / "locks")
    async with locks.hold("memory/a.md"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), locks.hold("memory/a.md"):
                pass
        assert locks.count == 1
    assert locks.count == 0
