"""Forks: this device's roster and the daemon's have the same beginning but differ from some entry
on (PROTOCOL.md 10.6).

A fork arises if a daemon was restored from a backup, and then a device that had not seen the lost
changes made other ones. A removed device or a malicious daemon can cause one too, so nothing is
resolved automatically: the user confirms which roster is the right one. If it is the daemon's, the
devices that this device's roster has removed are then removed there too, with the devices that they
added, before anything is sealed (docs/decisions/0023).
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
    """Two rosters of one space with a common beginning, neither of which continues the other.

    Attributes:
        known: the roster that this device has seen.
        shown: the daemon's roster.
        shared: the number of entries that both have in common.
    """

    known: Roster
    shown: Roster
    shared: int

    @classmethod
    def between(cls, known: Roster, shown: Roster) -> Self | None:
        """Return the fork of two rosters, or None if one continues the other.

        Raises ForkedRosterError if even the first entries differ, so they belong to two spaces.
        """
        pairs = zip(known.hashes, shown.hashes, strict=False)
        shared = next((number for number, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
        if known.space != shown.space or shared == 0:
            raise ForkedRosterError("the list of devices that the daemon shows has another beginning")
        return None if shared is None else cls(known, shown, shared)

    @property
    def own_entries(self) -> tuple[RosterEntry, ...]:
        """Return the entries after the common ones in this device's roster."""
        return self.known.entries[self.shared :]

    @property
    def others(self) -> tuple[RosterEntry, ...]:
        """Return the entries after the common ones in the daemon's roster."""
        return self.shown.entries[self.shared :]

    @property
    def returning(self) -> list[Device]:
        """Return the devices on the daemon's roster that this device's roster has removed, and the
        devices that they have added since the fork.
        """
        trusted = self.known.devices
        brought = {
            each.device.key: each.signer for each in self.others if each.device and each.device.key not in trusted
        }
        gone = set(self.known.removed)
        back = gone | descendants(gone, brought)
        return [device for device in self.shown.devices.values() if device.key in back]

    @property
    def missing(self) -> list[Device]:
        """Return the devices on this device's roster that were never on the daemon's. They can be
        added again.
        """
        used = {each.device.card.wrap_key for each in self.shown.entries if each.device}
        shown = {*self.shown.devices, *self.shown.removed}
        return [
            each for each in self.known.devices.values() if each.key not in shown and each.card.wrap_key not in used
        ]

    @property
    def removed_devices(self) -> list[Device]:
        """Return the devices on this device's roster that the daemon's roster has removed. A
        removed key cannot be added again.
        """
        return [each for each in self.known.devices.values() if each.key in self.shown.removed]

    def repair(self, by: Identity, again: Collection[bytes], *, now: int) -> Roster:
        """Return the daemon's roster after two changes: the `returning` devices are removed, and
        those `missing` devices are added whose keys are in `again`.

        Raises RosterError or WrapError if there is something to change and this device, `by`, isn't
        on the roster, or if the roster is full.
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
