"""A snapshot is one state of everything, whoever writes meanwhile, and whatever is closed or locked."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.support.daemon.backups import Backed, fill
from tests.support.daemon.loopback import Serving, machine

COPIES = int(os.environ.get("CONFIDE_BACKUP_COPIES", "2"))
"""Under a writer; `make chaos` takes 200."""


async def test_a_copy_is_the_state_that_its_manifest_names_while_a_machine_writes(
    backed: Backed, daemon: Serving, tmp_path: Path
) -> None:
    """Copies under a writer who goes on and on: each opens, holds just that change, and breaks nothing that must hold."""
    async with machine(daemon) as writer:
        await writer.attach("proj")
        await fill(writer, 20)

        async def write() -> None:
            number = 1000
            while True:
                await fill(writer, 1, first=number)
                number += 1
                await asyncio.sleep(0.005)  # it is not the writer that is measured

        writing = asyncio.create_task(write())
        seen = []
        for _ in range(COPIES):
            made = await backed.take()
            space = made.spaces[backed.space()]
            assert space.change is not None
            assert space.questions == 20
            assert backed.changes(made, backed.space(), tmp_path / "scratch") == space.change
            seen.append(space.change)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    assert seen == sorted(set(seen))  # it did write meanwhile


async def test_the_files_that_sqlite_locks_are_not_touched_by_the_daemon_itself(
    backed: Backed, daemon: Serving, tmp_path: Path
) -> None:
    """POSIX would drop the locks of all its connections: another process that closes the file then takes itself for the last one."""
    async with machine(daemon) as writer:
        await writer.attach("proj")
        await fill(writer, 3)
        before = _locks(daemon.state.folder.space(backed.space()))
        await backed.take()
        assert before
        assert _locks(daemon.state.folder.space(backed.space())) == before


def _locks(path: Path) -> int:
    """How many locks this process has on the file (proc_locks(5))."""
    inode = path.stat().st_ino
    return sum(f":{inode} " in line for line in Path("/proc/locks").read_text().splitlines())
