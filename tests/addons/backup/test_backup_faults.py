"""Killed, or on a full disk, at any step of taking, proving and letting go: what is listed is whole, and one proven one is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.daemon.backups import Backed
from tests.support.deadline import DEADLINE_S

from confide_backup.daemon import target
from confide_backup.daemon.backup_service import BackupRequest
from confide_backup.daemon.worker import worker_process
from confide_backup.errors import TargetError
from confide_daemon.errors import StorageError

ROOT = Path(__file__).parents[3]
STRIDE = int(os.environ.get("CONFIDE_BACKUP_STRIDE", "19"))
"""Every 19th step in the suite, each kind of fault at others; all of them, of some 250, in `make chaos`."""
PIECE_BYTES = os.environ.get("CONFIDE_BACKUP_PIECE", str(1 << 20))


def test_a_night_that_is_cut_off_anywhere_leaves_what_is_listed_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.kills.backup_kills", str(tmp_path), str(STRIDE), PIECE_BYTES]
    deadline_s = DEADLINE_S if STRIDE > 1 else 7200
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=deadline_s)
    assert done.returncode == 0, done.stderr
    points = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(points) == 2 * len(range(1, points[0]["steps"] + 1, STRIDE))
    assert not [point for point in points if point["wrong"]]
    assert {point["ending"] for point in points if point["kind"] == "kill"} == {"killed"}


async def test_a_disk_without_enough_room_is_told_before_anything_is_written(
    filled: Backed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the target for a snapshot, and of the data folder for a verification."""
    await filled.take()
    monkeypatch.setattr(target, "LEAST_FREE", 1 << 60)
    with pytest.raises(TargetError, match="has too little room") as caught:
        await filled.take()
    assert caught.value.hint
    with pytest.raises(StorageError, match="cannot open copies there"):
        await filled.verify()
    assert len(filled.target.ids()) == 1
    assert not [entry for entry in filled.target.folder.iterdir() if entry.name.startswith(".p")]


async def test_two_at_once_wait_for_each_other_and_another_process_is_told(
    filled: Backed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "WAIT_S", 0.05)
    async with filled.target.alone():
        with pytest.raises(TargetError, match="is in use by another confided"):
            await filled.take()


async def test_a_worker_that_dies_is_told_and_leaves_nothing(filled: Backed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the kernel, for want of memory."""
    monkeypatch.setattr(worker_process.sys, "executable", "/bin/true")
    with pytest.raises(StorageError, match="the process that makes backups has ended"):
        await filled.backups.do(BackupRequest("take"), lambda *_: None)
    assert not filled.target.ids()
    assert {entry.name for entry in filled.target.folder.iterdir()} == {target.MARKER, ".lock"}
