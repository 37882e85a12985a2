"""The backup folder with the snapshots, and the status of each: whether it is recent enough and
verified.

    DIR/confide-backup.json         names the daemon; nothing is written without it: the disk may not be mounted
    DIR/revoked                     revoked keys (`access.revocations`)
    DIR/forgotten/                  records of forgotten texts (`snapshot.keep_records`)
    DIR/2026-11-22T023000Z/         a complete snapshot
    DIR/.partial-2026-…             a snapshot that is being written, or was interrupted
    DIR/.deleted-2026-…             a snapshot that is being removed
    DIR/.lock                       held by the process that writes here

A snapshot gets its name without a dot by one rename, when all of it is on the disk, so every listed
snapshot is complete.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confide_backup.daemon.backup_schedule import ScheduledSnapshot
from confide_backup.daemon.manifest import FOLDERS, MANIFEST, MOST_BYTES, VERIFIED, BackupManifest, Proof
from confide_backup.errors import SnapshotError, TargetError
from confide_crypto import atomic
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_daemon.access.registry import RegistryState
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import StorageError

MARKER: Final = "confide-backup.json"
FORMAT: Final = 1
LEAST_FREE: Final = 1 << 30
LEAST_FREE_SHARE: Final = 0.05
"""Share of the disk that must stay free beside a snapshot, at least `LEAST_FREE` bytes."""
_MARKER_BYTES: Final = 4096
_AHEAD_S: Final = 86_400.0
"""A snapshot dated further ahead than this comes from a clock that was corrected since, and does
not count as recent.
"""
_MOST_PROOF_BYTES: Final = 16 << 20
_ID: Final = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_PARTIAL: Final = ".partial-"
_DELETED: Final = ".deleted-"
_FETCHED: Final = ".fetched-"
_PREPARING: Final = ".confide-backup."
_HARMLESS: Final = ("lost+found", ".lock", "revoked")
_ROOM_HINT: Final = (
    "free some space there, keep fewer (keep_daily and others under [backup]), or see confided backup --prune"
)
WAIT_S: Final = 5.0


def id_of(moment: float) -> str:
    """Return the name of a snapshot that is started at this time (seconds since 1970); the name is
    in UTC.
    """
    return time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime(moment))


def is_id(name: str) -> bool:
    """Return True if the text has the form of a snapshot's name."""
    return _ID.fullmatch(name) is not None


_UNIT_HINT: Final = "is its disk mounted to be written? a systemd unit has to name the folder in ReadWritePaths"


