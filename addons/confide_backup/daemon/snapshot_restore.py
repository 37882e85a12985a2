"""Restores a data folder from a snapshot.

All files are written to a folder beside it, `<data>.restoring`, a name that no daemon serves. When
everything is on the disk, the folder is renamed. So an interrupted restore leaves nothing that
could be served, and the next attempt starts over. From the start the restore holds the lock of a
data folder in it, so that neither a second restore nor a daemon can use the folder before the end.

The list of revoked keys beside the snapshots (`revoked`) is applied, so that no device regains
access through an old snapshot. Open invites are removed, since they may have been used meanwhile.
Every space is marked, and counts the restore when it is next opened: its new revisions then get
numbers that no device can have seen (docs/decisions/0022). The space also gets the records of
forgotten texts from beside the snapshots, and forgets these texts before it serves.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_backup.daemon import manifest
from confide_backup.daemon.manifest import CONFIG, LOG, MANIFEST, REGISTRY, SEALED_KEYS, BackupManifest
from confide_backup.daemon.sealed_keys import MOST_BYTES, BackupKey, DaemonKeys, unseal
from confide_backup.daemon.snapshot import take_records
from confide_backup.daemon.target import write
from confide_backup.daemon.worker.copying import hash_file
from confide_backup.errors import SnapshotError
from confide_crypto import atomic
from confide_crypto.keys.identity import KEY_LENGTH, Identity
from confide_crypto.keys.private_files import make_private_dir, write_private_file
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_daemon.access.registry import look_at_upgrade, open_state
from confide_daemon.access.revocations import Revocations
from confide_daemon.datadir.credentials import MASTER, credential
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.datadir.key_state import Custody
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import AlreadyServedError, DataFolderError, StorageError
from confide_daemon.store.migrations import migrations, newer_version_error

RESTORING: Final = ".restoring"
_LEAST_FREE: Final = 64 << 20
"""Free bytes required besides the snapshot's size, for opening the registry and starting the
daemon.
"""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class ByCode:
    """Gets the daemon's keys from the snapshot itself, decrypted with the recovery code that
    `confided backup init` printed.
    """

    code: RecoveryCode

    def of(self, sealed: bytes, *, daemon: bytes, snapshot: str) -> DaemonKeys:
        """Return the keys of the daemon with the public key `daemon`. Raise SnapshotError if the
        code does not open them.
        """
        return unseal(sealed, self.code, daemon=daemon, snapshot=snapshot)

    def keep(self, folder: DataFolder) -> None:
        """Store the public half of the backup key in the folder, so that later snapshots can be
        opened with the same code.
        """
        BackupKey.of(self.code).save(folder)


@dataclass(frozen=True, slots=True)
class ByFiles:
    """Gets the daemon's keys from a folder with the files `identity.key` and `master.key`; a
    systemd credential may replace the latter.
    """

    folder: Path

    def of(self, sealed: bytes, *, daemon: bytes, snapshot: str) -> DaemonKeys:  # noqa: ARG002 - as ByCode
        """Return the keys in the folder, without checking which daemon they belong to. Raise
        KeyFileError if they cannot be read.
        """
        return DaemonKeys.read(DataFolder(self.folder))

    def keep(self, folder: DataFolder) -> None:
        """Do nothing: the restored folder gets no backup key."""


Keys = ByCode | ByFiles


@dataclass(frozen=True, slots=True)
class RestorePreview:
    """A summary of a snapshot to show before a restore copies its files."""

    manifest: BackupManifest
    opens: list[str]  # names of spaces that the server can open alone
    waits: list[str]  # names of spaces that need a key from a device


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """A summary of a finished restore."""

    outlook: RestorePreview
    revoked_names: list[str]  # names of devices revoked after the snapshot
    invites: int  # number of open invites, which were removed
    has_config: bool  # whether daemon.toml was written, since there was none


def restore(
    snapshot: Path,
    data: DataFolder,
    keys: Keys,
    *,
    config_file: Path,
    tell: Callable[[RestorePreview], None] = lambda _outlook: None,
    follow: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> RestoreResult:
    """Restore a snapshot to the data folder, which must be empty or missing.

    Args:
        config_file: path of daemon.toml; if it does not exist, the snapshot's is written there.
        tell: called with the preview before the files are copied.
        follow: called with the step, its bytes done and its bytes in all.

    Raise SnapshotError if the snapshot is incomplete, changed, of another daemon or of a newer
    version, or if the code does not open it; DataFolderError or AlreadyServedError if the folder is
    not empty; StorageError if the disk is full or not writable, or the revocations cannot be read;
    KeyFileError if a key cannot be read or written.
    """
    _require_empty(data)
    snapshot = snapshot.resolve()  # by its own name, beside its own `revoked`
    name = snapshot.name
    written = _read(snapshot, MANIFEST, manifest.MOST_BYTES)
    sealed = _read(snapshot, SEALED_KEYS, MOST_BYTES)
    daemon = _daemon(written, name)
    found = keys.of(sealed, daemon=daemon, snapshot=name)
    with _errors(data), _restoring(data) as folder:
        made = BackupManifest.parse(written, name=name, signers=_put_keys(folder, found))
        _check_files(snapshot, made)
        _check_version(made)
        _check_room(folder, made)
        copying = _RestoreCopy(snapshot, made, folder, follow)
        first = [each for each in made.files if each in (REGISTRY, REGISTRY + LOG) or each.endswith(".custody")]
        copying.copy(first)
        outlook = _outlook(folder, made)
        tell(outlook)
        copying.copy([each for each in made.files if each not in first])
        keys.keep(folder)
        revoked, invites = _settle(folder, snapshot, made)
        for space_id in made.spaces:
            take_records(snapshot, folder, space_id)
            write_private_file(
                folder.restore_marker(space_id), json.dumps({"snapshot": name, "at": made.at}).encode() + b"\n"
            )
        for each in (folder.spaces, folder.authorized, folder.root):
            atomic.sync(each)
        has_config = _put_config(copying.config, config_file)
        # From here on it is the data folder; the rename replaces an empty one.
        folder.root.rename(data.root)
        atomic.sync(data.root.parent)
    return RestoreResult(outlook, revoked, invites, has_config)


def _require_empty(data: DataFolder) -> None:
    if not data.root.exists():
        return
    if data.lock.exists():
        lock = DaemonLock.take(data.lock)
        if lock is None:
            raise AlreadyServedError(data.root)
        lock.release()
    if not data.root.is_dir() or any(data.root.iterdir()):
        hint = f"move it away: mv {data.root} {data.root}.old; or name another folder with --data"
        raise DataFolderError(data.root, "holds something already", hint=hint)


def require_there(snapshot: Path) -> None:
    """Raise SnapshotError if the folder of the snapshot does not exist. Called before the user
    looks for a recovery code.
    """
    if not snapshot.is_dir():
        hint = "name its folder; confided backup ls lists them"
        raise SnapshotError(str(snapshot), "is not there", hint=hint, kind="missing")


def _read(snapshot: Path, name: str, most: int) -> bytes:
    require_there(snapshot)
    try:
        with (snapshot / name).open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise SnapshotError(
            snapshot.name, f"has no {name} that can be read: {(error.strerror or '').lower()}"
        ) from None


def _daemon(written: bytes, name: str) -> bytes:
    """Return the daemon key that a manifest names, unverified: the signature is checked once its
    keys are there. Raise SnapshotError if the manifest is damaged, or of another snapshot.
    """
    try:
        found = json.loads(written)
        daemon, own = bytes.fromhex(found["daemon"]), str(found["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        daemon, own = b"", ""
    if len(daemon) != KEY_LENGTH:
        raise SnapshotError(name, "has a damaged manifest")
    if own != name:  # its keys are sealed for that name, and the right code would seem to be a wrong one
        raise manifest.renamed_error(name, own)
    return daemon


@contextmanager
def _restoring(data: DataFolder) -> Iterator[DataFolder]:
    """Create an empty folder beside the data folder, and delete it at the end unless it was
    renamed.

    Raise AlreadyServedError or KeyFileError.
    """
    folder = DataFolder(data.root.with_name(data.root.name + RESTORING))
    make_private_dir(folder.root)
    lock = DaemonLock.take(folder.lock)
    if lock is None:
        raise AlreadyServedError(folder.root)
    try:
        for entry in folder.root.iterdir():
            if entry != folder.lock:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        for place in (folder.spaces, folder.authorized):
            make_private_dir(place)
        yield folder
    finally:
        with suppress(OSError):
            shutil.rmtree(folder.root)  # renamed by now if all went well
        lock.release()


@contextmanager
def _errors(data: DataFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"the disk of {data.root} is full", hint="free some space; nothing was left there, so say it again"
            ) from None
        why = (error.strerror or type(error).__name__).lower()
        raise StorageError(f"cannot restore to {data.root}: {why}", hint="check both disks and say it again") from None


def _put_keys(folder: DataFolder, keys: DaemonKeys) -> list[bytes]:
    """Write the daemon's keys, and return the public keys to trust."""
    write_private_file(folder.identity, keys.identity)
    handed = credential(MASTER)
    if handed is None or handed.read_bytes() != keys.master:
        write_private_file(folder.master, keys.master)
    if keys.previous is not None and keys.rotation is not None:
        write_private_file(folder.previous, keys.previous)
        write_private_file(folder.rotation, keys.rotation)
    signers = [Identity.load(folder.identity).public_key]
    if keys.previous is not None:
        signers.append(Identity.load(folder.previous).public_key)
    return signers


