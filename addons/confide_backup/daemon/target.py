"""The folder that snapshots are in.

    DIR/confide-backup.json         whose it is; without it nothing is written there: the disk may not be mounted
    DIR/revoked                     keys that ended (`access.revocations`)
    DIR/2026-11-22T023000Z/         a snapshot, whole
    DIR/.partial-2026-…             one that is being written, or was cut off
    DIR/.deleted-2026-…             one that is being removed
    DIR/.lock                       held by who writes here

A name without a dot is given by one rename, when everything below it is on the disk, so whatever is listed is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from confide_crypto.keys.files import sync_folder
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import StorageError, TargetError

MARKER: Final = "confide-backup.json"
MANIFEST: Final = "manifest.json"
VERIFIED: Final = "verified.json"
FORMAT: Final = 1
LEAST_FREE: Final = 1 << 30
LEAST_FREE_SHARE: Final = 0.05
"""What a target keeps free beside a snapshot: a disk that is full to the last byte serves nobody."""
_MARKER_BYTES: Final = 4096
_ID: Final = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_PARTIAL: Final = ".partial-"
_DELETED: Final = ".deleted-"
_FETCHED: Final = ".fetched-"
_PREPARING: Final = ".confide-backup."
_HARMLESS: Final = ("lost+found", ".lock", "revoked")
_ROOM_HINT: Final = (
    "free some space there, keep fewer (keep_daily and others under [backup]), or see confided backup prune"
)
WAIT_S: Final = 5.0


def id_of(moment: float) -> str:
    """The name of a snapshot that is begun then (seconds since 1970), in UTC."""
    return time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime(moment))


def is_id(name: str) -> bool:
    """Whether a name is one of a snapshot."""
    return _ID.fullmatch(name) is not None


_UNIT_HINT: Final = "is its disk mounted to be written? a systemd unit has to name the folder in ReadWritePaths"


class Target:
    """A folder that `init` has made one of this daemon's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, signers: Sequence[bytes], *, data: Path) -> Target:
        """Makes a new or an empty folder the target of a daemon; one that it is already stays as it is.

        Args:
            signers: the daemon's public keys, the present one first.
            data: its data folder.

        Raises TargetError: it cannot be written, is in the data folder, holds something else, or is another
        daemon's.
        """
        folder = self.folder
        if data.resolve() in (folder.resolve(), *folder.resolve().parents):
            raise TargetError(folder, "is in the data folder", hint="name one on another disk")
        with self.errors("be made ready"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (folder / MARKER).exists():
                self.check(signers)
                return self
            if any(not entry.name.startswith((_PREPARING, *_HARMLESS)) for entry in folder.iterdir()):
                raise TargetError(folder, "holds something else", hint="name an empty folder, or a new one")
            said = json.dumps({"format": FORMAT, "daemon": signers[0].hex()}).encode() + b"\n"
            write(folder / MARKER, said)
        return self

    def check(self, signers: Collection[bytes]) -> None:
        """Whether it is this daemon's, by its public key or one that it had before.

        Raises TargetError: it is not, it is not set up, or its disk is not there.
        """
        with self.errors("be read"):
            if not (self.folder / MARKER).exists():
                raise TargetError(
                    self.folder,
                    "is not a target of backups",
                    hint="is its disk mounted? a new one is set up with: confided backup init --to DIR",
                )
            with (self.folder / MARKER).open("rb") as file:
                data = file.read(_MARKER_BYTES)
        try:
            found = json.loads(data)
            written, named = found["format"], bytes.fromhex(found["daemon"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise TargetError(self.folder, f"has a damaged {MARKER}", hint="set up another folder") from None
        if written != FORMAT:
            raise TargetError(self.folder, "was set up by a newer version of confide", hint="upgrade confide here")
        if named not in signers:
            raise TargetError(self.folder, "is the target of another daemon", hint="name a folder of this one's own")

    def require_writable(self) -> None:
        """Raises TargetError where this process may write nothing there, as under a service whose unit does not name the folder."""
        with self.errors("be written"):
            if not os.access(self.folder, os.W_OK | os.X_OK):
                is_read_only = os.statvfs(self.folder).f_flag & os.ST_RDONLY
                number = errno.EROFS if is_read_only else errno.EACCES
                raise OSError(number, os.strerror(number))

    def ids(self) -> list[str]:
        """The snapshots, by name. Raises TargetError."""
        with self.errors("be read"):
            return sorted(entry.name for entry in self.folder.iterdir() if is_id(entry.name) and entry.is_dir())

    def snapshot(self, name: str) -> Path:
        return self.folder / name

    def free_id(self, moment: float) -> str:
        """A name for a snapshot that is begun then, or a moment later where there is one."""
        while (self.folder / id_of(moment)).exists():
            moment += 1
        return id_of(moment)

    def check_room(self, size_bytes: int) -> None:
        """Raises TargetError where a snapshot of that size would not leave enough free."""
        with self.errors("be read"):
            problem = _lack(self.folder, size_bytes)
        if problem is not None:
            raise TargetError(self.folder, f"has too little room: {problem}", hint=_ROOM_HINT)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Within this nobody else writes here. Raises TargetError: somebody does, or nothing can be written."""
        deadline = time.monotonic() + WAIT_S
        while (lock := await asyncio.to_thread(self._lock)) is None:
            if time.monotonic() > deadline:
                raise TargetError(self.folder, "is in use by another confided", hint="wait until that is done")
            await asyncio.sleep(0.05)
        try:
            yield
        finally:
            lock.release()

    def _lock(self) -> DaemonLock | None:
        with self.errors("be written"):
            return DaemonLock.take(self.folder / ".lock")

    def begin(self, name: str) -> Path:
        """An empty folder for a snapshot with that name; what was cut off before is removed. Call it `alone`."""
        self.sweep()
        with self.errors("be written"):
            partial = self.folder / (_PARTIAL + name)
            partial.mkdir(mode=0o700)
            (partial / "spaces").mkdir(mode=0o700)
            (partial / "authorized").mkdir(mode=0o700)
        return partial

    def begin_fetching(self, name: str) -> Path:
        """An empty folder for a snapshot that is brought back; swept as what was cut off. Call it `alone`."""
        self.sweep()
        with self.errors("be written"):
            folder = self.folder / (_FETCHED + name)
            folder.mkdir(mode=0o700)
        return folder

    def finish(self, name: str) -> Path:
        """Gives the folder its name, once what is in it is on the disk."""
        partial, whole = self.folder / (_PARTIAL + name), self.folder / name
        with self.errors("be written"):
            for folder in (partial / "spaces", partial / "authorized", partial):
                sync_folder(folder)
            partial.rename(whole)
            sync_folder(self.folder)
        return whole

    def remove(self, name: str) -> None:
        """Takes a snapshot off the list with one rename, then its files. Call it `alone`. Raises TargetError."""
        with self.errors("be written"):
            away = self.folder / (_DELETED + name)
            (self.folder / name).rename(away)
            sync_folder(self.folder)
            shutil.rmtree(away)

    def sweep(self) -> None:
        """Removes what was cut off: half a snapshot, half of one that was let go. Call it `alone`. Raises TargetError."""
        with self.errors("be written"):
            for entry in list(self.folder.iterdir()):
                if entry.name.startswith((_PARTIAL, _DELETED, _FETCHED)):
                    shutil.rmtree(entry)
                elif entry.name.startswith(_PREPARING):
                    entry.unlink()

    @contextlib.contextmanager
    def errors(self, verb: str) -> Iterator[None]:
        """Around what touches the folder: errors of the system become TargetError; `verb` is as in "be read"."""
        try:
            yield
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            hint = _UNIT_HINT if error.errno == errno.EROFS else "is its disk mounted, with room on it?"
            raise TargetError(self.folder, f"cannot {verb}: {why}", hint=hint) from None


def check_room(folder: Path, size_bytes: int, what: str) -> None:
    """The same for another folder. Raises StorageError; `what` cannot be done then."""
    problem = _lack(folder, size_bytes)
    if problem is not None:
        raise StorageError(f"cannot {what}: {folder} has too little room: {problem}", hint="free some space there")


def _lack(folder: Path, size_bytes: int) -> str | None:
    disk = shutil.disk_usage(folder)
    wanted = size_bytes + max(LEAST_FREE, int(disk.total * LEAST_FREE_SHARE))
    if disk.free >= wanted:
        return None
    return f"{disk.free / 1e6:,.0f} MB are free, and {wanted / 1e6:,.0f} MB are needed"


def write(path: Path, data: bytes) -> None:
    """Writes a file of mode 0600, whole or not at all, on the disk on return. Raises OSError."""
    part = path.with_name(f"{_PREPARING}{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
