"""Proves a snapshot: every file as it was, every database opened and read, every canary asked again.

Copies are opened, and never the snapshot itself: whoever opens a database changes its log. They lie in the data folder for as long as that
takes, encrypted as they are, one space at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from confide_backup.daemon import manifest as manifests
from confide_backup.daemon.manifest import LOG, Database, File, Manifest, custody_of, database_of, hash_of
from confide_backup.daemon.proving.proof import Proof, Verdict, parse
from confide_backup.daemon.taking.snapshot import read_manifest, signers_of
from confide_backup.daemon.target import MANIFEST, VERIFIED, Target, check_room, write
from confide_backup.daemon.worker.client import RefusedError, Worker, working
from confide_crypto.errors import ConfideError
from confide_crypto.keys.files import make_private_dir
from confide_daemon import __version__
from confide_daemon.access.registry import State
from confide_daemon.datadir.key_state import Custody, KeyName
from confide_daemon.errors import DamagedError, SnapshotError, StorageError, WrongKeyError

PAGES: Final = "pages that cannot be read"

Follow = Callable[[str, int, int], None]


class Keys(Protocol):
    """Whoever has the keys of databases: the pool of a running daemon, or the master key alone."""

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """The key of that name, 32 bytes; None where a machine has to bring it."""
        ...


@dataclass(slots=True)
class _Found:
    """What is known so far."""

    files: Verdict = "proven"
    registry: Verdict = "unproven"
    spaces: dict[str, Verdict] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def note(self, verdict: Verdict, problem: str) -> Verdict:
        self.problems.append(problem)
        return verdict


async def prove(
    target: Target,
    name: str,
    state: State,
    keys: Keys,
    *,
    only: Collection[str] | None = None,
    is_full: bool = True,
    follow: Follow = lambda *_: None,
) -> Proof:
    """Verifies one, and writes down beside it what was found, where that can be written.

    Args:
        only: the spaces that are looked at, whose keys are at hand now; the rest is as it was found the last time.
        is_full: also what has the same bytes as in a snapshot that was proven; else these are only read and hashed.
        follow: told of the step.

    Raises SnapshotError: there is no such snapshot, or it is of a newer version; TargetError, StorageError: no room to open copies.
    """
    try:
        made, before, proven = await asyncio.to_thread(_known, target, name, state, is_full)
    except SnapshotError as error:
        if error.kind in ("missing", "newer"):
            raise
        return Proof(name, bytes(32), int(time.time()), "differs", "unproven", {}, (str(error),))
    is_part = before is not None and only is not None
    async with working() as worker:
        scratch = await asyncio.to_thread(_make_scratch, state, made)
        try:
            proving = _Proving(made, target.snapshot(name), scratch, worker, state, keys, proven, follow)
            found = await proving.all(only if is_part else None)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, True)
    if before is not None and is_part:
        spaces = {**before.spaces, **found.spaces}
        files = before.files if found.files == "proven" else found.files
        registry = before.registry
    else:
        spaces = {space_id: found.spaces.get(space_id, "unproven") for space_id in made.spaces}
        files, registry = found.files, found.registry
    proof = Proof(name, made.digest, int(time.time()), files, registry, spaces, tuple(found.problems))
    await asyncio.to_thread(_write, target, name, proof, state)
    return proof


def _known(target: Target, name: str, state: State, is_full: bool) -> tuple[Manifest, Proof | None, frozenset[str]]:
    """The manifest, what was found the last time, and the spaces whose bytes were proven elsewhere."""
    signers = signers_of(state)
    made = read_manifest(target, name, signers)
    proven = frozenset[str]() if is_full else _proven_bytes(target, made, signers)
    return made, read_proof(target, made, signers), proven


def read_proof(target: Target, made: Manifest, signers: Collection[bytes]) -> Proof | None:
    """What was found the last time; None where nobody has looked, or somebody else has written it."""
    path = target.snapshot(made.id) / VERIFIED
    try:
        with path.open("rb") as file:
            data = file.read(1 << 24)
    except OSError:
        return None
    return parse(data, snapshot=made.id, manifest=made.digest, signers=signers)


def contents(made: Manifest) -> dict[str, bytes]:
    """Of each space something that is the same where all its bytes are."""
    found = {}
    for space_id, held in made.spaces.items():
        name = database_of(space_id)
        files = [made.files.get(each) for each in (name, name + LOG, custody_of(space_id))]
        parts = b"".join(b"-" if file is None else file.hash for file in files)
        found[space_id] = hash_of(parts + (held.canaries or b"") + made.version.encode())
    return found


def custody_in(folder: Path, made: Manifest, space_id: str) -> Custody:
    """Who keeps the key of a space in a snapshot. Raises StorageError: its file there is damaged or missing."""
    if custody_of(space_id) not in made.files:
        return Custody(KeyName("server", 0))
    try:
        return Custody.parse((folder / custody_of(space_id)).read_bytes())
    except (OSError, ValueError):
        raise StorageError(f"it cannot be told who keeps the key of space {space_id} in it") from None


def _proven_bytes(target: Target, made: Manifest, signers: list[bytes]) -> frozenset[str]:
    """The spaces whose bytes were proven in another snapshot."""
    own, found = contents(made), set()
    for name in target.ids():
        with contextlib.suppress(SnapshotError):
            other = read_manifest(target, name, signers)
            proof = read_proof(target, other, signers)
            theirs = contents(other)
            found |= {one for one in (proof.proven if proof else ()) if theirs.get(one) == own.get(one)}
    return frozenset(found)


def _write(target: Target, name: str, proof: Proof, state: State) -> None:
    # A target that is mounted read-only can be verified all the same; what was found is told.
    with contextlib.suppress(OSError):
        write(target.snapshot(name) / VERIFIED, proof.to_bytes(state.identity))


def _make_scratch(state: State, made: Manifest) -> Path:
    """An empty folder of mode 0700 on a disk with room for the largest database. Raises StorageError, KeyFileError."""
    folder = state.folder.proving
    shutil.rmtree(folder, ignore_errors=True)
    sizes: Counter[str] = Counter()
    for name, file in made.files.items():
        sizes[name.removesuffix(LOG)] += file.size
    check_room(state.folder.root, max(sizes.values(), default=0), "open copies there")
    make_private_dir(folder)
    return folder


class _Proving:
    """One verification on its way."""

    def __init__(
        self,
        made: Manifest,
        folder: Path,
        scratch: Path,
        worker: Worker,
        state: State,
        keys: Keys,
        known: Collection[str],
        follow: Follow,
    ) -> None:
        self._made = made
        self._folder = folder
        self._scratch = scratch
        self._worker = worker
        self._state = state
        self._keys = keys
        self._known = known
        self._follow = follow
        self._found = _Found()

    async def all(self, only: Collection[str] | None) -> _Found:
        """Looks at everything, or at some spaces."""
        made, found = self._made, self._found
        if only is None:
            await asyncio.to_thread(self._names)
            others = [name for name in made.files if "/" not in name or name.startswith("authorized/")]
            for name in others:
                if not name.startswith(manifests.REGISTRY):
                    await self._is_whole(name)
            found.registry = await self._registry()
        space_ids = [one for one in made.spaces if only is None or one in only]
        for number, space_id in enumerate(space_ids):
            self._follow("proving spaces", number, len(space_ids))
            found.spaces[space_id] = await self._space(space_id)
            await asyncio.to_thread(self._clear)
        self._follow("proving spaces", len(space_ids), len(space_ids))
        return found

    def _names(self) -> None:
        """Whether there is no file more or less, and nothing that is no file."""
        there, odd = set(), []
        for path in self._folder.rglob("*"):
            name = path.relative_to(self._folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                there.add(name)
            elif not (stat.S_ISDIR(mode) and name in ("spaces", "authorized")):
                odd.append(name)
        surplus = sorted(there - self._made.files.keys() - {MANIFEST, VERIFIED}) + sorted(odd)
        for name in surplus:
            self._found.files = self._found.note("differs", f"{name[:200]} does not belong to it")
        for name in sorted(self._made.files.keys() - there):
            self._found.files = self._found.note("differs", f"{name} is missing")

    async def _is_whole(self, name: str, target: Path | None = None) -> bool:
        """Whether a file is as the manifest says; with `target` it is copied there on the way."""
        wanted = self._made.files.get(name)
        if wanted is None or not (self._folder / name).is_file():
            return False  # told of by `_names`
        try:
            told = await self._worker.do(
                "hash", source=str(self._folder / name), target=None if target is None else str(target)
            )
        except RefusedError as error:
            if target is None or not await asyncio.to_thread(self._can_read, name):
                self._found.files = self._found.note("unreadable", f"{name} cannot be read: {error.why}")
                return False
            raise StorageError(f"{name} cannot be copied to be opened: {error.why}", hint="is the disk full?") from None
        if File(told["size"], bytes.fromhex(told["hash"])) != wanted:
            self._found.files = self._found.note("differs", f"{name} is not what it was")
            return False
        return True

    def _can_read(self, name: str) -> bool:
        try:
            with (self._folder / name).open("rb") as file:
                while file.read(1 << 20):
                    pass
        except OSError:
            return False
        return True

    async def _database(self, name: str) -> Path | None:
        """A copy of a database with its log; None where it is not whole."""
        copy = self._scratch / Path(name).name
        is_whole = await self._is_whole(name, copy)
        if name + LOG in self._made.files:
            is_whole = await self._is_whole(name + LOG, copy.with_name(copy.name + LOG)) and is_whole
        return copy if is_whole else None

    async def _registry(self) -> Verdict:
        copy = await self._database(manifests.REGISTRY)
        if copy is None:
            return "differs"
        verdict = await self._opened(
            "the registry", "registry", copy, self._state.master.registry_key(), self._made.registry
        )
        await asyncio.to_thread(self._clear)
        return verdict

    def _clear(self) -> None:
        for left in self._scratch.iterdir():
            left.unlink()

    async def _space(self, space_id: str) -> Verdict:
        what = f"space {space_id}"
        if space_id in self._known:
            names = (database_of(space_id), database_of(space_id) + LOG, custody_of(space_id))
            is_whole = [await self._is_whole(name) for name in names if name in self._made.files]
            return "proven" if all(is_whole) else "differs"
        copy = await self._database(database_of(space_id))
        has_custody = custody_of(space_id) in self._made.files
        is_known = not has_custody or await self._is_whole(custody_of(space_id))
        if copy is None or not is_known:
            return "differs"
        try:
            written = custody_in(self._folder, self._made, space_id)
        except ConfideError as error:
            return self._found.note("unreadable", f"{what}: {error}")
        at_hand = [self._keys.key(space_id, name) for name in written.names]
        for key in at_hand:
            if key is None:
                continue
            with contextlib.suppress(WrongKeyError):
                return await self._opened(what, "space", copy, key, self._made.spaces[space_id], is_sure=True)
        if None in at_hand:
            return "unproven"
        return self._found.note("unreadable", f"{what}: its key does not open it")

    async def _opened(
        self, what: str, kind: str, copy: Path, key: bytes, held: Database, *, is_sure: bool = False
    ) -> Verdict:
        """What a copy gives when it is opened with a key. Raises WrongKeyError where it does not open, and `is_sure` is set."""
        try:
            asked_at = held.asked_at or self._made.at
            told = await self._worker.do("prove", kind=kind, source=str(copy), key=key.hex(), at=asked_at)
        except WrongKeyError:
            if is_sure:
                raise
            return self._found.note("unreadable", f"{what}: its key does not open it")
        except DamagedError as error:
            return self._found.note("unreadable", f"{what}: {error}")
        except RefusedError as error:
            return self._found.note("unreadable", f"{what}: {error.why}")
        wrong = Counter(told["wrong"])
        if wrong:
            said = ", ".join(f"{count} {breach}" for breach, count in sorted(wrong.items()))
            return self._found.note("unreadable" if PAGES in wrong else "differs", f"{what}: {said}")
        if (difference := _difference(held, told["held"], self._made.version)) is not None:
            return self._found.note("differs", f"{what}: {difference}")
        return "proven"


def _difference(then: Database, now: Mapping[str, Any], version: str) -> str | None:
    """What a copy gives otherwise than it did when it was made; None where nothing."""
    if then.schema is not None and now["schema"] != then.schema:
        return "it is of another version"
    if then.change is not None and now["change"] != then.change:
        return f"its newest change is {now['change']}, not {then.change}"
    # Another version of the program may rank otherwise.
    if then.canaries is not None and version == __version__ and now["canaries"] != then.canaries.hex():
        return "it answers its canaries otherwise"
    return None