class BackupTarget:
    """A backup folder, which `confided backup init` prepares for one daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, signers: Sequence[bytes], *, data: Path) -> BackupTarget:
        """Prepare a new or empty folder as the backup folder of a daemon. Change nothing if it is
        that already.

        Args:
            signers: the daemon's public keys, the current one first.
            data: its data folder.

        Raise TargetError if it cannot be written, is in the data folder, has other files, or
        belongs to another daemon.
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
        """Check that the backup folder belongs to this daemon, by its current public key or an
        earlier one.

        Raise TargetError if it does not, is not set up, or its disk is missing.
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
        """Raise TargetError if this process may not write to the backup folder, for example because
        the unit of a systemd service does not list it.
        """
        with self.errors("be written"):
            if not os.access(self.folder, os.W_OK | os.X_OK):
                is_read_only = os.statvfs(self.folder).f_flag & os.ST_RDONLY
                number = errno.EROFS if is_read_only else errno.EACCES
                raise OSError(number, os.strerror(number))

    def ids(self) -> list[str]:
        """Return the names of the snapshots, sorted. Raise TargetError."""
        with self.errors("be read"):
            return sorted(entry.name for entry in self.folder.iterdir() if is_id(entry.name) and entry.is_dir())

    def snapshot(self, name: str) -> Path:
        return self.folder / name

    def free_id(self, moment: float) -> str:
        """Return the name for a snapshot that starts at this time, or seconds later if the name
        exists.
        """
        while (self.folder / id_of(moment)).exists():
            moment += 1
        return id_of(moment)

    def check_room(self, size_bytes: int) -> None:
        """Raise TargetError if too little disk space would be left after a snapshot of that size."""
        with self.errors("be read"):
            problem = _lack(self.folder, size_bytes)
        if problem is not None:
            raise TargetError(self.folder, f"has too little room: {problem}", hint=_ROOM_HINT)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock of the backup folder within the context. Raise TargetError if another
        process holds it for `WAIT_S` seconds, or the folder is not writable.
        """
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
        """Create an empty folder for a new snapshot, and remove interrupted ones. The caller must
        hold the lock (`alone`).
        """
        return self._begin(_PARTIAL + name, FOLDERS)

    def begin_fetching(self, name: str) -> Path:
        """Create an empty folder for a snapshot that the operator's program fetches; `sweep`
        removes it later. The caller must hold the lock (`alone`).
        """
        return self._begin(_FETCHED + name, ())

    def _begin(self, name: str, inner: Sequence[str]) -> Path:
        self.sweep()
        folder = self.folder / name
        with self.errors("be written"):
            for each in (folder, *(folder / one for one in inner)):
                each.mkdir(mode=0o700)
        return folder

    def finish(self, name: str) -> Path:
        """Rename a new snapshot's folder to the snapshot's name, so that it is listed. All its
        files must be on the disk.
        """
        partial, whole = self.folder / (_PARTIAL + name), self.folder / name
        with self.errors("be written"):
            for folder in (*(partial / one for one in FOLDERS), partial):
                atomic.sync(folder)
            partial.rename(whole)
            atomic.sync(self.folder)
        return whole

    def remove(self, name: str) -> None:
        """Remove a snapshot from the list by one rename, then delete its files. The caller must
        hold the lock (`alone`). Raise TargetError if that fails.
        """
        with self.errors("be written"):
            away = self.folder / (_DELETED + name)
            (self.folder / name).rename(away)
            atomic.sync(self.folder)
            shutil.rmtree(away)

    def sweep(self) -> None:
        """Delete the files of snapshots whose writing or removal was interrupted. The caller must
        hold the lock (`alone`). Raise TargetError if that fails.
        """
        with self.errors("be written"):
            for entry in list(self.folder.iterdir()):
                if entry.name.startswith((_PARTIAL, _DELETED, _FETCHED)):
                    shutil.rmtree(entry)
                elif entry.name.startswith(_PREPARING):
                    entry.unlink()

    @contextlib.contextmanager
    def errors(self, verb: str) -> Iterator[None]:
        """Convert system errors of file operations in the context to TargetError. `verb` is the
        phrase for its message, such as "be read".
        """
        try:
            yield
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            hint = _UNIT_HINT if error.errno == errno.EROFS else "is its disk mounted, with room on it?"
            raise TargetError(self.folder, f"cannot {verb}: {why}", hint=hint) from None


def check_room(folder: Path, size_bytes: int, what: str) -> None:
    """Raise StorageError if too little disk space would be left in the folder after writing this
    many bytes. `what` names for the message what cannot be done.
    """
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
    """Write a file with mode 0600 by a rename, once its data is on the disk. Raise OSError if that
    fails.
    """
    with atomic.replacing(path, prefix=_PREPARING) as file:
        file.write(data)


