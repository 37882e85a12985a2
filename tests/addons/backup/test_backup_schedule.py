"""What the daemon does about backups by itself, and what it tells of them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import Clock
from tests.support.daemon.backups import Backed, fill
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.founder import Device

from confide_backup.daemon import operator as desk
from confide_backup.daemon import sealed_keys
from confide_backup.daemon.target import BackupTarget, signers_of
from confide_backup.daemon.worker import worker_process
from confide_backup.settings import BackupConfig
from confide_daemon.access.registry import create, open_state
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir import disk
from confide_daemon.datadir.paths import DataFolder


def ready(data: Path, target: Path) -> None:
    """As `confided init` and `confided backup init` leave it."""
    folder = DataFolder(data)
    create(folder)
    state = open_state(folder)
    BackupTarget(target).prepare(signers_of(state), data=data)
    sealed_keys.make(folder)
    state.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - it is told of nowhere
            await asyncio.sleep(0.05)


def health(daemon: Serving) -> str:
    try:
        with urllib.request.urlopen(daemon.url.replace("confide://", "http://") + "/health") as answer:
            return str(json.load(answer)["status"])
    except urllib.error.HTTPError as error:
        return str(json.load(error)["reason"])


async def test_a_night_that_was_missed_is_made_up_for_and_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was off at that hour. A locked space is proven when its machine comes; the hook and the metrics tell of it all."""
    monkeypatch.setattr(desk, "TICK_S", 0.05)
    monkeypatch.setattr(desk, "LOOK_S", 0.05)
    ready(tmp_path / "data", tmp_path / "target")
    told = tmp_path / "told"
    hook = (sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + '\\n')", str(told), "{name}")
    async with serving(tmp_path / "data", keeper="caller") as daemon:
        identity = daemon.enroll("laptop")
        device = Device(identity)
        async with Machine(await daemon.connect_in_time(identity)) as laptop:
            await device.found(laptop)
            await device.unlock(laptop)
            await laptop.attach("proj")
            await fill(laptop, 2)
    config = DaemonConfig(tables={"backup": BackupConfig(to=str(tmp_path / "target"), at="00:00", after=hook)})
    async with serving(tmp_path / "data", config=config, keeper="caller") as daemon:
        backed = Backed(daemon, tmp_path / "target")

        def said() -> str | None:
            newest = backed.backups.history(backed.target).newest
            return None if newest is None else newest.status_text

        await until(lambda: said() == "proven but for 1 locked")
        await until(told.exists)
        async with Machine(await daemon.connect_in_time(identity)) as laptop:
            await device.unlock(laptop)
            await until(lambda: said() == "proven")
        assert len(backed.target.ids()) == 1
        shown = ""
        async with asyncio.timeout(DEADLINE_S):
            while "confided_backup_last_proven_timestamp_seconds 1" not in shown:
                shown = await daemon.daemon.operator.metrics.text()
        assert "confided_backup_spaces_unproven 0.0" in shown
        daemon.state.registry.revoke("laptop")
        # Somebody in the daemon notices; the keys that ended go elsewhere at once.
        await until(lambda: len(told.read_text().splitlines()) == 2)
    first, second = told.read_text().splitlines()
    assert first == backed.target.ids()[0]
    assert second.startswith("revoked-")
    assert identity.public_key.hex() in (tmp_path / "target" / "revoked").read_text()


async def test_health_says_so_when_a_space_has_no_proven_snapshot_that_is_young(filled: Backed, clock: Clock) -> None:
    """A new space has the time until it would be late; one that could not be proven is late all the same."""
    made = await filled.take()
    spaces = [filled.space()]

    def late(days: float) -> list[str]:
        history = filled.backups.history(filled.target)
        return history.unproven(spaces, now=made.at + days * 86_400, max_age_s=3 * 86_400)

    assert late(1) == []
    assert late(4) == spaces
    await filled.verify()
    assert late(1) == []
    assert late(4) == spaces
    spaces.append("one that came since")
    assert late(1) == []
    assert late(4) == sorted(spaces)
    assert late(-400) == sorted(spaces)  # the clock was put right since: it says nothing of how old it is


async def test_the_nightly_one_waits_while_there_is_little_room_and_is_taken_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that an operator asks for is taken all the same: the target may be another disk."""
    monkeypatch.setattr(desk, "TICK_S", 0.05)
    monkeypatch.setattr(disk, "LOOK_S", 0.05)
    usage: Any = namedtuple("usage", "total used free")
    free = [disk.LEAST_BYTES - 1]
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _path: usage(8 << 30, 0, free[0]))
    ready(tmp_path / "data", tmp_path / "target")
    config = DaemonConfig(tables={"backup": BackupConfig(to=str(tmp_path / "target"), at="00:00")})
    async with serving(tmp_path / "data", config=config) as daemon:
        backed = Backed(daemon, tmp_path / "target")
        await until(lambda: daemon.daemon.spaces.disk.waiting == ["snapshots"])
        assert 'confided_waiting_for_room{what="snapshots"} 1.0' in await daemon.daemon.operator.metrics.text()
        assert not backed.target.ids()
        free[0] = 8 << 30
        await until(lambda: (newest := backed.backups.history(backed.target).newest) and newest.status_text == "proven")
        free[0] = disk.LEAST_BYTES - 1
        await until(lambda: daemon.daemon.spaces.disk.is_low)
        await backed.take()
        assert len(backed.target.ids()) == 2


async def test_without_its_disk_the_daemon_serves_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is mounted there is an empty folder now: nothing is written into that."""
    monkeypatch.setattr(desk, "TICK_S", 0.05)
    (tmp_path / "away").mkdir()
    config = DaemonConfig(tables={"backup": BackupConfig(to=str(tmp_path / "away"), at="00:00")})
    async with serving(tmp_path / "data", config=config) as daemon, machine(daemon) as laptop:
        await laptop.attach("proj")
        await fill(laptop, 1)
        daemon.state.registry.revoke("laptop")
        await until(lambda: health(daemon) == "backup")
    assert not list((tmp_path / "away").iterdir())


async def test_a_process_that_is_cut_off_as_it_starts_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a daemon that ends that very moment."""
    start, made, is_made = asyncio.create_subprocess_exec, [], asyncio.Event()

    async def slow(*command: str, **options: Any) -> asyncio.subprocess.Process:
        made.append(await start(*command, **options))
        is_made.set()
        await asyncio.sleep(0)
        return made[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    working = asyncio.create_task(worker_process.working().__aenter__())
    await is_made.wait()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert made[0].returncode is not None


async def test_a_target_that_cannot_be_written_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As under a systemd unit that does not name it: nobody waits for three nights without a backup."""
    ready(tmp_path / "data", tmp_path / "target")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "target" and access(path, mode))
    config = DaemonConfig(tables={"backup": BackupConfig(to=str(tmp_path / "target"))})
    async with serving(tmp_path / "data", config=config) as daemon:
        await until(lambda: health(daemon) == "backup")
    assert "target cannot be written: permission denied" in caplog.text
