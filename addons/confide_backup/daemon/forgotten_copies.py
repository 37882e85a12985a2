"""Snapshots and forgotten texts: which snapshots are older than a removal, how a space leaves them,
and the records beside them by which a restored space forgets again.

The records match nothing without the key in the encrypted databases, so they may lie beside them.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Final

from confide_backup.daemon.manifest import MANIFEST, VERIFIED, BackupManifest, files_of, hash_of
from confide_backup.daemon.target import BackupTarget, Snapshot, SnapshotHistory, write
from confide_crypto import atomic
from confide_crypto.keys.identity import Identity
from confide_daemon.addons import HeldCopy
from confide_daemon.datadir.paths import DataFolder

RECORDS: Final = "forgotten"
"""The folder of the records, in the target."""


def held_in(history: SnapshotHistory, space_id: str, before: float) -> list[HeldCopy]:
    """Return the snapshots that have a space as it was before a time (seconds since 1970)."""
    found = [HeldCopy("snapshot", one.id, "kept") for one in older(history, space_id, before)]
    return found + [HeldCopy("snapshot", name, "not known") for name in history.strange]


def older(history: SnapshotHistory, space_id: str, before: float) -> list[Snapshot]:
    """Return the snapshots with a space that were begun before a time."""
    return [one for one in history.whole if space_id in one.made.spaces and one.made.at <= before]


def drop(target: BackupTarget, made: BackupManifest, space_id: str, identity: Identity) -> None:
    """Remove a space from a snapshot, and sign its manifest again. Requires the target's lock.

    Raise TargetError; what was interrupted is done by a second call.
    """
    folder, gone = target.snapshot(made.id), files_of(space_id)
    left = replace(
        made,
        daemon=identity.public_key,
        files={name: file for name, file in made.files.items() if name not in gone},
        spaces={one: held for one, held in made.spaces.items() if one != space_id},
    )
    proof = Snapshot.read(target, made.id, [made.daemon]).proof
    with target.errors("be written"):
        for name in gone:
            with contextlib.suppress(FileNotFoundError):
                (folder / name).unlink()
        atomic.sync(folder / "spaces")
        data = left.to_bytes(identity)
        write(folder / MANIFEST, data)
        if proof is None:
            return
        spaces = {one: verdict for one, verdict in proof.spaces.items() if one != space_id}
        said = replace(proof, manifest=hash_of(data), spaces=spaces)
        write(folder / VERIFIED, said.to_bytes(identity))


def keep_records(target: BackupTarget, folder: DataFolder, space_id: str) -> Path | None:
    """Copy a space's records beside the snapshots; return the file if it changed. Raise
    TargetError.
    """
    source = folder.forgotten(space_id)
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
    """Give a restored space the records beside its snapshot; return True if there are any. Raise
    OSError.
    """
    goal = folder.forgotten(space_id)
    file = snapshot.parent / RECORDS / goal.name
    if not file.exists():
        return False
    write(goal, file.read_bytes())
    return True
