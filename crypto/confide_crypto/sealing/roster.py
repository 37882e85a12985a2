"""The roster: the list of devices that may open a space's secrets, as a chain of entries that they
sign (PROTOCOL.md 10.6).

A daemon stores it and cannot add to it: each entry is signed by a device that was on the roster at
that moment. A daemon can withhold new entries; a device that has pinned a state detects an older or
a different roster.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from confide_crypto import errors
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity import KEY_LENGTH, Identity, fingerprint_words
from confide_crypto.sealing.encoding import Cursor, u32
from confide_crypto.sealing.roster_entry import (
    HASH_LENGTH,
    MAX_DEVICES,
    MAX_EPOCHS,
    NO_HEAD,
    Card,
    Device,
    RosterChange,
    RosterEntry,
    Wrap,
)
from confide_crypto.sealing.space_keys import (
    FIRST_EPOCH,
    SPACE_ID_LENGTH,
    WRAP_LENGTH,
    SpaceKeys,
    WrapKey,
    check_wrap_key,
    seal_wrap,
)

MAX_ENTRIES: Final = 256
MAX_ROSTER_BYTES: Final = 8 * 1024 * 1024
_REMOVAL_BYTES: Final = 224
"""Bytes of a removal entry without its wraps. Each wrap is preceded by an epoch number and a device
key.
"""
_WRAP_BYTES: Final = 4 + KEY_LENGTH + WRAP_LENGTH
_PIN_PREFIX: Final = "confide-roster-"
_AGAIN: Final = "fetch the list of devices again"
_LIES: Final = "the daemon, or what it was restored from, does not show what it showed before; compare the devices of another device"


@dataclass(frozen=True, slots=True)
class Pin:
    """The roster state that a device remembers. The device trusts only a roster that contains this
    state.
    """

    space: bytes  # the space's id, 16 bytes
    number: int  # number of the newest entry seen
    head: bytes  # its hash, 32 bytes

    def to_line(self) -> str:
        """Return the pin as one line of text, to be stored in a file."""
        return bech32m.encode(_PIN_PREFIX, self.space + u32(self.number) + self.head)

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parse a pin from its line of text. Raises ValueError if it is malformed."""
        prefix, data = bech32m.decode(line.strip())
        if prefix != _PIN_PREFIX:
            raise ValueError("this is no pin of a roster")
        cursor = Cursor(data)
        pin = cls(cursor.take(SPACE_ID_LENGTH), cursor.number(4), cursor.take(HASH_LENGTH))
        cursor.end()
        return pin