def _check_files(snapshot: Path, made: BackupManifest) -> None:
    """Raise SnapshotError if a file is missing, or the manifest does not list one."""
    missing, surplus = made.strays(snapshot)
    if missing:
        raise SnapshotError(made.id, f"lacks {missing[0]}", hint="another snapshot may be whole: confided backup ls")
    if more := [name for name in surplus if not name.endswith("/")]:
        raise SnapshotError(made.id, f"has a file more than its manifest names: {more[0]}")


def _check_version(made: BackupManifest) -> None:
    """Raise StorageError if the snapshot is of a newer version than this program."""
    newest, registry_newest = migrations()[-1][0], migrations("confide_daemon.access")[-1][0]
    spaces = max((held.schema or 0 for held in made.spaces.values()), default=0)
    if spaces > newest or (made.registry.schema or 0) > registry_newest:
        raise newer_version_error(f"the snapshot {made.id}", made.version)


def _check_room(folder: DataFolder, made: BackupManifest) -> None:
    size = made.size_bytes
    free = shutil.disk_usage(folder.root).free
    if free < size + _LEAST_FREE:
        raise StorageError(
            f"the disk of {folder.root.parent} has too little room: {free / 1e6:,.0f} MB are free for {size / 1e6:,.0f} MB",
            hint="free some space, or restore to another disk with --data",
        )


