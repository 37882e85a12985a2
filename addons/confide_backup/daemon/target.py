"""The folder that snapshots are in, and what is known of each of these: whether they are as new and as proven as they should be.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confide_backup.daemon.backup_schedule import ScheduledSnapshot
from confide_backup.daemon.manifest import FOLDERS, MANIFEST, MOST_BYTES, VERIFIED, BackupManifest, Proof
from confide_crypto import atomic
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_daemon.access.registry import RegistryState
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import SnapshotError, StorageError, TargetError

MARKER: Final = "confide-backup.json"
FORMAT: Final = 1
LEAST_FREE: Final = 1 << 30
LEAST_FREE_SHARE: Final = 0.05
"""What a target keeps free beside a snapshot: a disk that is full to the last byte serves nobody."""
_MARKER_BYTES: Final = 4096
_AHEAD_S: Final = 86_400.0
"""A snapshot from later than this is of a clock that was put right since, and is not taken for new."""
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
    """The name of a snapshot that is begun then (seconds since 1970), in UTC."""
    return time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime(moment))


def is_id(name: str) -> bool:
    """Whether a name is one of a snapshot."""
    return _ID.fullmatch(name) is not None


_UNIT_HINT: Final = "is its disk mounted to be written? a systemd unit has to name the folder in ReadWritePaths"


class BackupTarget:
    """A folder that `init` has made one of this daemon's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, signers: Sequence[bytes], *, data: Path) -> BackupTarget:
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
        return self._begin(_PARTIAL + name, FOLDERS)

    def begin_fetching(self, name: str) -> Path:
        """An empty folder for a snapshot that is brought back; swept as what was cut off. Call it `alone`."""
        return self._begin(_FETCHED + name, ())

    def _begin(self, name: str, inner: Sequence[str]) -> Path:
        self.sweep()
        folder = self.folder / name
        with self.errors("be written"):
            for each in (folder, *(folder / one for one in inner)):
                each.mkdir(mode=0o700)
        return folder

    def finish(self, name: str) -> Path:
        """Gives the folder its name, once what is in it is on the disk."""
        partial, whole = self.folder / (_PARTIAL + name), self.folder / name
        with self.errors("be written"):
            for folder in (*(partial / one for one in FOLDERS), partial):
                atomic.sync(folder)
            partial.rename(whole)
            atomic.sync(self.folder)
        return whole

    def remove(self, name: str) -> None:
        """Takes a snapshot off the list with one rename, then its files. Call it `alone`. Raises TargetError."""
        with self.errors("be written"):
            away = self.folder / (_DELETED + name)
            (self.folder / name).rename(away)
            atomic.sync(self.folder)
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
    with atomic.replacing(path, prefix=_PREPARING) as file:
        file.write(data)


def signers_of(state: RegistryState) -> list[bytes]:
    """The public keys whose snapshots are this daemon's own: the present one first, and those that it had before.

    An old key is noted while a rotation is under way, beside the others: snapshots outlive it by a year. Raises KeyFileError.
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
    """One whose manifest is this daemon's."""

    made: BackupManifest
    proof: Proof | None  # None: nobody has verified it, or somebody else has written it

    @classmethod
    def read(cls, target: BackupTarget, name: str, signers: Collection[bytes]) -> Self:
        """Raises SnapshotError: it is not there, or not to be believed; TargetError."""
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
        return self.made.id

    @property
    def proven(self) -> frozenset[str]:
        """The spaces that were opened and gave what they gave."""
        return frozenset() if self.proof is None else self.proof.proven

    @property
    def is_proven(self) -> bool:
        """Whether all of it is."""
        return self.proof is not None and self.proof.verdict == "proven"

    @property
    def said(self) -> str:
        """How it stands, in a few words."""
        if self.proof is None:
            return "not verified"
        waiting = sum(one == "unproven" for one in self.proof.spaces.values())
        if self.proof.verdict == "unproven":
            return f"proven but for {waiting} locked" if waiting else "not verified"
        return {"proven": "proven", "differs": "changed since", "unreadable": "unreadable"}[self.proof.verdict]

    @property
    def kept(self) -> ScheduledSnapshot:
        is_sound = self.proof is not None and self.proof.is_sound
        return ScheduledSnapshot(self.id, self.made.number, self.made.at, is_sound, self.proven, self.made.contents())


@dataclass(frozen=True, slots=True)
class SnapshotHistory:
    """What there is, the oldest first."""

    whole: list[Snapshot]
    strange: dict[str, SnapshotError]  # by name: those that are damaged, newer or another's
    since: float  # when the target was made ready, seconds since 1970

    @classmethod
    def read(cls, target: BackupTarget, state: RegistryState) -> Self:
        """Raises TargetError: it is not this daemon's target, or cannot be read."""
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
        return cls(sorted(whole, key=lambda one: one.made.number), strange, since)

    @property
    def newest(self) -> Snapshot | None:
        return self.whole[-1] if self.whole else None

    def unproven(self, spaces: Collection[str], *, now: float, max_age_s: float) -> list[str]:
        """Those of the spaces that have no proven snapshot younger than that, and had time enough to get one."""
        if not self.whole:
            return sorted(spaces) if now - self.since > max_age_s else []
        young = [one for one in self.whole if -_AHEAD_S < now - one.made.at <= max_age_s]
        proven = {space_id for one in young for space_id in one.proven}
        # What no older snapshot has is new.
        known = {space_id for one in self.whole if one not in young for space_id in one.made.spaces}
        late = known if young else {*spaces}
        return sorted((late & {*spaces}) - proven)
