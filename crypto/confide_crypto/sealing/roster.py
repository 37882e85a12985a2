"""The roster: which devices may open a space's secrets, as a chain of entries that they sign (PROTOCOL.md 10.6).

Whoever keeps it, a daemon, can add nothing to it: every entry is signed by a device that was on it at that moment. What a daemon
can do is to keep news back; a device that has pinned what it saw notices when it is shown less, or something else.
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
"""A removal without its wraps, each of which has the number of the epoch and the device's key before it."""
_WRAP_BYTES: Final = 4 + KEY_LENGTH + WRAP_LENGTH
_PIN_PREFIX: Final = "confide-roster-"
_AGAIN: Final = "fetch the list of devices again"
_LIES: Final = "the daemon, or what it was restored from, does not show what it showed before; compare the devices of another machine"


@dataclass(frozen=True, slots=True)
class Pin:
    """What a device remembers of a roster: nothing that does not contain it is believed."""

    space: bytes  # the space's id, 16 bytes
    number: int  # of the newest entry seen
    head: bytes  # its hash, 32 bytes

    def to_line(self) -> str:
        """As text, for a file."""
        return bech32m.encode(_PIN_PREFIX, self.space + u32(self.number) + self.head)

    @classmethod
    def parse(cls, line: str) -> Self:
        """The pin in such a text. Raises ValueError: it is none."""
        prefix, data = bech32m.decode(line.strip())
        if prefix != _PIN_PREFIX:
            raise ValueError("this is no pin of a roster")
        cursor = Cursor(data)
        pin = cls(cursor.take(SPACE_ID_LENGTH), cursor.number(4), cursor.take(HASH_LENGTH))
        cursor.end()
        return pin


