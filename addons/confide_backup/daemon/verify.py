"""Verifies a snapshot: compares every file, opens and reads every database, and repeats the test
searches that were recorded with it (`canaries`).

It opens copies and never the snapshot itself, since opening a database changes its log. The copies
are made in the data folder, one space at a time, and are encrypted like the originals.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confide_backup.daemon.manifest import (
    LOG,
    REGISTRY,
    VERIFIED,
    BackupManifest,
    File,
    ManifestDatabase,
    Proof,
    Verdict,
    custody_of,
    database,
    database_of,
    files_of,
)
from confide_backup.daemon.offline_spaces import Follow, SpaceAccess
from confide_backup.daemon.target import BackupTarget, Snapshot, SnapshotHistory, check_room, signers_of, write
from confide_backup.daemon.worker.worker_process import RefusedError, Worker, working
from confide_backup.errors import SnapshotError
from confide_crypto.errors import ConfideError
from confide_crypto.keys.private_files import make_private_dir
from confide_daemon import __version__
from confide_daemon.access.registry import RegistryState
from confide_daemon.errors import DamagedError, StorageError, WrongKeyError
from confide_daemon.store.upkeep.integrity import PAGES


async def prove(
    target: BackupTarget,
    name: str,
    state: RegistryState,
    spaces: SpaceAccess,
    *,
    only: Collection[str] | None = None,
    is_full: bool = True,
    follow: Follow = lambda *_: None,
) -> Proof:
    """Verify a snapshot, and write the record of it into the snapshot if that is writable.

    Args:
        spaces: access to the keys of databases.
        only: spaces to verify, whose keys are available now; the others keep their last verdict.
            None for all.
        is_full: also open spaces with the same bytes as in a verified snapshot; otherwise only hash
            them.
        follow: called with the step.

    Raise SnapshotError if there is no such snapshot or it is of a newer version, and TargetError or
    StorageError if there is no disk space for copies.
    """
    try:
        known = await asyncio.to_thread(lambda: Snapshot.read(target, name, signers_of(state)))
    except SnapshotError as error:
        if error.kind in ("missing", "newer"):
            raise
        return Proof(name, bytes(32), int(time.time()), "differs", "unproven", {}, (str(error),))
    made, before = known.manifest, known.proof
    proven = frozenset[str]() if is_full else await asyncio.to_thread(_proven_bytes, target, made, state)
    async with working() as worker:
        scratch = await asyncio.to_thread(_make_scratch, state, made)
        try:
            proving = _Proving(made, target.snapshot(name), scratch, worker, state, spaces, proven)
            found = await proving.all(None if before is None else only, follow)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, True)
    earlier: Mapping[str, Verdict] = dict.fromkeys(made.spaces, "unproven")
    files, registry = found.files, found.registry
    if before is not None and only is not None:
        earlier, registry = before.spaces, before.registry
        files = before.files if found.files == "proven" else found.files
    proof = Proof(
        name, made.digest, int(time.time()), files, registry, {**earlier, **found.spaces}, tuple(found.problems)
    )
    # A read-only target can be verified too: the caller gets the result.
    with contextlib.suppress(OSError):
        await asyncio.to_thread(write, target.snapshot(name) / VERIFIED, proof.to_bytes(state.identity))
    return proof


def _proven_bytes(target: BackupTarget, made: BackupManifest, state: RegistryState) -> frozenset[str]:
    """Return the spaces whose bytes were proven in another snapshot."""
    own = made.contents()
    found = set()
    for other in SnapshotHistory.read(target, state).whole:
        theirs = other.manifest.contents()
        found |= {one for one in other.proven if theirs.get(one) == own.get(one)}
    return frozenset(found)


def _make_scratch(state: RegistryState, made: BackupManifest) -> Path:
    """Create an empty folder of mode 0700, with space for the largest database. Raise StorageError
    or KeyFileError.
    """
    folder = state.folder.proving
    shutil.rmtree(folder, ignore_errors=True)
    sizes: Counter[str] = Counter()
    for name, file in made.files.items():
        sizes[name.removesuffix(LOG)] += file.size
    check_room(state.folder.root, max(sizes.values(), default=0), "open copies there")
    make_private_dir(folder)
    return folder


@dataclass(slots=True)
class _Found:
    """The results of a verification so far."""

    files: Verdict = "proven"
    registry: Verdict = "unproven"
    spaces: dict[str, Verdict] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def note(self, verdict: Verdict, problem: str) -> Verdict:
        self.problems.append(problem)
        return verdict


class _Proving:
    """A running verification."""

    def __init__(
        self,
        made: BackupManifest,
        folder: Path,
        scratch: Path,
        worker: Worker,
        state: RegistryState,
        spaces: SpaceAccess,
        known: Collection[str],
    ) -> None:
        self._manifest = made
        self._folder = folder
        self._scratch = scratch
        self._worker = worker
        self._state = state
        self._spaces = spaces
        self._known_spaces = known
        self._problems = _Found()

    async def all(self, only: Collection[str] | None, follow: Follow) -> _Found:
        """Verify everything, or only some spaces."""
        made, found = self._manifest, self._problems
        if only is None:
            missing, surplus = await asyncio.to_thread(made.strays, self._folder)
            problems = [f"{name[:200].rstrip('/')} does not belong to it" for name in surplus]
            for problem in (*problems, *(f"{name} is missing" for name in missing)):
                found.files = found.note("differs", problem)
            for name in made.files:
                if ("/" not in name or name.startswith("authorized/")) and not name.startswith(REGISTRY):
                    await self._is_whole(name)
            found.registry = await self._registry()
        space_ids = [one for one in made.spaces if only is None or one in only]
        for number, space_id in enumerate(space_ids):
            follow("proving spaces", number, len(space_ids))
            found.spaces[space_id] = await self._space(space_id)
            await asyncio.to_thread(self._clear)
        follow("proving spaces", len(space_ids), len(space_ids))
        return found

    async def _is_whole(self, name: str, target: Path | None = None) -> bool:
        """Return True if a file matches the manifest; with `target`, copy it there at the same
        time.
        """
        wanted = self._manifest.files.get(name)
        if wanted is None or not (self._folder / name).is_file():
            return False  # reported as missing
        try:
            copy = None if target is None else str(target)
            told = await self._worker.do("hash", source=str(self._folder / name), target=copy)
        except RefusedError as error:
            if target is None or not await asyncio.to_thread(self._can_read, name):
                self._problems.files = self._problems.note("unreadable", f"{name} cannot be read: {error.why}")
                return False
            raise StorageError(f"{name} cannot be copied to be opened: {error.why}", hint="is the disk full?") from None
        if File.parse(told) != wanted:
            self._problems.files = self._problems.note("differs", f"{name} is not what it was")
            return False
        return True

    def _can_read(self, name: str) -> bool:
        with contextlib.suppress(OSError), (self._folder / name).open("rb") as file:
            while file.read(1 << 20):
                pass
            return True
        return False

    async def _database(self, name: str) -> Path | None:
        """Copy a database with its log; return None if it does not match the manifest."""
        copy = self._scratch / Path(name).name
        is_whole = await self._is_whole(name, copy)
        if name + LOG in self._manifest.files:
            is_whole = await self._is_whole(name + LOG, copy.with_name(copy.name + LOG)) and is_whole
        return copy if is_whole else None

    async def _registry(self) -> Verdict:
        copy = await self._database(REGISTRY)
        if copy is None:
            return "differs"
        try:
            return await self._open_copy(
                "the registry", "registry", copy, self._state.master.registry_key(), self._manifest.registry
            )
        except WrongKeyError:
            return self._problems.note("unreadable", "the registry: its key does not open it")
        finally:
            await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        for left in self._scratch.iterdir():
            left.unlink()

    async def _space(self, space_id: str) -> Verdict:
        what = f"space {space_id}"
        if space_id in self._known_spaces:
            is_whole = [await self._is_whole(name) for name in files_of(space_id) if name in self._manifest.files]
            return "proven" if all(is_whole) else "differs"
        copy = await self._database(database_of(space_id))
        has_custody = custody_of(space_id) in self._manifest.files
        is_known = not has_custody or await self._is_whole(custody_of(space_id))
        if copy is None or not is_known:
            return "differs"
        try:
            written = self._manifest.custody_in(self._folder, space_id)
        except ConfideError as error:
            return self._problems.note("unreadable", f"{what}: {error}")
        at_hand = [self._spaces.key(space_id, name) for name in written.names]
        for key in at_hand:
            if key is not None:
                with contextlib.suppress(WrongKeyError):
                    return await self._open_copy(what, "space", copy, key, self._manifest.spaces[space_id])
        if None in at_hand:
            return "unproven"
        return self._problems.note("unreadable", f"{what}: its key does not open it")

    async def _open_copy(self, what: str, kind: str, copy: Path, key: bytes, held: ManifestDatabase) -> Verdict:
        """Open a copy with a key, and return its verdict. Raise WrongKeyError if the key does not
        open it.
        """
        try:
            asked_at = held.asked_at or self._manifest.at
            told = await self._worker.do("prove", kind=kind, source=str(copy), key=key.hex(), at=asked_at)
        except DamagedError as error:
            return self._problems.note("unreadable", f"{what}: {error}")
        except RefusedError as error:
            return self._problems.note("unreadable", f"{what}: {error.why}")
        wrong: dict[str, int] = told["wrong"]
        if wrong:
            said = ", ".join(f"{count} {breach}" for breach, count in sorted(wrong.items()))
            return self._problems.note("unreadable" if PAGES in wrong else "differs", f"{what}: {said}")
        if (difference := _difference(held, database(told["held"]), self._manifest.version)) is not None:
            return self._problems.note("differs", f"{what}: {difference}")
        return "proven"


def _difference(then: ManifestDatabase, now: ManifestDatabase, version: str) -> str | None:
    """Return the difference between a copy's state and that when it was made, or None."""
    if then.schema is not None and now.schema != then.schema:
        return "it is of another version"
    if then.change is not None and now.change != then.change:
        return f"its newest change is {now.change}, not {then.change}"
    # Another version may rank differently.
    if then.canaries is not None and version == __version__ and now.canaries != then.canaries:
        return "it answers its canaries otherwise"
    return None