@dataclass(frozen=True, slots=True)
class Roster:
    """A verified chain of roster entries, with the devices and epochs that result from it.

    It is immutable: every change returns a new roster.
    """

    space: bytes  # the space's id, 16 bytes
    entries: tuple[RosterEntry, ...] = ()  # from the first to the newest
    hashes: tuple[bytes, ...] = ()  # hashes of the entries
    # current devices by their Ed25519 keys, in the order in which they were added
    devices: Mapping[bytes, Device] = field(default_factory=dict)
    # removed devices by their Ed25519 keys, with the last epoch whose key they have: they could
    # read what was sealed up to then
    removed: Mapping[bytes, int] = field(default_factory=dict)
    commitments: tuple[bytes, ...] = ()  # commitments to the epochs' keys, from the first epoch
    size_bytes: int = 0  # bytes of all entries
    _wrap_keys: frozenset[bytes] = frozenset()

    @classmethod
    def read(cls, entries: Iterable[bytes], *, pin: Pin | None = None) -> Self:
        """Verify a whole chain of entries and return its roster.

        Args:
            entries: the stored entries, from the first.
            pin: the state that this device has seen before. Without a pin, a pairing, or users who
                compare `words`, must establish whose roster it is.

        Raises a subclass of RosterError if the chain is not valid, or does not contain the pin.
        """
        parsed = (RosterEntry.parse(data) for data in entries)
        first = next(iter(parsed), None)
        if first is None:
            raise errors.MissingEntryError("there is no list of devices", hint=_AGAIN)
        roster = cls(first.space)._after(first)
        for entry in parsed:
            roster = roster._after(entry)
        if pin is not None:
            roster.check(pin)
        return roster

    def extend(self, entries: Iterable[bytes]) -> Self:
        """Return this roster with `entries` appended, or the same roster if there are no entries.

        Raises a subclass of RosterError if any entry is not valid; then this roster is unchanged.
        """
        roster = self
        for data in entries:
            roster = roster._after(RosterEntry.parse(data))
        return roster

    def check(self, pin: Pin) -> None:
        """Check that this roster is the pinned state or a later one.

        Raises ForeignEntryError if it belongs to another space, WithheldRosterError if it is older
        than the pinned state, ForkedRosterError if its history differs.
        """
        if pin.space != self.space:
            raise errors.ForeignEntryError("this is the list of devices of another space", hint=_LIES)
        if pin.number >= len(self.entries):
            raise errors.WithheldRosterError("the newest changes to the list of devices are missing", hint=_LIES)
        if not hmac.compare_digest(self.hashes[pin.number], pin.head):
            raise errors.ForkedRosterError("the list of devices is not the one that this device knows", hint=_LIES)

    def contains(self, pin: Pin) -> bool:
        """Return True if the pinned state is the current or an earlier state of this roster."""
        is_there = pin.space == self.space and pin.number < len(self.entries)
        return is_there and hmac.compare_digest(self.hashes[pin.number], pin.head)

    @property
    def head(self) -> bytes:
        """The hash of the newest entry, 32 bytes."""
        return self.hashes[-1] if self.hashes else NO_HEAD

    @property
    def pin(self) -> Pin:
        """The pin that makes a device remember the current state."""
        return Pin(self.space, len(self.entries) - 1, self.head)

    @property
    def epoch(self) -> int:
        """The current epoch; 0 before the first entry."""
        return len(self.commitments)

    @property
    def words(self) -> str:
        """Six words that identify the space on all its devices, from the hash of its first entry
        (PROTOCOL.md 10.7).
        """
        return fingerprint_words(self.hashes[0])

    @property
    def head_words(self) -> str:
        """Six words that identify this state: two devices with the same words have the same device
        list and history (PROTOCOL.md 10.7).
        """
        return fingerprint_words(self.head)

    @property
    def added_by(self) -> dict[bytes, bytes]:
        """A map from each current or removed device to the device that added it, both as Ed25519
        keys. The first device is mapped to itself.
        """
        return {entry.device.key: entry.signer for entry in self.entries if entry.device is not None}

    def earlier_keys(self, device: bytes) -> list[bytes]:
        """List the keys that a device had before this one, the latest first.

        A device changes its key by adding the new key with the old one, under the same name, and
        then removing the old one with the new one. With another name it is another device, which
        has removed the one that added it, such as a lost one: it does not inherit what that one was
        trusted with.
        """
        named = {entry.device.key: entry.device for entry in self.entries if entry.device is not None}
        found = []
        for before in self._replaced(device):
            if named[before].name != named[device].name or named[before].is_paper or named[device].is_paper:
                break
            found.append(before)
        return found

    def _replaced(self, device: bytes) -> list[bytes]:
        """List the devices that a device replaced, under any names: the one that added it and that
        it then removed, the one that this one had replaced, and so on.
        """
        added_by, removals = self.added_by, {(entry.signer, entry.removed) for entry in self.entries if entry.removed}
        found: list[bytes] = []
        while (before := added_by.get(device)) is not None and (device, before) in removals:
            found.append(before)
            device = before
        return found

    def current(self, device: bytes) -> Device | None:
        """Return the device on the roster that has this key or had it before; None if it was
        removed.
        """
        return next((one for one in self.devices.values() if device in (one.key, *self.earlier_keys(one.key))), None)

    def adder(self, device: bytes) -> Device | None:
        """Return the device that added this current or removed device, with the first key that it
        had; None for the founder of the space.
        """
        first = [device, *self.earlier_keys(device)][-1]
        signer = self.added_by.get(first, first)
        known = {entry.device.key: entry.device for entry in self.entries if entry.device is not None}
        return None if signer == first else known[signer]

    def above(self, device: bytes) -> list[bytes]:
        """List this device (current or removed), the device that added it, the device that added
        that one, and so on up to the founder of the space.

        Each is given by its first key, since a device that changed its key is still the same. So may
        be one that has removed the device that added it, whatever its name: the holder of a device
        can add another and remove the first.
        """
        added_by = self.added_by
        found: list[bytes] = []
        while True:
            first = [device, *self._replaced(device)][-1]
            if first in found:
                return found
            found.append(first)
            device = added_by.get(first, first)

    def brought_in_by(self, device: bytes) -> list[Device]:
        """List the current devices that a device has added, the devices that those have added, and
        so on. Devices added under an earlier key of the device are included.
        """
        brought = descendants([device, *self.earlier_keys(device)], self.added_by)
        return [each for each in self.devices.values() if each.key in brought and each.key != device]

    @property
    def leaves_room(self) -> bool:
        """True if the limits of the roster still allow all devices but one to be removed. Each
        removal needs an entry, an epoch and bytes (PROTOCOL.md 10.6).
        """
        others = len(self.devices) - 1
        size_bytes = self.size_bytes + sum(_REMOVAL_BYTES + _WRAP_BYTES * left for left in range(1, others + 1))
        has_epochs = self.epoch + others <= MAX_EPOCHS
        return has_epochs and len(self.entries) + others <= MAX_ENTRIES and size_bytes <= MAX_ROSTER_BYTES

    @classmethod
    def create(cls, by: Identity, name: str, *, now: int, keys: SpaceKeys | None = None) -> tuple[Self, SpaceKeys]:
        """Create a space with this device as its only one; return its roster and keys.

        `now` is in seconds since 1970; `keys` is for tests only.
        """
        keys = keys or SpaceKeys.generate()
        device = Device(Card.of(by), name)
        return cls(keys.space)._append(RosterChange.GENESIS, by, now, keys, device=device), keys

    def add(self, by: Identity, device: Device, keys: SpaceKeys, *, now: int) -> Self:
        """Return this roster with `device` added. The device gets the keys of all epochs.

        Args:
            by: the identity that signs the change; it must be on this roster.
            device: the device to add. Its card must be authenticated by a pair secret, or by users
                who compared its words.
            keys: the keys that `open` returns.
            now: seconds since 1970.

        Raises RosterError if the device cannot be added, or `by` may not add it.
        """
        self._check_keys(keys)
        return self._append(RosterChange.ADD, by, now, keys, device=device)

    def remove(self, by: Identity, device: bytes, keys: SpaceKeys, *, now: int) -> tuple[Self, SpaceKeys]:
        """Return this roster without the device of that Ed25519 key, and the keys of the space with
        a new epoch's key, which the removed device does not get.

        The arguments are as for `add`. Raises RosterError if the device cannot be removed, or `by`
        may not do it.
        """
        self._check_keys(keys)
        keys = keys.next_epoch()
        return self._append(RosterChange.REMOVE, by, now, keys, removed=device), keys

    def rotate(self, by: Identity, keys: SpaceKeys, *, now: int) -> tuple[Self, SpaceKeys]:
        """Return this roster with a new epoch for the same devices, and the keys with the new
        epoch's key.

        The arguments are as for `add`. Raises RosterError if `by` may not do it, or there are too
        many epochs.
        """
        self._check_keys(keys)
        keys = keys.next_epoch()
        return self._append(RosterChange.ROTATE, by, now, keys), keys

    def open(self, wrap_key: WrapKey) -> SpaceKeys:
        """Decrypt the keys of all epochs with a device's wrap key.

        Raises WrapError if the device is not on the roster, or a decrypted key is not the one that
        its entry commits to.
        """
        if wrap_key.device not in self.devices:
            hint = "approve it on a device that is, or use the recovery code"
            raise errors.WrapError("this device is not among the devices of the space", hint=hint)
        found = {
            wrap.epoch: wrap_key.open(wrap.sealed, space=self.space, epoch=wrap.epoch, head=entry.previous)
            for entry in self.entries
            for wrap in entry.wraps
            if wrap.device == wrap_key.device
        }
        keys = SpaceKeys(self.space, tuple(found[epoch] for epoch in range(FIRST_EPOCH, self.epoch + 1)))
        self._check_keys(keys)
        return keys

    def _check_keys(self, keys: SpaceKeys) -> None:
        shown = b"".join(keys.commitment(epoch) for epoch in range(FIRST_EPOCH, keys.epoch + 1))
        if keys.space != self.space or not hmac.compare_digest(shown, b"".join(self.commitments)):
            raise errors.WrapError("the keys are not those that the list of devices commits to")

    def _append(
        self,
        change: RosterChange,
        by: Identity,
        now: int,
        keys: SpaceKeys,
        *,
        device: Device | None = None,
        removed: bytes = b"",
    ) -> Self:
        """Return this roster with a new entry, checked like an entry that was received."""
        bare = RosterEntry(
            change, self.space, len(self.entries), self.head, now, by.public_key, device, removed, b"", ()
        )
        after = self._devices_after(bare)
        commitment = b"" if change is RosterChange.ADD else keys.commitment(keys.epoch)
        wraps = tuple(
            Wrap(
                epoch,
                key,
                seal_wrap(
                    keys.key(epoch), after[key].card.wrap_key, space=self.space, epoch=epoch, device=key, head=self.head
                ),
            )
            for epoch, key in self._wraps_after(bare, after)
        )
        made = self._after(replace(bare, commitment=commitment, wraps=wraps).sign(by))
        if change is not RosterChange.REMOVE and not made.leaves_room:
            raise _oversize_error()
        return made

    def _after(self, entry: RosterEntry) -> Self:
        """Return this roster with `entry` appended if every rule of PROTOCOL.md 10.6, in its order,
        allows it.
        """
        self._check_place(entry)
        self._check_signer(entry)
        devices = self._devices_after(entry)
        wraps = self._wraps_after(entry, devices)
        if {wrap.epoch for wrap in entry.wraps} != {epoch for epoch, _ in wraps}:
            raise errors.WrongEpochError("a change to the list of devices brings keys of other epochs than it must")
        if [(wrap.epoch, wrap.device) for wrap in entry.wraps] != wraps:
            raise errors.WrongWrapsError("a change to the list of devices brings keys for other devices than it must")
        commitments = (*self.commitments, entry.commitment) if entry.commitment else self.commitments
        size_bytes = self.size_bytes + len(entry.encode())
        if len(devices) > MAX_DEVICES or len(commitments) > MAX_EPOCHS or size_bytes > MAX_ROSTER_BYTES:
            raise _oversize_error()
        return replace(
            self,
            entries=(*self.entries, entry),
            hashes=(*self.hashes, entry.hash()),
            devices=devices,
            removed={**self.removed, entry.removed: self.epoch} if entry.removed else self.removed,
            commitments=commitments,
            size_bytes=size_bytes,
            _wrap_keys=self._wrap_keys | {entry.device.card.wrap_key} if entry.device else self._wrap_keys,
        )

    def _check_place(self, entry: RosterEntry) -> None:
        if entry.space != self.space:
            raise errors.ForeignEntryError("a change to the list of devices is of another space", hint=_LIES)
        place = len(self.entries)
        if place >= MAX_ENTRIES:
            raise _oversize_error()
        if entry.number > place:
            raise errors.MissingEntryError("a change to the list of devices is missing", hint=_AGAIN)
        if entry.number < place and self.hashes[entry.number] == entry.hash():
            raise errors.ReplayedEntryError("a change to the list of devices came a second time", hint=_AGAIN)
        if entry.number < place or entry.previous != self.head:
            raise errors.ForkedRosterError("a change does not follow the list of devices that is known", hint=_LIES)

    def _check_signer(self, entry: RosterEntry) -> None:
        if entry.signer in self.removed:
            raise errors.RemovedSignerError("a change to the list of devices is signed by a device that was removed")
        is_founder = not self.entries and entry.device is not None and entry.signer == entry.device.key
        if entry.signer not in self.devices and not is_founder:
            raise errors.UnknownSignerError("a change to the list of devices is signed by none of them")
        if not entry.verify():
            raise errors.BadSignatureError("a change to the list of devices is not signed by the device that it names")

    def _devices_after(self, entry: RosterEntry) -> dict[bytes, Device]:
        """Return the devices on the roster after this entry."""
        devices = dict(self.devices)
        if entry.change is RosterChange.REMOVE:
            if entry.removed == entry.signer:
                hint = "remove it on another device: it would make the key that it must not have"
                raise errors.WrongDeviceError("a device cannot remove itself", hint=hint)
            if devices.pop(entry.removed, None) is None:
                raise errors.WrongDeviceError("the device to remove is not among those of the space")
        if entry.device is not None:
            card = entry.device.card
            if card.key in devices or card.key in self.removed or card.wrap_key in self._wrap_keys:
                hint = "a key that was removed does not come back: join with a new one"
                raise errors.WrongDeviceError("the device to add is, or was, among those of the space", hint=hint)
            if not card.verify():
                raise errors.BadSignatureError("the device to add has not signed its own wrap key")
            try:
                check_wrap_key(card.wrap_key)
            except errors.WrapError:
                raise errors.WrongDeviceError("the device to add has a wrap key that cannot be used") from None
            devices[card.key] = entry.device
        return devices

    def _wraps_after(self, entry: RosterEntry, devices: dict[bytes, Device]) -> list[tuple[int, bytes]]:
        """List epoch and device of the wraps that the entry must carry, in order: all epochs for a
        device that is added, else the new epoch for all devices.
        """
        if entry.change is RosterChange.ADD and entry.device is not None:
            return [(epoch, entry.device.key) for epoch in range(FIRST_EPOCH, self.epoch + 1)]
        return [(self.epoch + 1, key) for key in sorted(devices)]


def descendants(roots: Iterable[bytes], parents: Mapping[bytes, bytes]) -> set[bytes]:
    """Return all direct and indirect descendants of `roots`, without the roots; `parents` maps each
    key to its parent.
    """
    below: dict[bytes, list[bytes]] = {}
    for child, parent in parents.items():
        below.setdefault(parent, []).append(child)
    found, waiting = set(roots), list(roots)
    roots = frozenset(found)
    while waiting:
        new = [child for child in below.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting += new
    return found - roots


def _oversize_error() -> errors.OversizedRosterError:
    return errors.OversizedRosterError(
        f"a space has at most {MAX_DEVICES} devices at a time, {MAX_EPOCHS} epochs and {MAX_ENTRIES} changes to them",
        hint="remove devices that are no longer used, or begin a new space",
    )
