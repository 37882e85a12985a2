"""A snapshot becomes a data folder again, whole or not at all, whatever is wrong with it, the keys, the disk or the moment."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.backups import Backed, fill
from tests.support.daemon.loopback import Machine, serving

from confide_backup.daemon import manifest, snapshot_restore, target
from confide_backup.daemon.snapshot_restore import ByCode, ByFiles, RestoreResult
from confide_backup.errors import SnapshotError
from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import create, open_state
from confide_daemon.access.revocations import Revocations
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import AlreadyServedError, DataFolderError, StorageError
from confide_daemon.store.tables.receipt_table import NUMBERS

FLIPS = int(os.environ.get("CONFIDE_FLIPPED_BITS", "3"))
"""In each file."""
STRIDE = int(os.environ.get("CONFIDE_BACKUP_STRIDE", "7"))
"""1: every step is killed, and the disk is full at every size."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot of a daemon that is gone since."""

    folder: Path
    code: RecoveryCode
    keys: Path
    laptop: Identity
    gone: Identity


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """Two machines, of which one is revoked after the snapshot, and an open invite."""
    place = tmp_path_factory.mktemp("taken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "LEAST_FREE", 0)
        patch.setattr(target, "LEAST_FREE_SHARE", 0)
        return asyncio.run(_take(place))


async def _take(place: Path) -> Taken:
    async with serving(place / "data") as daemon:
        backed = Backed(daemon, place / "target")
        laptop, gone = daemon.enroll("laptop"), daemon.enroll("gone")
        async with Machine(await daemon.connect(laptop)) as machine:
            await machine.attach("proj")
            await fill(machine, 3)
        daemon.invite("later")
        made = await backed.take()
        daemon.state.registry.revoke("gone")
        Revocations.from_backup_folder(backed.target.folder, daemon.state).keep(daemon.state.registry)
        keys = place / "keys"
        keys.mkdir()
        for name in ("identity.key", "master.key"):
            shutil.copy2(daemon.state.folder.root / name, keys)
        return Taken(backed.folder(made), backed.code, keys, laptop, gone)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


class Here:
    """A machine on which nothing is."""

    def __init__(self, root: Path) -> None:
        self.data = DataFolder(root / "place" / "daemon")
        self.config_file = root / "place" / "daemon.toml"

    def restore(self, taken: Taken, *, keys: restore.Keys | None = None, **more: Any) -> RestoreResult:
        source = keys or ByCode(taken.code)
        return snapshot_restore.restore(taken.folder, self.data, source, config_file=self.config_file, **more)

    def is_untouched(self) -> bool:
        """Nothing that a daemon would serve, nor what it is made in."""
        return not self.data.root.exists() and not list(self.data.root.parent.glob("*.restoring"))

    def check_whole(self, taken: Taken) -> None:
        state = open_state(self.data)
        try:
            assert [caller.alias for caller in state.registry.callers()] == ["laptop"]
            for space_id in state.registry.spaces().values():
                if self.data.space(space_id).exists():
                    assert self.data.restore_marker(space_id).exists()
            with state.registry.reading() as database:
                assert database.execute("SELECT count(*) FROM invites").fetchall() == [(0,)]
        finally:
            state.close()
        for file in self.data.root.rglob("*"):
            assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize("by", ["code", "files", "credential"])
async def test_it_is_served_as_it_was(
    taken: Taken, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """With the devices of then, but for the one that was revoked since; revisions go on above all that were ever given."""
    keys: snapshot_restore.Keys = ByCode(taken.code)
    if by != "code":
        folder = tmp_path / "keys"
        shutil.copytree(taken.keys, folder)
        keys = ByFiles(folder)
    if by == "credential":
        handed = tmp_path / "credentials"
        handed.mkdir()
        (tmp_path / "keys/master.key").rename(handed / "confide-master-key")
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(handed))
    said: list[snapshot_restore.RestorePreview] = []
    done = here.restore(taken, keys=keys, tell=said.append)
    assert (done.revoked_names, done.invites) == (["gone"], 1)
    assert (said[0].opens, said[0].waits) == (["laptop"], [])
    assert here.data.backup_key.exists() == (by == "code")
    assert here.data.master.exists() == (by != "credential")
    here.check_whole(taken)
    async with serving(here.data.root) as daemon, Machine(await daemon.connect(taken.laptop)) as machine:
        attached = await machine.attach("proj")
        assert attached["restores"] == 1
        assert attached["backTo"] is not None
        assert (await machine.put("memory/new.md", "new\n"))["revision"] == NUMBERS + 1
        assert not list(here.data.spaces.glob("*.restored"))
        with pytest.raises(ConfideError):
            await daemon.connect(taken.gone)
    async with serving(here.data.root) as daemon, Machine(await daemon.connect(taken.laptop)) as machine:
        assert (await machine.attach("proj"))["restores"] == 1


def test_only_an_empty_place_is_taken(taken: Taken, here: Here) -> None:
    """Whatever holds something stays as it is, served or not; an empty folder makes way."""
    create(here.data)
    before = sorted(here.data.root.rglob("*"))
    with pytest.raises(DataFolderError, match="holds something already"):
        here.restore(taken)
    lock = DaemonLock.take(here.data.lock)
    assert lock is not None
    with pytest.raises(AlreadyServedError):
        here.restore(taken)
    lock.release()
    assert set(before) <= set(here.data.root.rglob("*"))
    shutil.rmtree(here.data.root)
    here.data.root.mkdir(mode=0o700)
    here.restore(taken)
    here.check_whole(taken)


def test_two_at_once_do_not_meet(taken: Taken, here: Here) -> None:
    def again(_outlook: snapshot_restore.RestorePreview) -> None:
        with pytest.raises(AlreadyServedError):
            here.restore(taken)

    here.restore(taken, tell=again)
    here.check_whole(taken)


def test_neither_another_code_nor_another_daemon_s_keys_open_it(taken: Taken, here: Here, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="does not open") as caught:
        here.restore(taken, keys=ByCode(RecoveryCode.generate()))
    assert "is it the code" in str(caught.value.hint)
    other = DataFolder(tmp_path / "other")
    create(other)
    with pytest.raises(SnapshotError, match="of another daemon"):
        here.restore(taken, keys=ByFiles(other.root))
    assert here.is_untouched()


@pytest.fixture
def copy(taken: Taken, tmp_path: Path) -> Taken:
    """The snapshot, to be spoilt."""
    folder = tmp_path / "copy" / taken.folder.name
    shutil.copytree(taken.folder, folder)
    shutil.copy(taken.folder.parent / "revoked", folder.parent)
    return dataclasses.replace(taken, folder=folder)


def test_a_flipped_bit_is_found_wherever_it_is(copy: Taken, here: Here) -> None:
    for path in sorted(path for path in copy.folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for n in range(min(FLIPS, len(content))):
            spoilt = bytearray(content)
            spoilt[n * len(content) // FLIPS] ^= 1 << n % 8
            path.write_bytes(spoilt)
            with pytest.raises(SnapshotError):
                here.restore(copy)
            assert here.is_untouched(), path
        path.write_bytes(content)
    here.restore(copy)
    here.check_whole(copy)


def _spaces(folder: Path) -> list[Path]:
    return sorted((folder / "spaces").glob("*.db"))


def _a_link(folder: Path) -> None:
    path = _spaces(folder)[0]
    path.rename(folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


SPOILS: dict[str, Callable[[Path], object]] = {
    "a file is missing": lambda folder: _spaces(folder)[0].unlink(),
    "a file is more": lambda folder: (folder / "spaces" / "0.db").write_bytes(b"x"),
    "a folder is a link": lambda folder: (folder / "more").symlink_to("/"),
    "a file is a link": _a_link,
    "the registry is a space's": lambda folder: shutil.copy(_spaces(folder)[0], folder / "registry.db"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "no keys": lambda folder: (folder / "keys.sealed").unlink(),
    "another name": lambda folder: (folder / "manifest.json").write_bytes(b"[1]"),
    "nesting": lambda folder: (folder / "manifest.json").write_bytes(b"[" * 100_000),
    "a newer form": lambda folder: _said(folder, format=2),
    "another daemon's word": lambda folder: _said(folder, daemon="00" * 32),
    "no daemon": lambda folder: _said(folder, daemon="0"),
}


def _said(folder: Path, **other: Any) -> None:
    found = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_bytes(manifest.canonical(found | other))


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_is_wrong_with_a_snapshot_is_a_sentence(copy: Taken, here: Here, spoil: str) -> None:
    """And leaves nothing."""
    SPOILS[spoil](copy.folder)
    with pytest.raises(SnapshotError):
        here.restore(copy)
    assert here.is_untouched()


def test_another_snapshot_s_name_and_no_folder(copy: Taken, here: Here) -> None:
    moved = dataclasses.replace(copy, folder=copy.folder.rename(copy.folder.with_name("2026-01-01T000000Z")))
    with pytest.raises(SnapshotError, match=f"of another snapshot, {copy.folder.name}") as caught:
        here.restore(moved)
    assert "that name again" in str(caught.value.hint)
    with pytest.raises(SnapshotError, match="manifest of another snapshot"):
        here.restore(moved, keys=ByFiles(copy.keys))
    with pytest.raises(SnapshotError, match="is not there"):
        here.restore(dataclasses.replace(copy, folder=copy.folder.with_name("2026-01-01T000001Z")))
    assert here.is_untouched()


def test_a_newer_version_s_is_refused_with_both(taken: Taken, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older program cannot read what is in it."""
    monkeypatch.setattr(snapshot_restore, "migrations", lambda *_package: [(1, "")])
    with pytest.raises(StorageError, match=r"was written by confided .*; this is "):
        here.restore(taken)
    assert here.is_untouched()


def test_a_stranger_s_line_among_the_revoked_stops_it(copy: Taken, here: Here, tmp_path: Path) -> None:
    """Nobody can tell whether it takes access away that the snapshot gives. Also through a link, beside which is no such line."""
    other = DataFolder(tmp_path / "other")
    create(other)
    state = open_state(other)
    state.registry.add_caller(Identity.generate().public_key, Grants("x"), space="x", added_by="line")
    state.registry.revoke("x")
    Revocations.from_backup_folder(copy.folder.parent, state).keep(state.registry)
    state.close()
    (tmp_path / "latest").symlink_to(copy.folder)
    for folder in (copy.folder, tmp_path / "latest"):
        with pytest.raises(StorageError, match="has not signed"):
            here.restore(dataclasses.replace(copy, folder=folder))
    assert here.is_untouched()


POINTS = ("fsync", "rename", "replace", "mkdir", "unlink", "link", "open", "chmod")


def killed_at(point: int, work: Callable[[], object]) -> bool:
    """Whether a process of its own that does `work` was killed before that call of the system, and not done with it before."""
    pid = os.fork()
    if pid == 0:
        left = point

        def watched(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*given: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*given, **named)

            return counted

        try:
            for name in POINTS:
                setattr(os, name, watched(getattr(os, name)))
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def test_a_kill_at_any_step_leaves_nothing_that_serves(taken: Taken, here: Here) -> None:
    """Or all of it. Said again, it is done."""
    point = 0
    while killed_at(point, lambda: here.restore(taken)):
        if here.data.root.exists():
            here.check_whole(taken)
            shutil.rmtree(here.data.root)
        point += STRIDE
    here.check_whole(taken)
    assert point > 20
    assert not list(here.data.root.parent.glob("*.restoring"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A file system of so many KiB; only root can mount one."""
    folder = tmp_path / "small"
    folder.mkdir()

    def of(size_kib: int) -> Path:
        subprocess.run(["umount", str(folder)], capture_output=True, check=False)
        options = ["-o", f"size={size_kib}k", "tmpfs", str(folder)]
        if (
            os.geteuid()
            or subprocess.run(["mount", "-t", "tmpfs", *options], capture_output=True, check=False).returncode
        ):
            pytest.skip("mounting a small file system needs root")
        return folder

    yield of
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)


def test_a_full_disk_is_said_before_and_meanwhile(
    taken: Taken, small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves nothing, wherever it was full."""
    sizes = range(64, 4000, 64 if STRIDE == 1 else 400)
    for size in sizes:
        here = Here(small_disk(size))
        with pytest.raises(StorageError, match="has too little room"):
            here.restore(taken)
        assert here.is_untouched()
        with monkeypatch.context() as others_write:
            others_write.setattr(snapshot_restore, "_LEAST_FREE", -(1 << 40))
            problem = _problem(here, taken)
        if problem is None:
            here.check_whole(taken)
            break
        assert "full" in problem or "cannot be" in problem, problem
        assert here.is_untouched()


def _problem(here: Here, taken: Taken) -> str | None:
    try:
        here.restore(taken)
    except ConfideError as error:
        return str(error)
    return None
