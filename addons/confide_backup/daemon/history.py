"""The snapshots of a target with what is known of each, and whether they are as new and as proven as they should be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from confide_backup.daemon.manifest import Manifest
from confide_backup.daemon.nightly.retention import Kept
from confide_backup.daemon.proving.proof import Proof
from confide_backup.daemon.proving.verify import contents, read_proof
from confide_backup.daemon.taking.snapshot import read_manifest, signers_of
from confide_backup.daemon.target import MARKER, Target
from confide_daemon.access.registry import State
from confide_daemon.errors import SnapshotError

_AHEAD_S = 86_400.0
"""A snapshot from later than this is of a clock that was put right since, and is not taken for new."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One whose manifest is this daemon's."""

    made: Manifest
    proof: Proof | None  # None: nobody has verified it

    @property
    def id(self) -> str:
        return self.made.id

    @property
    def size_bytes(self) -> int:
        """Of all its files, hard links too."""
        return sum(file.size for file in self.made.files.values())

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
    def kept(self) -> Kept:
        is_sound = self.proof is not None and self.proof.is_sound
        proven = frozenset() if self.proof is None else self.proof.proven
        return Kept(self.id, self.made.number, self.made.at, is_sound, proven, contents(self.made))


@dataclass(frozen=True, slots=True)
class History:
    """What there is, the oldest first."""

    whole: list[Snapshot]
    strange: dict[str, SnapshotError]  # by name: those that are damaged, newer or another's
    since: float  # when the target was made ready, seconds since 1970

    @classmethod
    def read(cls, target: Target, state: State) -> Self:
        """Raises TargetError: it is not this daemon's target, or cannot be read."""
        signers = signers_of(state)
        target.check(signers)
        whole: list[Snapshot] = []
        strange: dict[str, SnapshotError] = {}
        for name in target.ids():
            try:
                made = read_manifest(target, name, signers)
                whole.append(Snapshot(made, read_proof(target, made, signers)))
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
        proven = {space_id for one in young if one.proof is not None for space_id in one.proof.proven}
        # What no older snapshot has is new.
        known = {space_id for one in self.whole if one not in young for space_id in one.made.spaces}
        late = known if young else {*spaces}
        return sorted((late & {*spaces}) - proven)
