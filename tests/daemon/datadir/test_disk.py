"""How much room there has to be, and what is told of it."""

from __future__ import annotations

import asyncio
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_daemon.datadir import disk
from confide_daemon.datadir.disk import Disk

GIB = 1 << 30
Usage: Any = namedtuple("usage", "total used free")


@pytest.mark.parametrize(
    ("total", "free", "is_low"),
    [
        (8, 0.99, True),
        (8, 1.01, False),
        (100, 4.9, True),
        (100, 5.1, False),
        (4000, 9.9, True),
        (4000, 10.1, False),
    ],
)
def test_a_gigabyte_or_a_twentieth_has_to_be_free_and_never_more_than_ten(
    total: int, free: float, is_low: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Disk(Path())
    assert found.has_room_for("vectors")
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: Usage(total * GIB, 0, int(free * GIB)))
    found.look()
    assert found.is_low == is_low
    assert found.has_room_for("vectors") != is_low
    assert found.waiting == (["vectors"] if is_low else [])


async def test_who_waits_is_told_of_room_that_is_enough_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes more than the least, which the first step would take again, are not. A disk that does not answer stays as it was."""
    free = [GIB - 1]

    def usage(_folder: Path) -> Any:
        if free[0] < 0:
            raise OSError(5, "input/output error")
        return Usage(8 * GIB, 0, free[0])

    monkeypatch.setattr(disk.shutil, "disk_usage", usage)
    monkeypatch.setattr(disk, "LOOK_S", 0.0)
    found, told, gone = Disk(Path()), asyncio.Event(), asyncio.Event()
    found.listen(told.set)
    found.listen(gone.set)
    found.forget(gone.set)
    found.look()
    for little in (GIB + 1, -1):
        free[0] = little
        found.look()
        assert not found.has_room_for("snapshots")
        assert found.waiting == ["snapshots"]
    watching = asyncio.create_task(found.watch())
    free[0] = 2 * GIB
    async with asyncio.timeout(DEADLINE_S):
        await told.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert not found.waiting
    assert not gone.is_set()


async def test_a_listener_that_breaks_ends_the_looking_for_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other thread is gone, or a fault of ours: the next look tells who waits then, and the log says where it broke and no more."""
    free = [GIB - 1]
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: Usage(8 * GIB, 0, free[0]))
    monkeypatch.setattr(disk, "LOOK_S", 0.0)
    found, told, broke = Disk(Path()), asyncio.Event(), asyncio.Event()

    def breaks() -> None:
        broke.set()
        raise RuntimeError("can't start new thread")

    found.listen(breaks)
    found.look()
    watching = asyncio.create_task(found.watch())
    free[0] = 2 * GIB
    async with asyncio.timeout(DEADLINE_S):
        await broke.wait()
        found.forget(breaks)
        found.listen(told.set)
        free[0] = GIB - 1
        while not found.is_low:  # noqa: ASYNC110 - it looks in a thread
            await asyncio.sleep(0)
        free[0] = 2 * GIB
        await told.wait()
    watching.cancel()
    assert any("looking at the disk broke: RuntimeError at " in said for said in caplog.messages)
    assert "new thread" not in caplog.text
