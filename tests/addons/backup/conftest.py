"""A daemon with a target beside it, on a disk that may be small."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.backups import Backed, fill
from tests.support.daemon.loopback import Serving, machine

from confide_backup.daemon import target


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target need not keep a gigabyte free."""
    monkeypatch.setattr(target, "LEAST_FREE", 0)
    monkeypatch.setattr(target, "LEAST_FREE_SHARE", 0)


@pytest.fixture
async def backed(daemon: Serving, tmp_path: Path) -> Backed:
    """Nothing is stored yet."""
    return Backed(daemon, tmp_path / "target")


@pytest.fixture
async def filled(backed: Backed) -> AsyncIterator[Backed]:
    """A space with notes, whose machine is connected."""
    async with machine(backed.daemon) as laptop:
        await laptop.attach("proj")
        await fill(laptop, 25)
        yield backed