class _RestoreCopy:
    """Copies files of a snapshot, and compares each with the manifest."""

    def __init__(
        self, snapshot: Path, made: BackupManifest, folder: DataFolder, follow: Callable[[str, int, int], None]
    ) -> None:
        self.config: bytes | None = None
        """Content of the snapshot's daemon.toml; None if it has none, or it is not copied yet."""
        self._snapshot = snapshot
        self._manifest = made
        self._folder = folder
        self._follow = follow
        self._done_bytes = 0

    def copy(self, names: list[str]) -> None:
        """Copy the files. Raise SnapshotError if one has changed, and OSError."""
        for name in names:
            target = None if name in (SEALED_KEYS, CONFIG) else self._folder.root / name
            try:
                size, digest = hash_file(self._snapshot / name, self._read, target=target)
            except OSError as error:
                if error.errno in _FULL:
                    raise
                raise SnapshotError(
                    self._manifest.id, f"has a file that cannot be read, {name}: {error.strerror}"
                ) from None
            file = self._manifest.files[name]
            if (size, digest) != (file.size, file.hash):
                hint = "another snapshot may be whole: confided backup ls"
                raise SnapshotError(self._manifest.id, f"was changed: {name} is not as the manifest says", hint=hint)
            if name == CONFIG:
                self.config = _check_again(self._snapshot / name, digest, self._manifest.id)

    def _read(self, read: int) -> None:
        self._done_bytes += read
        self._follow("copying", self._done_bytes, self._manifest.size_bytes)


def _check_again(path: Path, digest: bytes, name: str) -> bytes:
    content = path.read_bytes()
    if manifest.hash_of(content) != digest:
        raise SnapshotError(name, "is being changed at this moment")
    return content


def _outlook(folder: DataFolder, made: BackupManifest) -> RestorePreview:
    """Return the preview. Raise StorageError if the registry does not open, or a newer version
    wrote it.
    """
    opens: list[str] = []
    waits: list[str] = []
    for name, space_id in look_at_upgrade(folder).spaces.items():
        if space_id not in made.spaces:
            continue  # nothing was stored in it yet
        custody = Custody.read(folder.custody(space_id))
        is_theirs = custody is not None and all(each.keeper == "caller" for each in custody.names)
        (waits if is_theirs else opens).append(name)
    return RestorePreview(made, opens, waits)


def _settle(folder: DataFolder, snapshot: Path, made: BackupManifest) -> tuple[list[str], int]:
    """Apply later revocations to the registry and remove open invites; return the revoked devices'
    names and the number of invites.
    """
    state = open_state(folder, may_upgrade=True, snapshot=made.id)
    try:
        # After a restore the shared store's log of the registry is authoritative; this copy stays
        # separate from it.
        state.registry.stand_alone()
        invites = state.registry.drop_invites()
        revoked = Revocations.from_backup_folder(snapshot.parent, state).take(state.registry)
        return revoked, invites
    finally:
        state.close()


def _put_config(content: bytes | None, config_file: Path) -> bool:
    if content is None or config_file.exists():
        return False
    config_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(config_file, content)
    return True
