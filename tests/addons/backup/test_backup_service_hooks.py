"""Programs of the operator's: what they are told, and what becomes of those that fail or hang."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.daemon.backups import Backed
from tests.support.deadline import DEADLINE_S

from confide_backup.daemon import backup_schedule
from confide_backup.daemon.manifest import database_of
from confide_backup.errors import HookError

TELL = "import json, os, sys; json.dump([sys.argv[1:], os.getcwd()], open(sys.argv[1], 'w'))"


async def test_it_is_told_which_snapshot(filled: Backed, tmp_path: Path) -> None:
    """As arguments and without a shell; braces that are no place stay."""
    told = tmp_path / "told"
    filled.configure(after=(sys.executable, "-c", TELL, str(told), "{snapshot}::{name}", "$HOME {other}"))
    made = await filled.take()
    arguments, folder = json.loads(told.read_text())
    assert arguments[1:] == [f"{filled.folder(made)}::{made.id}", "$HOME {other}"]
    assert folder == str(filled.target.folder)


async def test_one_that_fails_is_told_and_the_snapshot_stays(filled: Backed) -> None:
    filled.configure(after=("false",))
    with pytest.raises(HookError, match=r"the program false .* ended with 1"):
        await filled.take()
    assert len(filled.target.ids()) == 1
    filled.configure(after=("/no/such/program",))
    with pytest.raises(HookError, match="cannot be started"):
        await filled.take()


async def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"has not ended within 0\.1 s, and was ended"):
        await backup_schedule.run(("sleep", "600"), {}, timeout_s=0.1, folder=tmp_path)


async def test_one_that_hangs_is_ended_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a child that takes no notice of being asked; here since the daemon ends."""
    monkeypatch.setattr(backup_schedule, "END_S", 0.2)
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sh -c \"trap '' TERM; echo \\$\\$ >> {pids}; while :; do sleep 60; done\" & echo $$ >> {pids}; wait"
    running = asyncio.create_task(backup_schedule.run(("sh", "-c", script), {}, timeout_s=600, folder=tmp_path))
    async with asyncio.timeout(DEADLINE_S):
        while not pids.exists() or len(pids.read_text().split()) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    assert not [pid for pid in pids.read_text().split() if _lives(int(pid))]


def _lives(pid: int) -> bool:
    """One that nobody has asked how it ended does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def run(*command: str, **env: str) -> None:
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


async def test_borg_keeps_a_snapshot_and_gives_it_back(
    filled: Backed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options that the page has; what comes back is proven as it is."""
    borg, repository = program("borg"), str(tmp_path / "borg")
    for name in ("BORG_CONFIG_DIR", "BORG_CACHE_DIR", "BORG_SECURITY_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
    run(borg, "init", "--encryption", "none", repository)
    filled.configure(
        after=(borg, "create", "--chunker-params", "fixed,16384", repository + "::{name}", "{snapshot}"),
        fetch=(borg, "extract", repository + "::{name}"),
    )
    await _is_brought_back(filled)


async def test_restic_keeps_a_snapshot_and_gives_it_back(
    filled: Backed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restic, repository = program("restic"), str(tmp_path / "restic")
    monkeypatch.setenv("RESTIC_PASSWORD", "heron")
    monkeypatch.setenv("RESTIC_CACHE_DIR", str(tmp_path / "cache"))
    run(restic, "init", "--repo", repository)
    filled.configure(
        after=(restic, "backup", "--repo", repository, "--tag", "{name}", "{snapshot}"),
        fetch=(restic, "restore", "latest", "--repo", repository, "--tag", "{name}", "--target", "{folder}"),
    )
    await _is_brought_back(filled)


async def _is_brought_back(backed: Backed) -> None:
    made = await backed.take()
    assert database_of(backed.space()) in made.files
    backed.target.remove(made.id)
    found = await backed.verify(made.id)
    assert (found["snapshot"], found["verdict"]) == (made.id, "proven")
    assert not list(backed.target.folder.glob(".fetched-*"))
