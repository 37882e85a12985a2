"""The snapshots of a target, as `confided backup ls` shows them."""

from __future__ import annotations

from typing import Any

from confide_daemon.access.registry import State
from confide_daemon.backup.snapshot import read_manifest, signers_of
from confide_daemon.backup.target import Target
from confide_daemon.errors import SnapshotError


def listed(target: Target, state: State) -> list[dict[str, Any]]:
    """One row each, by name. Raises TargetError: the folder is not this daemon's target, or cannot be read."""
    signers = signers_of(state)
    target.check(state.identity.public_key, former=signers[-1])
    found: list[dict[str, Any]] = []
    for name in target.ids():
        try:
            made = read_manifest(target, name, signers)
        except SnapshotError as error:
            found.append({"snapshot": name, "at": None, "spaces": None, "sizeBytes": None, "said": error.problem})
            continue
        size = sum(file.size for file in made.files.values())
        said = f"{len(made.spaces)} spaces, {size / 1e6:.1f} MB"
        found.append({"snapshot": name, "at": made.at, "spaces": len(made.spaces), "sizeBytes": size, "said": said})
    return found
