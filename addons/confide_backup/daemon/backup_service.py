"""Takes, verifies and removes snapshots one at a time, for a running daemon or for a command."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from confide_backup.daemon import backup_schedule, snapshot, verify
from confide_backup.daemon.manifest import MANIFEST, BackupManifest, Proof
from confide_backup.daemon.offline_spaces import Follow, SpaceAccess
from confide_backup.daemon.target import BackupTarget, SnapshotHistory, id_of, is_id
from confide_backup.errors import SnapshotError
from confide_backup.settings import BackupConfig
from confide_crypto.errors import ConfideError
from confide_daemon.access.registry import RegistryState
from confide_daemon.addons import HeldCopy
from confide_daemon.datadir.key_state import KeyName
from confide_daemon.errors import BadNameError

log = logging.getLogger(__name__)

What = Literal["take", "verify", "prune"]
WHATS: Final[tuple[What, ...]] = get_args(What)
_SECOND_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class BackupRequest:
    """A request to take, verify or remove snapshots."""

    what: What
    to: str = ""  # the target; "": the one that is configured
    name: str = ""  # of a snapshot; "": the newest


@dataclass(frozen=True, slots=True)
class BackupStatus:
    """The state of the snapshots in the configured backup folder."""

    newest: str = ""  # its name; "" without one
    newest_at: int | None = None  # when it was taken, seconds since 1970
    proven_at: float = 0.0  # time of the newest that is proven as a whole; 0 without one
    unproven: int = 0  # number of unproven spaces in the newest
    waiting: Mapping[str, tuple[KeyName, ...]] = field(default_factory=dict)  # keys that unproven spaces wait for
    late: Sequence[str] = ()  # spaces without a recent proven snapshot


class Backups:
    """Takes, verifies and removes the snapshots of one data folder."""

    def __init__(
        self,
        state: RegistryState,
        spaces: SpaceAccess,
        config: BackupConfig,
        config_file: Path | None,
    ) -> None:
        """Prepare backups; `config_file` is daemon.toml, which each snapshot includes if it exists."""
        self._state = state
        self._spaces = spaces
        self._config_file = config_file
        self._config = config
        self._turn = asyncio.Lock()

    async def do(self, asked: BackupRequest, follow: Follow) -> dict[str, Any]:
        """Take, verify or remove snapshots as requested, and return the JSON result for the command
        that asked. Only one request runs at a time.

        `follow` is called with the progress. Raises ConfideError if the request fails.
        """
        target = target_of(self._config, asked.to)
        async with self._turn:
            match asked.what:
                case "take":
                    made, behind = await self._take(target, follow)
                    folder = target.snapshot(made.id)
                    await self._run_after(folder, made.id)
                    fields = {"snapshot": made.id, "folder": str(folder), "spaces": len(made.spaces)}
                    return {**fields, "behind": behind}
                case "verify":
                    return await self._verify(target, asked.name, follow)
                case "prune":
                    return {"removed": await self._prune(target)}

    async def nightly(self, follow: Follow = lambda *_: None) -> None:
        """Take a snapshot, verify it, remove old ones, and run the operator's program. Raises
        ConfideError if a step fails.
        """
        target = target_of(self._config, "")
        async with self._turn:
            made, behind = await self._take(target, follow)
            if behind:
                named = ", ".join(sorted(behind))
                log.warning("copied as this machine had them last, since other nodes have them: %s", named)
            try:
                proof = await self._prove(target, made.id, follow, is_full=False)
                if proof.is_sound:
                    await self._prune(target)
            finally:
                await self._run_after(target.snapshot(made.id), made.id)

    def held_copies(self, space_id: str, before: float) -> list[HeldCopy]:
        """Return the snapshots that contain the space as it was before the time `before` (seconds
        since 1970). Raise TargetError if the backup folder cannot be read.
        """
        history = self.history(target_of(self._config, ""))
        return snapshot.copies_in(history, space_id, before)

    async def drop_copies(self, space_id: str, before: float) -> list[str]:
        """Take and verify a new snapshot, then remove the space from all snapshots taken before the
        time `before`; return their names.

        Raise ConfideError if a step fails.
        """
        target = target_of(self._config, "")
        async with self._turn:
            history = await asyncio.to_thread(self.history, target)
            found = snapshot.older(history, space_id, before)
            if not found:
                return []
            # A snapshot states the second in which it began, and one of this second would count as older.
            await asyncio.sleep(min(_SECOND_S, max(0.0, int(before) + _SECOND_S - time.time())))
            made, _ = await self._take(target, lambda *_: None)
            proof = await self._prove(target, made.id, lambda *_: None, is_full=False)
            if not proof.is_sound:
                problem = "could not be verified, so the older ones stay"
                raise SnapshotError(made.id, problem, hint="see confided backup verify")
            async with target.alone():
                for one in found:
                    await asyncio.to_thread(snapshot.drop_space, target, one.manifest, space_id, self._state.identity)
                    log.info("a space was removed from snapshot %s, since a text of it was forgotten", one.id)
            await self._run_after(target.snapshot(made.id), made.id)
        return [one.id for one in found]

    async def keep_records(self, space_id: str) -> None:
        """Copy a space's records of forgotten texts to the backup folder. Raise ConfideError if
        that fails.
        """
        target = target_of(self._config, "")
        file = await asyncio.to_thread(snapshot.keep_records, target, self._state.folder, space_id)
        if file is not None:
            await self._run_after(file, f"{file.name}-{id_of(time.time())}")

    async def prove_unlocked(self, standing: BackupStatus) -> None:
        """Verify the spaces of the newest snapshot whose keys were missing when it was verified and
        are available now.
        """
        target = target_of(self._config, "")
        async with self._turn:
            if at_hand := self.at_hand(standing):
                await verify.prove(target, standing.newest, self._state, self._spaces, only=at_hand)

    def at_hand(self, standing: BackupStatus) -> list[str]:
        """Return the spaces whose keys were missing when the newest snapshot was verified and are
        available now.
        """
        return [
            space_id
            for space_id, names in standing.waiting.items()
            if any(self._spaces.key(space_id, name) is not None for name in names)
        ]

    async def run_program_for(self, path: Path) -> None:
        """Run the operator's program for a file of the backup folder that is in no snapshot, such
        as the list of revoked keys. Raise ConfideError if the program fails.
        """
        if self.has_target and path.parent == target_of(self._config, "").folder:
            await self._run_after(path, f"{path.name}-{id_of(time.time())}")

    @property
    def has_target(self) -> bool:
        """Return True if a backup folder is configured."""
        return bool(self._config.to)

    def is_due(self, standing: BackupStatus) -> bool:
        """Return True if the nightly snapshot is due."""
        minute = self._config.minute
        return minute is not None and backup_schedule.is_due(time.time(), minute, standing.newest_at)

    def standing(self) -> BackupStatus:
        """Read the state of the snapshots in the configured backup folder from disk.

        Raise TargetError if the folder does not exist or is not writable.
        """
        folder = self._state.folder
        spaces = [one for one in self._state.registry.spaces().values() if folder.space(one).exists()]
        target = target_of(self._config, "")
        history = self.history(target)
        target.require_writable()
        late = history.unproven(spaces, now=time.time(), max_age_s=self._config.max_age_s)
        proven_at = next((float(one.manifest.at) for one in reversed(history.whole) if one.is_proven), 0.0)
        newest = history.newest
        if newest is None:
            return BackupStatus(late=late)
        verdicts = {} if newest.proof is None else newest.proof.spaces
        unproven = sum(verdicts.get(space_id) != "proven" for space_id in newest.manifest.spaces)
        waiting = {one: _key_names(target, newest.manifest, one) for one in verdicts if verdicts[one] == "unproven"}
        return BackupStatus(newest.id, newest.manifest.at, proven_at, unproven, waiting, late)

    def history(self, target: BackupTarget) -> SnapshotHistory:
        """Return the snapshots in a backup folder. Raise TargetError if the folder belongs to
        another daemon or cannot be read.
        """
        return SnapshotHistory.read(target, self._state)

    async def _take(self, target: BackupTarget, follow: Follow) -> tuple[BackupManifest, list[str]]:
        made, behind = await snapshot.take(
            self._state, self._spaces, self._config_file, target, clock=time.time, follow=follow
        )
        for space_id in made.spaces:
            await asyncio.to_thread(snapshot.keep_records, target, self._state.folder, space_id)
        return made, behind

    async def _verify(self, target: BackupTarget, name: str, follow: Follow) -> dict[str, object]:
        if name and not is_id(name):
            raise BadNameError(f"'{name[:40]}' is no snapshot", hint="confided backup ls shows their names")
        if not name:
            newest = (await asyncio.to_thread(self.history, target)).newest
            if newest is None:
                raise SnapshotError("of this folder", "is not there", hint="take one: confided backup", kind="missing")
            name = newest.id
        if not target.snapshot(name).exists() and self._config.fetch:
            proof = await self._verify_fetched(target, name, follow)
        else:
            proof = await self._prove(target, name, follow, is_full=True)
        return {
            "snapshot": name,
            "verdict": proof.verdict,
            "files": proof.files,
            "registry": proof.registry,
            "spaces": dict(proof.spaces),
            "problems": list(proof.problems),
        }

    async def _prove(self, target: BackupTarget, name: str, follow: Follow, *, is_full: bool) -> Proof:
        proof = await verify.prove(target, name, self._state, self._spaces, is_full=is_full, follow=follow)
        for problem in proof.problems:
            log.error("snapshot %s: %s", name, problem)
        log.info("snapshot %s: %s", name, proof.verdict)
        return proof

    async def _verify_fetched(self, target: BackupTarget, name: str, follow: Follow) -> Proof:
        """Verify a snapshot that the operator's program fetches."""
        async with target.alone():
            folder = await asyncio.to_thread(target.begin_fetching, name)
            try:
                follow("fetching it", 0, 0)
                await self._run(self._config.fetch, target.snapshot(name), name, folder)
                found = next((one.parent for one in folder.rglob(MANIFEST) if one.parent.name == name), None)
                if found is None:
                    problem = "was not brought back by fetch of [backup] in daemon.toml"
                    raise SnapshotError(name, problem, hint="does it put it into {folder}?", kind="missing")
                return await verify.prove(BackupTarget(found.parent), name, self._state, self._spaces, follow=follow)
            finally:
                await asyncio.to_thread(shutil.rmtree, folder, True)

    async def _prune(self, target: BackupTarget) -> list[str]:
        config = self._config
        keep = backup_schedule.Keep(config.keep_daily, config.keep_weekly, config.keep_monthly)
        async with target.alone():
            await asyncio.to_thread(target.sweep)
            history = await asyncio.to_thread(self.history, target)
            going = backup_schedule.let_go([one.schedule_entry for one in history.whole], keep)
            for name in going:
                await asyncio.to_thread(target.remove, name)
                log.info("snapshot %s is let go", name)
        return going

    async def _run_after(self, path: Path, name: str) -> None:
        if self._config.after:
            await self._run(self._config.after, path, name, path.parent)

    async def _run(self, argv: Sequence[str], path: Path, name: str, folder: Path) -> None:
        places = {"snapshot": str(path), "name": name, "folder": str(folder)}
        await backup_schedule.run(argv, places, timeout_s=float(self._config.hook_timeout_s), folder=folder)


def _key_names(target: BackupTarget, made: BackupManifest, space_id: str) -> tuple[KeyName, ...]:
    with suppress(ConfideError):
        return made.custody_in(target.snapshot(made.id), space_id).names
    return ()


def target_of(config: BackupConfig, to: str) -> BackupTarget:
    """Return the backup folder that `to` names, or the configured one if `to` is empty. Raise
    ConfideError if there is neither.
    """
    if not (to or config.to):
        hint = 'name it with --to DIR, or set to = "DIR" under [backup] in daemon.toml'
        raise ConfideError("no folder for backups is configured", hint=hint)
    return BackupTarget(Path(to or config.to).expanduser().absolute())
