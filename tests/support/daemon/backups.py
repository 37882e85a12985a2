"""Backups of a daemon in this process: a target, snapshots in it, and what a copy of a database holds."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Machine, Serving

from confide_backup.daemon import sealed_keys
from confide_backup.daemon.backup_service import BackupRequest, Backups
from confide_backup.daemon.manifest import BackupManifest, database_of
from confide_backup.daemon.target import BackupTarget, Snapshot, signers_of
from confide_backup.settings import BackupConfig
from confide_daemon.store.space_store import Store


class Backed:
    """A daemon with a target beside it."""

    def __init__(self, daemon: Serving, folder: Path, **options: Any) -> None:
        self.daemon = daemon
        self.target = BackupTarget(folder)
        self.target.prepare(signers_of(daemon.state), data=daemon.state.folder.root)
        if not daemon.state.folder.backup_key.exists():
            self.code = sealed_keys.make(daemon.state.folder)
        self.configure(**options)

    def configure(self, **options: Any) -> None:
        """As daemon.toml would say it."""
        config = BackupConfig(to=str(self.target.folder), **options)
        self.backups = Backups(self.daemon.state, self.daemon.daemon.spaces, config, None)

    async def take(self) -> BackupManifest:
        """A snapshot now."""
        done = await self.backups.do(BackupRequest("take"), lambda *_: None)
        return Snapshot.read(self.target, done["snapshot"], signers_of(self.daemon.state)).manifest

    async def verify(self, name: str = "") -> dict[str, Any]:
        """What a verification of a snapshot, the newest where none is named, finds."""
        return await self.backups.do(BackupRequest("verify", name=name), lambda *_: None)

    async def prune(self) -> list[str]:
        """The names of those that were let go."""
        return list((await self.backups.do(BackupRequest("prune"), lambda *_: None))["removed"])

    def space(self, name: str = "laptop") -> str:
        """The id of a space."""
        return self.daemon.state.registry.spaces()[name]

    def folder(self, made: BackupManifest) -> Path:
        return self.target.snapshot(made.id)

    def key(self, space_id: str) -> bytes:
        """Of a database that the server keeps, before it was ever changed."""
        return self.daemon.state.master.space_key(space_id)

    def changes(self, made: BackupManifest, space_id: str, scratch: Path) -> int:
        """The newest change in a copy, opened elsewhere."""
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        for suffix in ("", "-wal"):
            copy = self.folder(made) / (database_of(space_id) + suffix)
            if copy.exists():
                shutil.copyfile(copy, scratch / f"copy.db{suffix}")
        with closing(Store.open(scratch / "copy.db", self.key(space_id), writer=False, now=0.0)) as store:
            assert not list(store.integrity.glance())
            return int(store.one("SELECT max(change) FROM revision") or 0)


async def fill(machine: Machine, count: int, *, first: int = 0) -> None:
    """Notes with headings, each its own."""
    for number in range(first, first + count):
        await machine.put(
            f"memory/note-{number}.md",
            f"# Heron pond {number}\n\nHerons fish at pond {number} at dawn.\n\n## Nesting tree {number}\n\nOaks.\n",
        )