@dataclass(frozen=True, slots=True)
class Roster:
    """A chain that has been verified, and what it comes to. Never changed: an extension is a new one."""

    space: bytes  # the space's id, 16 bytes
    entries: tuple[RosterEntry, ...] = ()  # from the first to the newest
    hashes: tuple[bytes, ...] = ()  # theirs
    # those that are on it now, by their Ed25519 keys, in the order in which they came
    devices: Mapping[bytes, Device] = field(default_factory=dict)
    # the last epoch whose key each removed device has, by Ed25519 keys: it could read what was sealed up to then
    removed: Mapping[bytes, int] = field(default_factory=dict)
    commitments: tuple[bytes, ...] = ()  # to the keys of the epochs, from the first
    size_bytes: int = 0  # of all entries
    _wrap_keys: frozenset[bytes] = frozenset()

    @classmethod
    def read(cls, entries: Iterable[bytes], *, pin: Pin | None = None) -> Self:
        """The roster of a whole chain.

        Args:
            entries: from the first one on, as they were stored.
            pin: what this machine has seen before. Without one, a pairing, or people who compare `words`, say whose roster it is.

        Raises RosterError: one of its kinds: the chain is not good, or not that of the pin.
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
        """This roster with `entries` behind its newest one; itself if there are none.

        Raises RosterError: one of its kinds; nothing of them is believed then.
        """
        roster = self
        for data in entries:
            roster = roster._after(RosterEntry.parse(data))
        return roster

    def check(self, pin: Pin) -> None:
        """Check that this is the roster that was pinned, or a later state of it.

        Raises ForeignEntryError, WithheldRosterError, ForkedRosterError: it is not.
        """
        if pin.space != self.space:
            raise errors.ForeignEntryError("this is the list of devices of another space", hint=_LIES)
        if pin.number >= len(self.entries):
            raise errors.WithheldRosterError("the newest changes to the list of devices are missing", hint=_LIES)
        if not hmac.compare_digest(self.hashes[pin.number], pin.head):
            raise errors.ForkedRosterError("the list of devices is not the one that this machine knows", hint=_LIES)

    def contains(self, pin: Pin) -> bool:
        """Whether that state is this one, or an earlier one of it."""
        is_there = pin.space == self.space and pin.number < len(self.entries)
        return is_there and hmac.compare_digest(self.hashes[pin.number], pin.head)

    @property
    def head(self) -> bytes:
        """The newest entry's hash, 32 bytes."""
        return self.hashes[-1] if self.hashes else NO_HEAD

    @property
    def pin(self) -> Pin:
        """What to remember of this state."""
        return Pin(self.space, len(self.entries) - 1, self.head)

    @property
    def epoch(self) -> int:
        """The present epoch; 0 before the first entry."""
        return len(self.commitments)

    @property
    def words(self) -> str:
        """Six words for the space, the same on all of its machines as long as it lives: of its first entry (PROTOCOL.md 10.7)."""
        return fingerprint_words(self.hashes[0])

    @property
    def head_words(self) -> str:
        """Six words for this very state: two machines that show the same have the same devices, in the same history (PROTOCOL.md 10.7)."""
        return fingerprint_words(self.head)

    @property
    def added_by(self) -> dict[bytes, bytes]:
        """Who has signed for each device that is or was on it, by Ed25519 keys; the first one for itself."""
        return {entry.device.key: entry.signer for entry in self.entries if entry.device is not None}

    def earlier_keys(self, device: bytes) -> list[bytes]:
        """The keys that a device had before this one, the latest first: each has added the next, and was removed by it."""
        added_by, removals = self.added_by, {(entry.signer, entry.removed) for entry in self.entries if entry.removed}
        found: list[bytes] = []
        while (before := added_by.get(device)) is not None and (device, before) in removals:
            found.append(before)
            device = before
        return found

    def adder(self, device: bytes) -> Device | None:
        """Who has added a device that is or was on it, under its first key; None: it began the space."""
        first = [device, *self.earlier_keys(device)][-1]
        signer = self.added_by.get(first, first)
        known = {entry.device.key: entry.device for entry in self.entries if entry.device is not None}
        return None if signer == first else known[signer]

    def above(self, device: bytes) -> list[bytes]:
        """A device that is or was on it, and whoever has brought it in: itself, who added that, and so on to the one that began the space.

        Each is named by its first key: a device that has changed its key is the same one.
        """
        added_by = self.added_by
        found: list[bytes] = []
        while True:
            first = [device, *self.earlier_keys(device)][-1]
            if first in found:
                return found
            found.append(first)
            device = added_by.get(first, first)

    def brought_in_by(self, device: bytes) -> list[Device]:
        """Who is on it because of a device: added by it, under this key or an earlier one, or by one that it has added, and so on."""
        brought = descendants([device, *self.earlier_keys(device)], self.added_by)
        return [each for each in self.devices.values() if each.key in brought and each.key != device]

    @property
    def leaves_room(self) -> bool:
        """Whether all devices but one can still be removed: each removal takes an entry, an epoch and room (PROTOCOL.md 10.6)."""
        others = len(self.devices) - 1
        size_bytes = self.size_bytes + sum(_REMOVAL_BYTES + _WRAP_BYTES * left for left in range(1, others + 1))
        has_epochs = self.epoch + others <= MAX_EPOCHS
        return has_epochs and len(self.entries) + others <= MAX_ENTRIES and size_bytes <= MAX_ROSTER_BYTES

    @classmethod
    def found(cls, by: Identity, name: str, *, now: int, keys: SpaceKeys | None = None) -> tuple[Self, SpaceKeys]:
        """A new space with this machine as its only device, and its keys. `now` is seconds since 1970; `keys` is for tests only."""
        keys = keys or SpaceKeys.generate()
        device = Device(Card.of(by), name)
        return cls(keys.space)._made(RosterChange.GENESIS, by, now, keys, device=device), keys

    def add(self, by: Identity, device: Device, keys: SpaceKeys, *, now: int) -> Self:
        """This roster with `device`, which gets the keys of every epoch.

        Args:
            by: a machine that is on it.
            device: whose card was authenticated: by a pair secret, or by people who compared its words.
            keys: as `open` gives them.
            now: seconds since 1970.

        Raises RosterError: the device cannot be added, or `by` may not.
        """
        self._check_keys(keys)
        return self._made(RosterChange.ADD, by, now, keys, device=device)

    def remove(self, by: Identity, device: bytes, keys: SpaceKeys, *, now: int) -> tuple[Self, SpaceKeys]:
        """This roster without the device of that Ed25519 key, and the keys with a new epoch, which it does not get. As `add` otherwise."""
        self._check_keys(keys)
        keys = keys.next_epoch()
        return self._made(RosterChange.REMOVE, by, now, keys, removed=device), keys

    def rotate(self, by: Identity, keys: SpaceKeys, *, now: int) -> tuple[Self, SpaceKeys]:
        """This roster with a new epoch for the same devices, and its keys. As `add` otherwise."""
        self._check_keys(keys)
        keys = keys.next_epoch()
        return self._made(RosterChange.ROTATE, by, now, keys), keys

    def open(self, wrap_key: WrapKey) -> SpaceKeys:
        """The keys of all epochs, as one of the devices has them.

        Raises WrapError: it is not on the roster, or a wrap does not hold the key that its entry commits to.
        """
        if wrap_key.device not in self.devices:
            hint = "approve it on a machine that is, or use the recovery code"
            raise errors.WrapError("this machine is not among the devices of the space", hint=hint)
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

    def _made(
        self,
        change: RosterChange,
        by: Identity,
        now: int,
        keys: SpaceKeys,
        *,
        device: Device | None = None,
        removed: bytes = b"",
    ) -> Self:
        """This roster with one more entry, made here and checked as if it had come from elsewhere."""
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
        made = self._after(replace(bare, commitment=commitment, wraps=wraps).signed(by))
        if change is not RosterChange.REMOVE and not made.leaves_room:
            raise _oversized()
        return made

    def _after(self, entry: RosterEntry) -> Self:
        """This roster with `entry`, if it may follow. Every rule of PROTOCOL.md 10.6, in its order."""
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
            raise _oversized()
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
            raise _oversized()
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
        """Who is on the roster behind this entry."""
        devices = dict(self.devices)
        if entry.change is RosterChange.REMOVE:
            if entry.removed == entry.signer:
                hint = "remove it on another machine: it would make the key that it must not have"
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
        """Which wraps the entry must carry, in their order: all epochs for one who is added, else the new epoch for all."""
        if entry.change is RosterChange.ADD and entry.device is not None:
            return [(epoch, entry.device.key) for epoch in range(FIRST_EPOCH, self.epoch + 1)]
        return [(self.epoch + 1, key) for key in sorted(devices)]


def descendants(roots: Iterable[bytes], parents: Mapping[bytes, bytes]) -> set[bytes]:
    """Whoever has one of `roots` above itself, at any distance, without these; `parents` has the one above each."""
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


def _oversized() -> errors.OversizedRosterError:
    return errors.OversizedRosterError(
        f"a space has at most {MAX_DEVICES} devices at a time, {MAX_EPOCHS} epochs and {MAX_ENTRIES} changes to them",
        hint="remove devices that are no longer used, or begin a new space",
    )
