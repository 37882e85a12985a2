"""A snapshot of the data folder, taken while it is served or while nobody serves it.

Spaces come first and the registry last: no space is without its row, and revocations are as new as can be. Bytes are copied as they are, so
no key is needed; where one is at hand, the copy is of one state that is held meanwhile (`held_view`) and asked its canaries.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from confide_backup.daemon import manifest
from confide_backup.daemon.manifest import LOG, Database, File, Manifest
from confide_backup.daemon.sealed_keys import BackupKey, DaemonKeys
from confide_backup.daemon.taking.closed import caught_up, present
from confide_backup.daemon.target import MANIFEST, Target, write
from confide_backup.daemon.worker.client import RefusedError, Worker, working
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.files import read_private_file, write_private_file
from confide_crypto.keys.identity import KEY_LENGTH, Identity
from confide_daemon import __version__
from confide_daemon.access.registry import State
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import SnapshotError, StorageError, TargetError, WrongKeyError
from confide_daemon.spaces.entry import Stilled
from confide_daemon.store.logs import Leases

log = logging.getLogger(__name__)

_TRIES: Final = 3
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Follow = Callable[[str, int, int], None]
"""Told of the step (a few words), how many bytes of it are done, and how many there are."""


class Spaces(Protocol):
    """Whoever has the spaces: the pool of a running daemon, or nobody."""

    @property
    def leases(self) -> Leases | None:
        """Of their logs, which other nodes may write to; None: their files are all there is."""
        ...

    @property
    def chunks(self) -> ChunkSettings:
        """How their documents are cut."""
        ...

    def still(self, space_id: str) -> AbstractAsyncContextManager[Stilled]:
        """How the space is; within this its file and its custody are not changed.

        One that nobody has open is not opened within this either.
        """
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """What is copied."""

    state: State
    spaces: Spaces
    config_file: Path | None  # may not be there

    @property
    def folder(self) -> DataFolder:
        return self.state.folder

    @property
    def identity(self) -> Identity:
        return self.state.identity


async def take(
    source: Source,
    target: Target,
    *,
    clock: Callable[[], float] = time.time,
    follow: Follow = lambda *_: None,
    tell_behind: Callable[[Collection[str]], None] = lambda _space_ids: None,
) -> Manifest:
    """Takes one; it is listed when this returns, and not before.

    `tell_behind`: told of spaces that other nodes have written in since what is copied of them, if there are any.

    Raises TargetError: the target is not this daemon's, full, or cannot be written; DataFolderError: there is no backup key; StorageError,
    KeyFileError: something cannot be read.
    """
    key = await asyncio.to_thread(BackupKey.load, source.folder)
    signers = await asyncio.to_thread(signers_of, source.state)
    await asyncio.to_thread(target.check, signers)
    async with target.alone():
        moment = clock()
        before = await asyncio.to_thread(_readable, target, signers)
        last = max(before, key=lambda made: made.number, default=None)
        size = await asyncio.to_thread(_size, source.folder, 0.0 if last is None else last.at)
        await asyncio.to_thread(target.check_room, size)
        name = target.free_id(moment)
        try:
            folder = await asyncio.to_thread(target.begin, name)
            async with working() as worker:
                copying = _Copying(source, target, worker, folder, last, int(moment), follow)
                spaces = await copying.spaces()
                registry = await copying.registry()
                await copying.others()
            if copying.behind:
                tell_behind(copying.behind)
            number = 1 if last is None else last.number + 1
            return await asyncio.to_thread(copying.finish, name, number, key, spaces, registry)
        except RefusedError as error:
            if error.number in _FULL:
                hint = "free some space there, or keep fewer: confided backup prune"
                raise TargetError(target.folder, "is full", hint=hint) from None
            problem = f"cannot take a snapshot of {source.folder.root}: {error.why}"
            raise TargetError(target.folder, problem, hint="check both disks") from None
        finally:
            await asyncio.to_thread(_sweep, target)


def signers_of(state: State) -> list[bytes]:
    """The public keys whose snapshots are this daemon's own: the present one first, and those that it had before.

    An old key is noted while a rotation is under way, beside the others: snapshots outlive it by a year. Raises KeyFileError.
    """
    path = state.folder.backup_signers
    try:
        former = [bytes.fromhex(line) for line in read_private_file(path).decode().split()] if path.exists() else []
        if any(len(key) != KEY_LENGTH for key in former):
            raise ValueError
    except ValueError:
        raise KeyFileError(
            path, "is damaged", hint="move it away; snapshots of an older key are not believed then"
        ) from None
    old = None if state.keys.rotation is None else state.keys.rotation.old.public_key
    if old is not None and old not in former:
        former.append(old)
        write_private_file(path, b"".join(key.hex().encode() + b"\n" for key in former), replace=True)
    return [state.identity.public_key, *former]


def read_manifest(target: Target, name: str, signers: list[bytes]) -> Manifest:
    """Raises SnapshotError: it is not there, or not to be believed; TargetError."""
    path = target.snapshot(name) / MANIFEST
    with target.errors("be read"):
        try:
            with path.open("rb") as file:
                data = file.read(manifest.MOST_BYTES + 1)
        except FileNotFoundError:
            if target.snapshot(name).is_dir():
                raise SnapshotError(name, "has no manifest") from None
            problem = "is not there"
            hint = "confided backup ls shows those that are"
            raise SnapshotError(name, problem, hint=hint, kind="missing") from None
    return Manifest.parse(data, name=name, signers=signers)


def _readable(target: Target, signers: list[bytes]) -> list[Manifest]:
    found = []
    for name in target.ids():
        try:
            found.append(read_manifest(target, name, signers))
        except SnapshotError as error:
            log.warning("%s", error)
    return found


def _sweep(target: Target) -> None:
    try:
        target.sweep()
    except TargetError as error:
        log.warning("%s", error)


def _size(folder: DataFolder, since: float) -> int:
    """Bytes of what may have changed since then, which a snapshot has to write."""
    found = [folder.registry, *folder.spaces.glob("*.db"), *folder.spaces.glob("*.db-wal")]
    size = 0
    for path in found:
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        size += status.st_size if status.st_mtime >= since else 0
    return size


class _Copying:
    """One snapshot on its way."""

    def __init__(
        self,
        source: Source,
        target: Target,
        worker: Worker,
        folder: Path,
        last: Manifest | None,
        at: int,
        follow: Follow,
    ) -> None:
        self.files: dict[str, File] = {}
        self.behind: list[str] = []
        """Spaces that other nodes have written in, and whose keys are not here: they are as this machine had them last, if at all."""
        self._source = source
        self._target = target
        self._worker = worker
        self._folder = folder
        self._last = last
        self._at = at
        self._follow = follow

    async def spaces(self) -> dict[str, Database]:
        """Copies every space that there is something of."""
        found: dict[str, Database] = {}
        source = self._source
        space_ids = await present(source.spaces.leases, source.folder, source.state.registry.spaces().values())
        for number, space_id in enumerate(space_ids, 1):
            self._follow("copying spaces", number - 1, len(space_ids))
            if (held := await self._space(space_id)) is not None:
                found[space_id] = held
        self._follow("copying spaces", len(space_ids), len(space_ids))
        return found

    async def registry(self) -> Database:
        """As it is now: whoever was revoked on another node meanwhile is revoked in it."""
        try:
            await asyncio.to_thread(self._source.state.registry.follow)
        except StorageError as error:
            log.warning("the registry is copied as it was known last: %s", error)
        key = self._source.state.master.registry_key()
        return await self._database("registry", self._source.folder.registry, manifest.REGISTRY, key, None)

    async def others(self) -> None:
        """The configuration, and the keys of this user's own machines."""
        config_file = self._source.config_file
        if config_file is not None and config_file.exists():
            await self._copy(config_file.resolve(), manifest.CONFIG)
        for path in sorted(self._source.folder.authorized.glob("*")):
            if path.is_file() and not path.is_symlink():
                await self._copy(path, f"authorized/{path.name}")

    def finish(
        self, name: str, number: int, key: BackupKey, spaces: Mapping[str, Database], registry: Database
    ) -> Manifest:
        """Adds the sealed keys and the manifest, and gives the snapshot its name. Disk."""
        identity = self._source.identity
        keys = DaemonKeys.read(self._source.folder)
        self._put(manifest.SEALED_KEYS, key.seal(keys, daemon=identity.public_key, snapshot=name))
        made = Manifest(name, number, self._at, identity.public_key, __version__, self.files, spaces, registry)
        self._put(MANIFEST, made.to_bytes(identity))
        self._target.finish(name)
        log.info("snapshot %s: %d files", name, len(made.files))
        return made

    def _put(self, name: str, data: bytes) -> None:
        with self._target.errors("be written"):
            write(self._folder / name, data)
        if name != MANIFEST:
            self.files[name] = File(len(data), manifest.hash_of(data))

    async def _space(self, space_id: str) -> Database | None:
        """None: there is nothing of it here, and it could not be had from the store."""
        folder = self._source.folder
        known = None if self._last is None else self._last.spaces.get(space_id)
        name = manifest.database_of(space_id)
        for attempt in range(_TRIES):
            try:
                async with self._source.spaces.still(space_id) as stilled:
                    spaces = self._source.spaces
                    key, is_current = await caught_up(spaces.leases, space_id, folder, stilled, spaces.chunks)
                    if not is_current:
                        self.behind.append(space_id)
                    if not folder.space(space_id).exists():
                        return None
                    try:
                        held = await self._database("space", folder.space(space_id), name, key, known)
                    except WrongKeyError:
                        # Of another key than is written down: its bytes are copied all the same, as long as nobody has it open.
                        held = await self._database("space", folder.space(space_id), name, None, known)
                    if folder.custody(space_id).exists():
                        await self._copy(folder.custody(space_id), manifest.custody_of(space_id))
                    return held
            except StorageError as error:
                if isinstance(error, TargetError) or attempt == _TRIES - 1:
                    raise
                log.warning("space %s is copied once more: %s", space_id, error)
                self._drop(space_id)
                self.behind = [one for one in self.behind if one != space_id]
        raise AssertionError

    def _drop(self, space_id: str) -> None:
        name = manifest.database_of(space_id)
        with self._target.errors("be written"):
            for each in (name, name + LOG, manifest.custody_of(space_id)):
                (self._folder / each).unlink(missing_ok=True)
                self.files.pop(each, None)

    async def _database(
        self, kind: str, source: Path, name: str, key: bytes | None, known: Database | None
    ) -> Database:
        with self._target.errors("be written"):  # of an attempt before
            for each in (name, name + LOG):
                (self._folder / each).unlink(missing_ok=True)
        told = await self._worker.do(
            "copy database",
            kind=kind,
            source=str(source),
            target=str(self._folder / name),
            previous=self._previous(name),
            key=None if key is None else key.hex(),
            known=manifest.said(known) if known is not None and known.canaries and self._is_same_version else None,
            at=self._at,
        )
        for suffix, file in told["files"].items():
            self.files[name + suffix] = _file(file)
        if "held" in told:
            return manifest.database(told["held"])
        is_same = all(file["linked"] for file in told["files"].values())
        return known if is_same and known is not None else Database()

    async def _copy(self, source: Path, name: str) -> None:
        told = await self._worker.do(
            "copy", source=str(source), target=str(self._folder / name), previous=self._previous(name)
        )
        self.files[name] = _file(told)

    def _previous(self, name: str) -> str | None:
        has = self._last is not None and name in self._last.files
        return str(self._target.snapshot(self._last.id) / name) if has and self._last is not None else None

    @property
    def _is_same_version(self) -> bool:
        """Another version may rank otherwise."""
        return self._last is not None and self._last.version == __version__


def _file(told: Mapping[str, Any]) -> File:
    return File(told["size"], bytes.fromhex(told["hash"]))
