"""Takes a snapshot of the data folder, with or without a running daemon.

Spaces are copied first and the registry last. So every copied space has its row in the registry,
and the registry's revocations are as recent as possible. Files are copied byte by byte, which needs
no key. If the key is available, the copy is of one state that is held meanwhile (`held_view`), and
the results of test searches in it are recorded (`canaries`).

After a text was forgotten, its space can be removed from older snapshots. Records beside the
snapshots let a restored space forget the text again. They reveal nothing without a key in the
space's encrypted database.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_backup.daemon import manifest
from confide_backup.daemon.manifest import LOG, MANIFEST, VERIFIED, BackupManifest, File, ManifestDatabase
from confide_backup.daemon.offline_spaces import Follow, SpaceAccess, catch_up, present
from confide_backup.daemon.sealed_keys import BackupKey, DaemonKeys
from confide_backup.daemon.target import BackupTarget, Snapshot, SnapshotHistory, signers_of, write
from confide_backup.daemon.worker.worker_process import RefusedError, Worker, working
from confide_backup.errors import TargetError
from confide_crypto import atomic
from confide_crypto.keys.identity import Identity
from confide_daemon import __version__
from confide_daemon.access.registry import RegistryState
from confide_daemon.addons import HeldCopy
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import StorageError, WrongKeyError

log = logging.getLogger(__name__)

RECORDS: Final = "forgotten"
"""The folder of the records, in the target."""
_TRIES: Final = 3
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


async def take(
    state: RegistryState,
    spaces: SpaceAccess,
    config_file: Path | None,
    target: BackupTarget,
    *,
    clock: Callable[[], float] = time.time,
    follow: Follow = lambda *_: None,
) -> tuple[BackupManifest, list[str]]:
    """Take a snapshot. It is listed only once it is complete. Return its manifest, and the spaces
    that have newer changes on other nodes.

    `config_file` is the path of daemon.toml, which may not exist.

    Raise TargetError if the backup folder belongs to another daemon, is full or is not writable,
    DataFolderError if there is no backup key, and StorageError or KeyFileError if something cannot
    be read.
    """
    key = await asyncio.to_thread(BackupKey.load, state.folder)
    target.check(await asyncio.to_thread(signers_of, state))
    async with target.alone():
        moment = clock()
        history = await asyncio.to_thread(SnapshotHistory.read, target, state)
        for error in history.strange.values():
            log.warning("%s", error)
        last = None if history.newest is None else history.newest.manifest
        size = await asyncio.to_thread(_size, state.folder, 0.0 if last is None else last.at)
        await asyncio.to_thread(target.check_room, size)
        name = target.free_id(moment)
        try:
            folder = await asyncio.to_thread(target.begin, name)
            async with working() as worker:
                copying = _SnapshotCopy(state, spaces, worker, folder, target, last, int(moment))
                held = await copying.spaces(follow)
                registry = await copying.registry()
                await copying.others(config_file)
            return await asyncio.to_thread(copying.finish, name, key, held, registry), copying.behind
        except RefusedError as error:
            if error.number in _FULL:
                hint = "free some space there, or keep fewer: confided backup --prune"
                raise TargetError(target.folder, "is full", hint=hint) from None
            problem = f"cannot take a snapshot of {state.folder.root}: {error.why}"
            raise TargetError(target.folder, problem, hint="check both disks") from None
        finally:
            await asyncio.to_thread(_sweep, target)


def _sweep(target: BackupTarget) -> None:
    try:
        target.sweep()
    except TargetError as error:
        log.warning("%s", error)


def _size(folder: DataFolder, since: float) -> int:
    """Return the bytes of files that may have changed since then, which a snapshot has to write."""
    size = 0
    for path in (folder.registry, *folder.spaces.glob("*.db"), *folder.spaces.glob("*.db-wal")):
        with suppress(FileNotFoundError):
            status = path.stat()
            size += status.st_size if status.st_mtime >= since else 0
    return size


class _SnapshotCopy:
    """The copy of a data folder to a new snapshot."""

    def __init__(
        self,
        state: RegistryState,
        spaces: SpaceAccess,
        worker: Worker,
        folder: Path,
        target: BackupTarget,
        last: BackupManifest | None,
        at: int,
    ) -> None:
        self.behind: list[str] = []
        """Spaces that other nodes have changed and whose keys are not available here: their last
        local state is copied, if any.
        """
        self._files: dict[str, File] = {}
        self._state = state
        self._spaces = spaces
        self._worker = worker
        self._folder = folder
        self._target = target
        self._last = last
        self._at = at

    async def spaces(self, follow: Follow) -> dict[str, ManifestDatabase]:
        """Copy every space that has data."""
        found: dict[str, ManifestDatabase] = {}
        space_ids = await present(self._spaces.leases, self._state.folder, self._state.registry.spaces().values())
        for number, space_id in enumerate(space_ids):
            follow("copying spaces", number, len(space_ids))
            if (held := await self._space(space_id)) is not None:
                found[space_id] = held
        follow("copying spaces", len(space_ids), len(space_ids))
        return found

    async def registry(self) -> ManifestDatabase:
        """Copy the registry in its current state, with revocations that other nodes made meanwhile."""
        try:
            await asyncio.to_thread(self._state.registry.follow)
        except StorageError as error:
            log.warning("the registry is copied as it was known last: %s", error)
        key = self._state.master.registry_key()
        return await self._database("registry", self._state.folder.registry, manifest.REGISTRY, key, None)

    async def others(self, config_file: Path | None) -> None:
        """Copy the configuration, and the keys of this user's own devices."""
        if config_file is not None and config_file.exists():
            await self._copy(config_file.resolve(), manifest.CONFIG)
        for path in sorted(self._state.folder.authorized.glob("*")):
            if path.is_file() and not path.is_symlink():
                await self._copy(path, f"authorized/{path.name}")

    def finish(
        self, name: str, key: BackupKey, spaces: Mapping[str, ManifestDatabase], registry: ManifestDatabase
    ) -> BackupManifest:
        """Add the sealed keys and the manifest, and rename the snapshot to its final name. Writes
        to disk.
        """
        identity = self._state.identity
        sealed = key.seal(DaemonKeys.read(self._state.folder), daemon=identity.public_key, snapshot=name)
        self._files[manifest.SEALED_KEYS] = File(len(sealed), manifest.hash_of(sealed))
        number = 1 if self._last is None else self._last.number + 1
        made = BackupManifest(name, number, self._at, identity.public_key, __version__, self._files, spaces, registry)
        with self._target.errors("be written"):
            write(self._folder / manifest.SEALED_KEYS, sealed)
            write(self._folder / MANIFEST, made.to_bytes(identity))
        self._target.finish(name)
        log.info("snapshot %s: %d files", name, len(made.files))
        return made

    async def _space(self, space_id: str) -> ManifestDatabase | None:
        """Copy a space; return None if it has no data here and the shared store could not provide
        it.
        """
        for attempt in range(_TRIES):
            try:
                return await self._copy_frozen(space_id)
            except StorageError as error:
                if isinstance(error, TargetError) or attempt == _TRIES - 1:
                    raise
                log.warning("space %s is copied once more: %s", space_id, error)
                self._drop(manifest.files_of(space_id))
                self.behind = [one for one in self.behind if one != space_id]
        raise AssertionError

    async def _copy_frozen(self, space_id: str) -> ManifestDatabase | None:
        folder, spaces = self._state.folder, self._spaces
        path, custody, name = folder.space(space_id), folder.custody(space_id), manifest.database_of(space_id)
        known = None if self._last is None else self._last.spaces.get(space_id)
        async with spaces.freeze(space_id) as stilled:
            key, is_current = await catch_up(spaces.leases, space_id, folder, stilled, spaces.chunks)
            if not is_current:
                self.behind.append(space_id)
            if not path.exists():
                return None
            try:
                held = await self._database("space", path, name, key, known)
            except WrongKeyError:
                # Encrypted with another key than recorded: copies the bytes all the same, as long
                # as it is not open.
                held = await self._database("space", path, name, None, known)
            if custody.exists():
                await self._copy(custody, manifest.custody_of(space_id))
            return held

    def _drop(self, names: tuple[str, ...]) -> None:
        with self._target.errors("be written"):
            for each in names:
                (self._folder / each).unlink(missing_ok=True)
                self._files.pop(each, None)

    async def _database(
        self, kind: str, source: Path, name: str, key: bytes | None, known: ManifestDatabase | None
    ) -> ManifestDatabase:
        self._drop((name, name + LOG))  # from an earlier attempt
        # Another version may rank differently.
        is_same_version = self._last is not None and self._last.version == __version__
        told = await self._worker.do(
            "copy database",
            kind=kind,
            source=str(source),
            target=str(self._folder / name),
            previous=self._previous(name),
            key=None if key is None else key.hex(),
            known=manifest.database_json(known) if known is not None and known.canaries and is_same_version else None,
            at=self._at,
        )
        self._files |= {name + suffix: File.parse(file) for suffix, file in told["files"].items()}
        if "held" in told:
            return manifest.database(told["held"])
        is_same = all(file["linked"] for file in told["files"].values())
        return known if is_same and known is not None else ManifestDatabase()

    async def _copy(self, source: Path, name: str) -> None:
        told = await self._worker.do(
            "copy", source=str(source), target=str(self._folder / name), previous=self._previous(name)
        )
        self._files[name] = File.parse(told)

    def _previous(self, name: str) -> str | None:
        if self._last is None or name not in self._last.files:
            return None
        return str(self._target.snapshot(self._last.id) / name)


