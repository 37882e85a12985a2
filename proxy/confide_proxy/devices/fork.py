"""Two lists of devices that have parted: what this machine knows and what the daemon shows differ from some entry on (PROTOCOL.md 10.6).

It happens where a daemon was put back and a machine that had not seen the lost changes made others. A removed device and a lying daemon can
make it happen as well, so nothing goes on by itself: a person says which list is that of the devices in his hands, and whoever was removed
in what this machine knows is removed there too, with whom they brought in, before anything is sealed (docs/decisions/0023).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from confide_crypto.errors import ForkedRosterError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster, descendants
from confide_crypto.sealing.roster_entry import Device, RosterEntry
from confide_crypto.sealing.space_keys import WrapKey


@dataclass(frozen=True, slots=True)
class Fork:
    """Two rosters of one space and one beginning, neither of which goes on from the other.

    Attributes:
        known: as this machine has seen it.
        shown: as the daemon has it.
        shared: how many entries both have.
    """

    known: Roster
    shown: Roster
    shared: int

    @classmethod
    def between(cls, known: Roster, shown: Roster) -> Self | None:
        """How they have parted; None: one is the beginning of the other.

        Raises ForkedRosterError: they have not even the first entry in common, so they are lists of two spaces.
        """
        pairs = zip(known.hashes, shown.hashes, strict=False)
        shared = next((number for number, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
        if known.space != shown.space or shared == 0:
            raise ForkedRosterError("the list of devices that the daemon shows has another beginning")
        return None if shared is None else cls(known, shown, shared)

    @property
    def lost(self) -> tuple[RosterEntry, ...]:
        """The entries that this machine alone knows."""
        return self.known.entries[self.shared :]

    @property
    def others(self) -> tuple[RosterEntry, ...]:
        """The entries that the daemon alone has."""
        return self.shown.entries[self.shared :]

    @property
    def returning(self) -> list[Device]:
        """Devices of the daemon's list that this machine's has removed, and whom these have brought in since the two parted."""
        trusted = self.known.devices
        brought = {
            each.device.key: each.signer for each in self.others if each.device and each.device.key not in trusted
        }
        gone = set(self.known.removed)
        back = gone | descendants(gone, brought)
        return [device for device in self.shown.devices.values() if device.key in back]

    @property
    def missing(self) -> list[Device]:
        """Devices of this machine's list that the daemon's never had: they can be added again."""
        used = {each.device.card.wrap_key for each in self.shown.entries if each.device}
        shown = {*self.shown.devices, *self.shown.removed}
        return [
            each for each in self.known.devices.values() if each.key not in shown and each.card.wrap_key not in used
        ]

    @property
    def ended(self) -> list[Device]:
        """Devices of this machine's list that the daemon's has removed: a key that was removed does not come back."""
        return [each for each in self.known.devices.values() if each.key in self.shown.removed]

    def mended(self, by: Identity, again: Collection[bytes], *, now: int) -> Roster:
        """The daemon's list without those who would come back, and then with those of the `missing` whose keys are `again`.

        Raises RosterError, WrapError: `by`, this machine, is not on it while there is something to change, or there is no room.
        """
        roster = self.shown
        returning = self.returning
        added = [each for each in self.missing if each.key in again]
        if not returning and not added:
            return roster
        keys = roster.open(WrapKey(by))
        for device in returning:
            roster, keys = roster.remove(by, device.key, keys, now=now)
        for device in added:
            roster = roster.add(by, device, keys, now=now)
        return roster