def signers_of(state: RegistryState) -> list[bytes]:
    """Return the public keys that sign this daemon's snapshots, the current one first, then earlier
    ones.

    During a key rotation the old key is included as well, since snapshots are kept for up to a year
    after it. Raise KeyFileError if the keys cannot be read.
    """
    path = state.folder.backup_signers
    try:
        former = [bytes.fromhex(line) for line in read_private_file(path).decode().split()] if path.exists() else []
        if any(len(key) != KEY_LENGTH for key in former):
            raise ValueError
    except ValueError:
        hint = "move it away; snapshots of an older key are not believed then"
        raise KeyFileError(path, "is damaged", hint=hint) from None
    old = None if state.keys.rotation is None else state.keys.rotation.old.public_key
    if old is not None and old not in former:
        former.append(old)
        write_private_file(path, b"".join(key.hex().encode() + b"\n" for key in former), replace=True)
    return [state.identity.public_key, *former]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot whose manifest this daemon signed."""

    manifest: BackupManifest
    proof: Proof | None  # None if not verified, or not signed by this daemon

    @classmethod
    def read(cls, target: BackupTarget, name: str, signers: Collection[bytes]) -> Self:
        """Read the manifest of a snapshot and the record of its verification. Raise SnapshotError
        if the snapshot is missing or cannot be trusted, and TargetError if the folder cannot be
        read.
        """
        folder = target.snapshot(name)
        with target.errors("be read"):
            try:
                with (folder / MANIFEST).open("rb") as file:
                    data = file.read(MOST_BYTES + 1)
            except FileNotFoundError:
                if folder.is_dir():
                    raise SnapshotError(name, "has no manifest") from None
                hint = "confided backup ls shows those that are"
                raise SnapshotError(name, "is not there", hint=hint, kind="missing") from None
        made = BackupManifest.parse(data, name=name, signers=signers)
        with contextlib.suppress(OSError), (folder / VERIFIED).open("rb") as file:
            return cls(made, Proof.parse(file.read(_MOST_PROOF_BYTES), made=made, signers=signers))
        return cls(made, None)

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def proven(self) -> frozenset[str]:
        """The spaces that a verification could open and found to have the same content as when they
        were copied.
        """
        return frozenset() if self.proof is None else self.proof.proven

    @property
    def is_proven(self) -> bool:
        """Return True if the whole snapshot is verified."""
        return self.proof is not None and self.proof.verdict == "proven"

    @property
    def status_text(self) -> str:
        """The snapshot's status for users, in a few words."""
        if self.proof is None:
            return "not verified"
        waiting = sum(one == "unproven" for one in self.proof.spaces.values())
        if self.proof.verdict == "unproven":
            return f"proven but for {waiting} locked" if waiting else "not verified"
        return {"proven": "proven", "differs": "changed since", "unreadable": "unreadable"}[self.proof.verdict]

    @property
    def schedule_entry(self) -> ScheduledSnapshot:
        is_sound = self.proof is not None and self.proof.is_sound
        return ScheduledSnapshot(
            self.id, self.manifest.number, self.manifest.at, is_sound, self.proven, self.manifest.contents()
        )


@dataclass(frozen=True, slots=True)
class SnapshotHistory:
    """All snapshots of a backup folder, oldest first."""

    whole: list[Snapshot]
    strange: dict[str, SnapshotError]  # by name: damaged, of a newer version, or of another daemon
    since: float  # when the target was prepared, seconds since 1970

    @classmethod
    def read(cls, target: BackupTarget, state: RegistryState) -> Self:
        """Read all snapshots. Raise TargetError if the backup folder belongs to another daemon or
        cannot be read.
        """
        signers = signers_of(state)
        target.check(signers)
        whole: list[Snapshot] = []
        strange: dict[str, SnapshotError] = {}
        for name in target.ids():
            try:
                whole.append(Snapshot.read(target, name, signers))
            except SnapshotError as error:
                strange[name] = error
        with target.errors("be read"):
            since = (target.folder / MARKER).stat().st_mtime
        return cls(sorted(whole, key=lambda one: one.manifest.number), strange, since)

    @property
    def newest(self) -> Snapshot | None:
        return self.whole[-1] if self.whole else None

    def unproven(self, spaces: Collection[str], *, now: float, max_age_s: float) -> list[str]:
        """Return the given spaces that have no verified snapshot from the last `max_age_s` seconds.
        Spaces that are too new to have one are left out.
        """
        if not self.whole:
            return sorted(spaces) if now - self.since > max_age_s else []
        young = [one for one in self.whole if -_AHEAD_S < now - one.manifest.at <= max_age_s]
        proven = {space_id for one in young for space_id in one.proven}
        # A space that no older snapshot has is new.
        known = {space_id for one in self.whole if one not in young for space_id in one.manifest.spaces}
        late = known if young else {*spaces}
        return sorted((late & {*spaces}) - proven)
