"""A night's work on backups, killed or told that the disk is full at one step on the disk, and a look at what that leaves.

    python -m tests.support.kills.backup_kills FOLDER STRIDE PIECE_BYTES

A snapshot is taken, proven, and lets the one before it go. What the worker does is done in the same process here, so that its steps count
as well; files are copied in pieces of PIECE_BYTES. At every STRIDEth step of that, a process is forked that dies there as by `kill -9`,
and another one whose disk is full from there on. Behind each: every listed snapshot is whole, one proven one is left, and the next night
goes well and leaves nothing else. For each a JSON line: the kind, the step, how it ended, and what is wrong.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

from confide_backup.daemon import backup_service, sealed_keys, snapshot, target, verify
from confide_backup.daemon.backup_service import Backups
from confide_backup.daemon.manifest import hash_of
from confide_backup.daemon.offline_spaces import OfflineSpaces
from confide_backup.daemon.target import BackupTarget, signers_of
from confide_backup.daemon.worker import __main__ as worker
from confide_backup.daemon.worker import copying
from confide_backup.daemon.worker.worker_process import RefusedError
from confide_backup.settings import BackupConfig
from confide_crypto.errors import ConfideError
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import create, open_state
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

STEPS: Final = ("open", "write", "fsync", "fdatasync", "link", "rename", "replace", "unlink", "mkdir", "rmdir")
"""The functions of `os` by which anything gets onto the disk."""
FREEING: Final = ("unlink", "rmdir")
KILLED, ENDED, BROKE = "killed", "ended", "broke"


class InProcess:
    """The worker without a process."""

    async def do(self, what: str, *, follow: Any = None, **asked: Any) -> dict[str, Any]:
        try:
            return worker._DO[what](lambda *_: None, **asked)
        except OSError as error:
            raise RefusedError(error.errno, error.strerror or "") from None


@asynccontextmanager
async def working() -> AsyncIterator[InProcess]:
    yield InProcess()


class Disk:
    """Counts steps below a folder, and fails at one of them, or from it on."""

    def __init__(self, root: Path, kind: str, at: int) -> None:
        self.count = 0
        self._root, self._kind, self._at = str(root), kind, at
        for name in STEPS:
            setattr(os, name, self._counting(name, getattr(os, name)))

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            self.count += 1
            if self._kind == "kill" and self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._kind == "full" and self.count >= self._at > 0 and name not in FREEING:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **options)

        return step


def night(root: Path) -> None:
    """What the daemon does."""
    folder = DataFolder(root / "data")
    config = BackupConfig(to=str(root / "target"), keep_daily=1, keep_weekly=0, keep_monthly=0)
    with closing(open_state(folder)) as state:
        asyncio.run(Backups(state, OfflineSpaces(state), config, None).nightly())


def forked(root: Path, kind: str, at: int) -> tuple[str, int]:
    """How a night ends in a process of its own, and how many steps it had."""
    here, there = os.pipe()
    pid = os.fork()
    if not pid:
        ending = BROKE
        disk = Disk(root, kind, at)
        try:
            night(root)
            ending = ENDED
        except ConfideError as error:
            ending = f"{type(error).__name__}: {error}"
        finally:
            disk._kind = ""
            os.write(there, json.dumps([ending, disk.count]).encode())
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return KILLED, at
    ending, count = json.loads(said)
    return ending, count


def wrong(root: Path, *, is_settled: bool) -> list[str]:
    """What is not as it should be; `is_settled`: behind a night that went well."""
    found = []
    with closing(open_state(DataFolder(root / "data"))) as state:
        place = BackupTarget(root / "target")
        history = Backups(state, OfflineSpaces(state), BackupConfig(to=str(place.folder)), None).history(place)
        found += [f"{name}: {error}" for name, error in history.strange.items()]
        for one in history.whole:
            for name, file in one.manifest.files.items():
                path = place.snapshot(one.id) / name
                if not path.exists() or hash_of(path.read_bytes()) != file.hash:
                    found.append(f"{one.id} is listed, and its {name} is not whole")
        if not any(one.proof is not None and one.proof.verdict == "proven" for one in history.whole):
            found.append("no proven snapshot is left")
        if is_settled:
            known = {target.MARKER, ".lock", *(one.id for one in history.whole)}
            found += [f"left behind: {entry.name}" for entry in place.folder.iterdir() if entry.name not in known]
            found += ["left behind: proving"] if state.folder.proving.exists() else []
            found += [f"{len(history.whole)} snapshots are left"] if len(history.whole) != 1 else []
    return found


def prepare(root: Path) -> None:
    """A data folder with a space, and a target with a proven snapshot of before the last note."""
    folder = DataFolder(root / "data")
    create(folder)
    with closing(open_state(folder)) as state:
        state.registry.add_caller(
            bytes(range(32)), Grants("laptop", "write", None, None), space="laptop", added_by="line"
        )
        space_id = state.registry.spaces()["laptop"]
        sealed_keys.make(folder)
        BackupTarget(root / "target").prepare(signers_of(state), data=folder.root)

        async def store(number: int) -> None:
            path, key = folder.space(space_id), state.master.space_key(space_id)
            embedder = LoadedModel.ready(HashedEmbedder(64))
            space = await Space.open(path, key, SpaceShared(IndexSettings(), embedder), space_id=space_id)
            text = f"# Heron pond {number}\n\nHerons fish there.\n"
            await space.documents.put("p", f"memory/{number}.md", text, base=0, author="a")
            await space.wait_indexed(timeout_s=60)
            await space.close()

        asyncio.run(store(1))
        night(root)
        asyncio.run(store(2))


def main() -> None:
    root, stride = Path(sys.argv[1]), int(sys.argv[2])
    copying.PIECE_BYTES = int(sys.argv[3])  # type: ignore[misc]
    target.LEAST_FREE = 0  # type: ignore[misc]
    target.LEAST_FREE_SHARE = 0  # type: ignore[misc]
    for module in (snapshot, verify):
        module.working = working  # type: ignore[assignment]
    assert backup_service.snapshot is snapshot
    prepare(root / "first")

    def again() -> Path:
        shutil.rmtree(root / "now", ignore_errors=True)
        shutil.copytree(root / "first", root / "now")
        return root / "now"

    ending, steps = forked(again(), "", 0)
    assert ending == ENDED, ending
    assert not (found := wrong(root / "now", is_settled=True)), found
    for number, at in enumerate(range(1, steps + 1, stride)):
        for kind in ("kill", "full"):
            place = again()
            ending, _ = forked(place, kind, at + (stride // 2 if kind == "full" else 0))
            found = wrong(place, is_settled=False)
            if kind == "full" and ending == BROKE:
                found.append("the error is none of ours")
            after, _ = forked(place, "", 0)
            found += [f"the next night: {after}"] if after != ENDED else wrong(place, is_settled=True)
            print(json.dumps({"kind": kind, "step": at, "steps": steps, "ending": ending, "wrong": found, "n": number}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