def copies_in(history: SnapshotHistory, space_id: str, before: float) -> list[HeldCopy]:
    """Return the snapshots that contain the space as it was before the time `before` (seconds since
    1970).
    """
    found = [HeldCopy("snapshot", one.id, "kept") for one in older(history, space_id, before)]
    return found + [HeldCopy("snapshot", name, "not known") for name in history.strange]


def older(history: SnapshotHistory, space_id: str, before: float) -> list[Snapshot]:
    """Return the snapshots that contain the space and were started before the time `before`."""
    return [one for one in history.whole if space_id in one.manifest.spaces and one.manifest.at <= before]


def drop_space(target: BackupTarget, made: BackupManifest, space_id: str, identity: Identity) -> None:
    """Remove a space from a snapshot, and sign its manifest again. The caller must hold the lock of
    the backup folder.

    If it is interrupted, a second call completes it. Raise TargetError if the files cannot be
    changed.
    """
    folder, gone = target.snapshot(made.id), manifest.files_of(space_id)
    left = dataclasses.replace(
        made,
        daemon=identity.public_key,
        files={name: file for name, file in made.files.items() if name not in gone},
        spaces={one: held for one, held in made.spaces.items() if one != space_id},
    )
    proof = Snapshot.read(target, made.id, [made.daemon]).proof
    with target.errors("be written"):
        for name in gone:
            with suppress(FileNotFoundError):
                (folder / name).unlink()
        atomic.sync(folder / "spaces")
        data = left.to_bytes(identity)
        write(folder / MANIFEST, data)
        if proof is None:
            return
        spaces = {one: verdict for one, verdict in proof.spaces.items() if one != space_id}
        said = dataclasses.replace(proof, manifest=manifest.hash_of(data), spaces=spaces)
        write(folder / VERIFIED, said.to_bytes(identity))


def keep_records(target: BackupTarget, folder: DataFolder, space_id: str) -> Path | None:
    """Copy a space's records of forgotten texts to the backup folder. Return the copy, or None if
    it did not change. Raise TargetError if it cannot be written.
    """
    source = folder.forgotten_file(space_id)
    file = target.folder / RECORDS / source.name
    with target.errors("be written"):
        if not source.exists():
            return None
        data = source.read_bytes()
        if file.exists() and file.read_bytes() == data:
            return None
        file.parent.mkdir(mode=0o700, exist_ok=True)
        write(file, data)
    return file


def take_records(snapshot: Path, folder: DataFolder, space_id: str) -> bool:
    """Copy the records of forgotten texts from beside the snapshot to a restored space. Return True
    if there are any. Raise OSError if that fails.
    """
    goal = folder.forgotten_file(space_id)
    file = snapshot.parent / RECORDS / goal.name
    if not file.exists():
        return False
    write(goal, file.read_bytes())
    return True
