"""The list of a space's devices: who gets which keys, and every way in which somebody could lie about it."""

from __future__ import annotations

import hashlib
import random
import struct
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey
from tests.support.draws import IS_THOROUGH
from tests.support.sealing.rosters import (
    DESKTOP,
    KEYS,
    LAPTOP,
    NOW,
    PHONE,
    SPACE,
    STRANGER,
    device,
    encoded,
    flipped,
    founded,
    one_bit_a_byte,
    resigned,
    shared,
)

from confide_crypto import errors
from confide_crypto.keys.bech32m import encode
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.sealing import roster as rosters
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.roster_entry import (
    MAX_DEVICES,
    MAX_ENTRY_BYTES,
    MAX_EPOCHS,
    Card,
    Device,
    RosterChange,
    RosterEntry,
    Wrap,
)
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey, seal_wrap

WRAPPED = {identity: WrapKey(identity) for identity in (LAPTOP, DESKTOP, PHONE, STRANGER)}
SHARED, SHARED_KEYS = shared()
"""Laptop and desktop, epoch 2; no test changes them, since nothing can."""
ADDED = SHARED.add(DESKTOP, device(PHONE, "phone"), SHARED_KEYS, now=NOW)
REMOVED, REMOVED_KEYS = ADDED.remove(PHONE, LAPTOP.public_key, SHARED_KEYS, now=NOW)


def test_the_life_of_a_space() -> None:
    """Founded, shared, rotated, left: every device has the keys of all epochs, and the one that went none that came after."""
    roster, keys = founded()
    old = SealedRecord.seal(keys, "password", b"hunter2")
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW + 1)
    roster, keys = roster.rotate(DESKTOP, keys, now=NOW + 2)
    roster = roster.add(DESKTOP, device(PHONE, "phone"), keys, now=NOW + 3)
    assert {roster.open(WRAPPED[identity]) for identity in (LAPTOP, DESKTOP, PHONE)} == {keys}
    assert old.open(roster.open(WRAPPED[PHONE])) == b"hunter2"

    roster, keys = roster.remove(PHONE, LAPTOP.public_key, keys, now=NOW + 4)
    assert [entry.change for entry in roster.entries] == [
        RosterChange.GENESIS,
        RosterChange.ADD,
        RosterChange.ROTATE,
        RosterChange.ADD,
        RosterChange.REMOVE,
    ]
    assert [known.name for known in roster.devices.values()] == ["desktop", "phone"]
    assert roster.removed == {LAPTOP.public_key: 2}
    assert roster.epoch == keys.epoch == 3
    assert roster.open(WRAPPED[DESKTOP]) == roster.open(WRAPPED[PHONE]) == keys
    with pytest.raises(errors.WrapError, match="not among the devices"):
        roster.open(WRAPPED[LAPTOP])
    assert not [wrap for wrap in roster.entries[-1].wraps if wrap.device == LAPTOP.public_key]


def test_who_has_no_key_reads_the_same_roster() -> None:
    """A daemon, or a device that was away: from the stored bytes, whole or as an extension of what is known."""
    assert Roster.read(encoded(REMOVED)) == REMOVED
    assert Roster.read(encoded(SHARED)).extend(encoded(REMOVED)[3:]) == REMOVED
    assert SHARED.extend([]) is SHARED
    assert REMOVED.size_bytes == sum(map(len, encoded(REMOVED)))
    assert REMOVED.words == SHARED.words != shared()[0].words
    assert REMOVED.head_words != SHARED.head_words, "of what was done last"
    assert SHARED_KEYS.epochs[0] not in b"".join(encoded(REMOVED))


def test_the_bytes_are_those_of_the_protocol() -> None:
    """PROTOCOL.md 10.5 and 10.6, written down a second time: a space founded, and rotated, by another program."""

    def signature(label: bytes, data: bytes) -> bytes:
        return SigningKey(LAPTOP.seed).sign(label + b"\0" + data).signature

    def hashed(entry: bytes) -> bytes:
        return hashlib.blake2b(entry, person=b"confide-roster-1", digest_size=32).digest()

    def epoch(number: int, previous: bytes) -> bytes:
        about = struct.pack(">I16sII", 16, SPACE, 4, number)
        commitment = hashlib.blake2b(about, key=keys[number - 1], person=b"confide-epoch-1", digest_size=32).digest()
        wrap = seal_wrap(keys[number - 1], wrap_key, space=SPACE, epoch=number, device=ours, head=previous)
        return commitment + struct.pack(">HI", 1, number) + ours + wrap

    keys = (bytes(range(32)), bytes(range(32, 64)))
    ours, wrap_key = LAPTOP.public_key, WRAPPED[LAPTOP].public
    card = ours + wrap_key + signature(b"confide/device-card/1", wrap_key)
    head = struct.pack(">BB16sI32sQ", 1, 1, SPACE, 0, bytes(32), NOW) + ours
    body = head + card + b"\0\x06laptop" + epoch(1, bytes(32))
    first = body + signature(b"confide/roster-entry/1", body)
    body = struct.pack(">BB16sI32sQ", 1, 4, SPACE, 1, hashed(first), NOW + 9) + ours + epoch(2, hashed(first))
    second = body + signature(b"confide/roster-entry/1", body)

    roster = Roster.read([first, second])
    assert roster.open(WRAPPED[LAPTOP]).epochs == keys
    assert roster.pin == Pin(SPACE, 1, hashed(second))
    assert (roster.words, roster.entries[1].time) == (fingerprint_words(hashed(first)), NOW + 9)
    assert encoded(roster) == [first, second]


def test_an_entry_has_one_form() -> None:
    for data in encoded(REMOVED):
        assert RosterEntry.parse(data).encode() == data
        for cut in (0, 1, 57, len(data) // 2, len(data) - 1):
            with pytest.raises(errors.MalformedEntryError):
                RosterEntry.parse(data[:cut])
        with pytest.raises(errors.MalformedEntryError):
            RosterEntry.parse(data + b"\0")


@pytest.mark.long
def test_every_changed_bit_of_an_added_device_is_refused() -> None:
    """The suite tries one bit of every byte, each byte another; `make fuzz` tries all."""
    roster, keys = founded()
    data = encoded(roster.add(LAPTOP, device(PHONE), keys, now=NOW))[-1]
    places = range(8 * len(data)) if IS_THOROUGH else one_bit_a_byte(data)
    tried = 0
    for bad in flipped(data, places):
        tried += 1
        with pytest.raises(errors.RosterError):
            roster.extend([bad])
    assert tried == len(places) > 2_000


@pytest.mark.long
@pytest.mark.parametrize("place", range(5))
def test_every_changed_byte_of_a_chain_is_refused(place: int) -> None:
    """Each entry in turn, with what follows it."""
    chain = encoded(REMOVED)
    before = Roster.read(chain[:place]) if place else Roster(SPACE)
    for bad in flipped(chain[place], one_bit_a_byte(chain[place])):
        with pytest.raises(errors.RosterError):
            before.extend([bad, *chain[place + 1 :]])


def refused(kind: type[errors.RosterError], *entries: bytes, by: Roster = SHARED) -> None:
    """All of them are refused, with exactly that error, and nothing else has changed."""
    before = by.head, len(by.entries)
    with pytest.raises(errors.RosterError) as caught:
        by.extend(entries)
    assert type(caught.value) is kind
    assert (by.head, len(by.entries)) == before


def test_replays_gaps_and_forks_are_told_apart() -> None:
    newest = encoded(REMOVED)
    refused(errors.ReplayedEntryError, newest[2])
    refused(errors.ReplayedEntryError, newest[3], newest[3])
    refused(errors.MissingEntryError, newest[4])
    other, _ = SHARED.rotate(LAPTOP, SHARED_KEYS, now=NOW)
    refused(errors.ForkedRosterError, newest[3], encoded(other)[3])
    refused(errors.ForkedRosterError, encoded(other)[3], newest[4])
    refused(errors.ForkedRosterError, resigned(ADDED.entries[-1], DESKTOP, previous=SHARED.hashes[1]))
    refused(errors.ForeignEntryError, resigned(ADDED.entries[-1], DESKTOP, space=bytes(16)))
    with pytest.raises(errors.MissingEntryError):
        Roster.read([])
    with pytest.raises(errors.MissingEntryError):
        Roster.read(newest[1:])


def test_only_a_device_signs() -> None:
    added = ADDED.entries[-1]
    refused(errors.UnknownSignerError, resigned(added, STRANGER, signer=STRANGER.public_key))
    refused(errors.UnknownSignerError, resigned(added, PHONE, signer=PHONE.public_key))
    refused(errors.BadSignatureError, resigned(added, STRANGER))
    refused(errors.BadSignatureError, replace(added, signature=bytes(64)).encode())
    stolen = replace(added, number=len(REMOVED.entries), previous=REMOVED.head)
    refused(errors.RemovedSignerError, resigned(stolen, LAPTOP, signer=LAPTOP.public_key), by=REMOVED)
    genesis = SHARED.entries[0]
    with pytest.raises(errors.UnknownSignerError):
        Roster.read([resigned(genesis, STRANGER, signer=STRANGER.public_key)])
    with pytest.raises(errors.BadSignatureError):
        Roster.read([resigned(genesis, STRANGER)])


def test_a_removed_device_that_starts_again_before_its_removal_makes_a_fork() -> None:
    """It may sign there, so a newcomer could be shown that history: who has seen the other one, or pairs, is not taken in."""
    fake, _ = ADDED.rotate(LAPTOP, SHARED_KEYS, now=NOW)
    assert Roster.read(encoded(fake)) == fake
    with pytest.raises(errors.ForkedRosterError):
        REMOVED.extend(encoded(fake)[4:])
    with pytest.raises(errors.ForkedRosterError):
        Roster.read(encoded(fake), pin=REMOVED.pin)


def test_a_roster_contains_its_own_states_alone() -> None:
    """This one and those before it; no later one, no other history's and no other space's."""
    fake, _ = ADDED.rotate(LAPTOP, SHARED_KEYS, now=NOW)
    assert REMOVED.contains(REMOVED.pin)
    assert REMOVED.contains(SHARED.pin)
    assert not SHARED.contains(REMOVED.pin)
    assert not REMOVED.contains(fake.pin)
    assert not REMOVED.contains(replace(SHARED.pin, space=bytes(16)))


def test_the_pin_refuses_less_and_other_histories() -> None:
    pin = SHARED.pin
    assert Pin.parse(f" {pin.to_line()}\n") == pin
    assert Roster.read(encoded(REMOVED), pin=pin).pin == REMOVED.pin
    assert Roster.read(encoded(SHARED), pin=pin) == SHARED
    with pytest.raises(errors.WithheldRosterError):
        Roster.read(encoded(SHARED)[:2], pin=pin)
    with pytest.raises(errors.ForkedRosterError):
        Roster.read(encoded(shared()[0]), pin=pin)
    with pytest.raises(errors.ForeignEntryError):
        Roster.read(encoded(Roster.create(LAPTOP, "laptop", now=NOW)[0]), pin=pin)
    for bad in (
        pin.to_line()[:-1],
        encode("confide-roster-", bytes(53)),
        encode("confide-roster-", bytes(51)),
        encode("x", bytes(52)),
    ):
        with pytest.raises(ValueError, match=r"."):
            Pin.parse(bad)


def test_who_can_be_added() -> None:
    added = ADDED.entries[-1]

    def adding(card: Card, *, name: str = "phone") -> bytes:
        wraps = tuple(replace(wrap, device=card.key) for wrap in added.wraps)
        return resigned(added, DESKTOP, device=Device(card, name), wraps=wraps)

    SHARED.extend([adding(Card.of(PHONE))])
    refused(errors.WrongDeviceError, adding(Card.of(LAPTOP)))
    phone, other = Card.of(PHONE), Card.of(STRANGER)
    refused(errors.BadSignatureError, adding(replace(phone, wrap_key=other.wrap_key)))
    refused(errors.BadSignatureError, adding(replace(phone, key=other.key)))
    lent = LAPTOP_WRAP_KEY_AS(PHONE)
    refused(errors.WrongDeviceError, adding(lent))
    unusable = WRAPPED[PHONE].public[:1184] + bytes(32)
    signed = PHONE.sign(b"confide/device-card/1", unusable)
    refused(errors.WrongDeviceError, adding(Card(PHONE.public_key, unusable, signed)))
    with pytest.raises(errors.WrongDeviceError, match="is, or was"):
        REMOVED.add(PHONE, device(LAPTOP), REMOVED_KEYS, now=NOW)
    with pytest.raises(errors.UnknownSignerError):
        SHARED.add(STRANGER, device(PHONE), SHARED_KEYS, now=NOW)


def LAPTOP_WRAP_KEY_AS(identity: Identity) -> Card:  # noqa: N802 - reads as what it makes
    """Another device that claims the laptop's wrap key, and has signed that."""
    wrap_key = WRAPPED[LAPTOP].public
    return Card(identity.public_key, wrap_key, identity.sign(b"confide/device-card/1", wrap_key))


@pytest.mark.parametrize("identity", [LAPTOP, DESKTOP], ids=["removed", "there"])
def test_a_known_key_is_not_added_with_another_wrap_key(identity: Identity) -> None:
    """A device's entry would be replaced under its name, or a removed one come back."""
    wrap_key = WRAPPED[STRANGER].public
    card = Card(identity.public_key, wrap_key, identity.sign(b"confide/device-card/1", wrap_key))
    with pytest.raises(errors.WrongDeviceError, match="is, or was"):
        REMOVED.add(PHONE, Device(card, "again"), REMOVED_KEYS, now=NOW)


def test_a_space_begins_once() -> None:
    """A stranger who founds it again, behind what is there or in its place, is not a device of it."""
    genesis = Roster.create(STRANGER, "mine", now=NOW, keys=KEYS)[0].entries[0]
    behind = {"number": 3, "previous": SHARED.head}
    refused(errors.MalformedEntryError, resigned(genesis, STRANGER, **behind))
    refused(errors.ForkedRosterError, genesis.encode())
    added = ADDED.entries[-1]
    for by, first in ((DESKTOP, added), (PHONE, replace(added, signer=PHONE.public_key))):
        with pytest.raises(errors.MalformedEntryError):
            Roster.read([resigned(first, by, number=0, previous=bytes(32))])


def test_who_can_be_removed() -> None:
    with pytest.raises(errors.WrongDeviceError, match="not among"):
        SHARED.remove(LAPTOP, PHONE.public_key, SHARED_KEYS, now=NOW)
    with pytest.raises(errors.WrongDeviceError, match="cannot remove itself") as caught:
        SHARED.remove(LAPTOP, LAPTOP.public_key, SHARED_KEYS, now=NOW)
    assert caught.value.hint
    with pytest.raises(errors.RemovedSignerError):
        REMOVED.rotate(LAPTOP, REMOVED_KEYS, now=NOW)


def test_a_removal_brings_a_new_epoch_to_exactly_those_who_stay() -> None:
    removal = REMOVED.entries[-1]
    assert [wrap.device for wrap in removal.wraps] == sorted([DESKTOP.public_key, PHONE.public_key])
    first, second = removal.wraps
    gone = replace(first, device=LAPTOP.public_key)
    for wraps in (
        (first,),
        (second, first),
        (first, first),
        (first, second, second),
        (first, second, gone),
        (gone, second),
    ):
        refused(errors.WrongWrapsError, resigned(removal, PHONE, wraps=wraps), by=ADDED)
    for epoch in (0, 2, 4, 2**32 - 1):
        wrong = tuple(replace(wrap, epoch=epoch) for wrap in removal.wraps)
        refused(errors.WrongEpochError, resigned(removal, PHONE, wraps=wrong), by=ADDED)
    refused(errors.WrongEpochError, resigned(removal, PHONE, wraps=()), by=ADDED)
    refused(errors.WrongEpochError, resigned(removal, PHONE, wraps=(first, replace(second, epoch=2))), by=ADDED)


def test_a_device_that_is_added_gets_every_epoch() -> None:
    added = ADDED.entries[-1]
    one, two = added.wraps
    assert (one.epoch, two.epoch) == (1, 2)
    refused(errors.WrongEpochError, resigned(added, DESKTOP, wraps=(two,)))
    refused(errors.WrongWrapsError, resigned(added, DESKTOP, wraps=(two, one)))
    refused(errors.WrongWrapsError, resigned(added, DESKTOP, wraps=(one, replace(two, device=LAPTOP.public_key))))


def test_a_device_that_wraps_a_false_key_is_found_out() -> None:
    """All entries commit to the key that they bring: a device never seals under one that the others do not have."""
    added = ADDED.entries[-1]
    false = tuple(Wrap(wrap.epoch, wrap.device, added.wraps[0].sealed) for wrap in added.wraps)
    roster = SHARED.extend([resigned(added, DESKTOP, wraps=false)])
    with pytest.raises(errors.WrapError, match="does not open"):
        roster.open(WRAPPED[PHONE])
    rotated, _ = SHARED.rotate(LAPTOP, SHARED_KEYS, now=NOW)
    roster = SHARED.extend([resigned(rotated.entries[-1], LAPTOP, commitment=bytes(32))])
    with pytest.raises(errors.WrapError, match="commits to"):
        roster.open(WRAPPED[DESKTOP])


def test_a_change_is_made_with_the_keys_of_this_roster_alone() -> None:
    for keys in (
        KEYS,
        SHARED_KEYS.next_epoch(),
        SpaceKeys(bytes(16), SHARED_KEYS.epochs),
        SpaceKeys(SPACE, (bytes(32),) * 2),
    ):
        with pytest.raises(errors.WrapError, match="commits to"):
            SHARED.add(LAPTOP, device(PHONE), keys, now=NOW)
        with pytest.raises(errors.WrapError):
            SHARED.remove(LAPTOP, DESKTOP.public_key, keys, now=NOW)
        with pytest.raises(errors.WrapError):
            SHARED.rotate(LAPTOP, keys, now=NOW)


def at(data: bytes, place: int, value: bytes) -> bytes:
    return data[:place] + value + data[place + len(value) :]


ADD, GENESIS = encoded(ADDED)[-1], encoded(ADDED)[0]
PAPER = 1 + 1 + 16 + 4 + 32 + 8 + 32 + 1312


@pytest.mark.parametrize(
    "data",
    [
        at(ADD, 0, b"\2"),
        at(ADD, 1, b"\0"),
        at(ADD, 1, b"\5"),
        at(ADD, 18, bytes(4)),
        at(ADD, 22, bytes(32)),
        at(GENESIS, 18, b"\0\0\0\1"),
        at(GENESIS, 22, b"\1"),
        at(ADD, 1, b"\1"),
        at(ADD, PAPER, b"\2"),
        at(ADD, PAPER + 2, b"\n"),
        at(ADD, PAPER + 2, b"\x7f"),
        at(ADD, PAPER + 2, b"\xff"),
        at(ADD, PAPER + 1, b"\0"),
        at(ADD, PAPER + 2 + len("phone"), b"\xff\xff"),
    ],
)
def test_bytes_out_of_form_are_no_entry(data: bytes) -> None:
    with pytest.raises(errors.MalformedEntryError):
        RosterEntry.parse(data)


@pytest.mark.parametrize("name", ["", "a" * 65, "a\tb", "a\x1b[2J", "a\x85", "\U0001f511" * 64])
def test_a_name_can_be_shown(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        device(PHONE, name)
    assert device(PHONE, "Müllers Büro \U0001f511").name


def test_a_card_has_one_length() -> None:
    data = Card.of(PHONE).encode()
    assert Card.parse(data) == Card.of(PHONE)
    for bad in (data[:-1], data + b"\0"):
        with pytest.raises(ValueError, match="length"):
            Card.parse(bad)


def test_a_space_has_at_most_so_many_devices() -> None:
    roster, keys = founded()
    for number in range(1, MAX_DEVICES):
        roster = roster.add(LAPTOP, device(Identity(bytes([number]) * 32), f"machine {number}"), keys, now=NOW)
    assert len(roster.devices) == MAX_DEVICES
    with pytest.raises(errors.OversizedRosterError) as caught:
        roster.add(LAPTOP, device(STRANGER), keys, now=NOW)
    assert caught.value.hint
    roster, keys = roster.remove(LAPTOP, bytes(list(roster.devices)[5]), keys, now=NOW)
    assert roster.add(LAPTOP, device(STRANGER), keys, now=NOW).open(WRAPPED[STRANGER]) == keys


def test_a_space_has_at_most_so_many_epochs() -> None:
    """A device that is added in the last of them but one still fits into an entry; the last one is kept for its removal."""
    roster, keys = founded()
    while roster.epoch < MAX_EPOCHS - 1:
        roster, keys = roster.rotate(LAPTOP, keys, now=NOW)
    alone, more = roster.rotate(LAPTOP, keys, now=NOW)
    for refusing in (
        lambda: alone.rotate(LAPTOP, more, now=NOW),
        lambda: alone.add(LAPTOP, device(DESKTOP), more, now=NOW),
    ):
        with pytest.raises(errors.OversizedRosterError):
            refusing()
    roster = roster.add(LAPTOP, device(DESKTOP, "n" * 64), keys, now=NOW)
    assert len(roster.entries[-1].encode()) <= MAX_ENTRY_BYTES
    assert roster.open(WRAPPED[DESKTOP]) == keys
    with pytest.raises(errors.OversizedRosterError):
        roster.rotate(DESKTOP, keys, now=NOW)
    assert list(roster.remove(LAPTOP, DESKTOP.public_key, keys, now=NOW)[0].devices) == [LAPTOP.public_key]


def test_a_device_cannot_use_up_what_the_others_need_to_remove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thief adds and removes machines of its own as long as it is let; everybody else can still be removed after that."""
    monkeypatch.setattr(rosters, "MAX_ENTRIES", 24)
    roster, keys = shared()
    number = 0
    with suppress(errors.OversizedRosterError):
        for number in range(1, 24):
            roster = roster.add(DESKTOP, device(Identity(bytes([number]) * 32)), keys, now=NOW)
            if number % 3:
                roster, keys = roster.remove(DESKTOP, list(roster.devices)[-1], keys, now=NOW)
    assert 3 < number < 23, "it is refused some day"
    assert roster.leaves_room
    for key in list(roster.devices)[1:]:
        roster, keys = roster.remove(LAPTOP, key, keys, now=NOW)
    assert list(roster.devices) == [LAPTOP.public_key]
    assert len(roster.entries) <= 24
    assert roster.size_bytes == sum(len(entry) for entry in encoded(roster))


def test_the_room_for_removals_is_what_they_take() -> None:
    roster, keys = shared()
    roster, keys = roster.remove(LAPTOP, DESKTOP.public_key, keys, now=NOW)
    assert len(roster.entries[-1].encode()) == rosters._REMOVAL_BYTES + rosters._WRAP_BYTES


def test_who_brought_whom_in_is_told_through_removed_devices_and_new_keys() -> None:
    """The laptop is stolen: it has added a machine, which has changed its key, added another and gone."""
    ghost, renewed, second, bystander = (Identity(bytes([number]) * 32) for number in (1, 2, 3, 4))
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "stolen"), keys, now=NOW)
    roster = roster.add(LAPTOP, device(bystander, "bystander"), keys, now=NOW)
    roster = roster.add(DESKTOP, device(ghost, "ghost"), keys, now=NOW)
    roster = roster.add(ghost, device(renewed, "ghost"), keys, now=NOW)
    roster, keys = roster.remove(renewed, ghost.public_key, keys, now=NOW)
    roster = roster.add(renewed, device(second, "second"), keys, now=NOW)
    assert roster.earlier_keys(renewed.public_key) == [ghost.public_key]
    assert [one.name for one in roster.brought_in_by(DESKTOP.public_key)] == ["ghost", "second"]
    assert roster.adder(LAPTOP.public_key) is None, "it began the space"
    assert (adder := roster.adder(renewed.public_key)) is not None
    assert adder.key == DESKTOP.public_key, "of its first key"
    roster, keys = roster.remove(second, renewed.public_key, keys, now=NOW)
    assert [one.name for one in roster.brought_in_by(DESKTOP.public_key)] == ["second"]
    # Under a new key of its own it is the same machine.
    again = Identity(bytes([5]) * 32)
    roster = roster.add(DESKTOP, device(again, "stolen"), keys, now=NOW)
    roster, keys = roster.remove(again, DESKTOP.public_key, keys, now=NOW)
    assert [one.name for one in roster.brought_in_by(again.public_key)] == ["second"]
    assert roster.brought_in_by(bystander.public_key) == []
    assert len(roster.brought_in_by(LAPTOP.public_key)) == 3


def test_a_device_that_removes_the_one_that_added_it_is_another() -> None:
    """It has neither its keys nor what it added; only a key that was added under the same name is a new one of a device."""
    first, second, tablet = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
    roster, keys = founded()
    for identity, name in ((DESKTOP, "desktop"), (tablet, "tablet")):
        roster = roster.add(LAPTOP, device(identity, name), keys, now=NOW)
    lost, _ = roster.remove(DESKTOP, LAPTOP.public_key, keys, now=NOW)
    assert (lost.earlier_keys(DESKTOP.public_key), lost.current(LAPTOP.public_key)) == ([], None)
    assert lost.brought_in_by(DESKTOP.public_key) == []
    assert (adder := lost.adder(DESKTOP.public_key)) is not None
    assert adder.key == LAPTOP.public_key
    # Whether both are one person's is not known, so of one another they approve nothing.
    assert lost.above(DESKTOP.public_key) == [LAPTOP.public_key]
    renewed = roster
    for old, new in ((LAPTOP, first), (first, second)):
        renewed = renewed.add(old, device(new, "laptop"), keys, now=NOW)
        renewed, keys = renewed.remove(new, old.public_key, keys, now=NOW)
    assert renewed.earlier_keys(second.public_key) == [first.public_key, LAPTOP.public_key]
    for key in (LAPTOP, first, second):
        assert renewed.current(key.public_key) == renewed.devices[second.public_key]
    assert renewed.current(bytes(32)) is None


def test_entries_and_bytes_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.OversizedRosterError):
        RosterEntry.parse(bytes(MAX_ENTRY_BYTES + 1))
    with monkeypatch.context() as patch:
        patch.setattr(rosters, "MAX_ENTRIES", len(SHARED.entries))
        refused(errors.OversizedRosterError, ADD)
    with monkeypatch.context() as patch:
        patch.setattr(rosters, "MAX_ROSTER_BYTES", ADDED.size_bytes - 1)
        refused(errors.OversizedRosterError, ADD)
    SHARED.extend([ADD])


def test_the_paper_brings_a_space_back() -> None:
    """All machines are lost: the code on paper opens every epoch, those that came after it was written too, and adds a new machine."""
    code = RecoveryCode.generate()
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(code.identity, "paper", is_paper=True), keys, now=NOW)
    roster, keys = roster.rotate(LAPTOP, keys, now=NOW)
    record = SealedRecord.seal(keys, "password", b"hunter2")

    paper = RecoveryCode.parse(code.to_string().lower()).identity
    found = Roster.read(encoded(roster))
    assert [known.is_paper for known in found.devices.values()] == [False, True]
    keys = found.open(WrapKey(paper))
    roster = found.add(paper, device(STRANGER, "new laptop"), keys, now=NOW)
    roster, keys = roster.remove(STRANGER, LAPTOP.public_key, keys, now=NOW)
    assert record.open(roster.open(WRAPPED[STRANGER])) == b"hunter2"


def one_change(
    roster: Roster, keys: SpaceKeys, known: dict[bytes, Identity], chance: random.Random
) -> tuple[Roster, SpaceKeys]:
    """Somebody on the roster adds, removes or rotates."""
    active = sorted(roster.devices)
    by = known[chance.choice(active)]
    others = [key for key in active if key != by.public_key]
    what = chance.choice(["add", "remove", "rotate"] if others else ["add", "rotate"])
    if what == "add":
        new = Identity(bytes([len(known)]) * 32)
        known[new.public_key] = new
        return roster.add(by, device(new), keys, now=NOW), keys
    if what == "remove":
        return roster.remove(by, chance.choice(others), keys, now=NOW)
    return roster.rotate(by, keys, now=NOW)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 10))
def test_whatever_happens_the_devices_have_the_same_keys_and_no_one_else(seed: int, changes: int) -> None:
    chance = random.Random(seed)
    roster, keys = founded()
    known = {LAPTOP.public_key: LAPTOP}
    for _ in range(changes):
        roster, keys = one_change(roster, keys, known, chance)
    assert Roster.read(encoded(roster)) == roster
    for key, identity in known.items():
        if key in roster.devices:
            assert roster.open(WrapKey(identity)) == keys
        else:
            epochs = [wrap.epoch for entry in roster.entries for wrap in entry.wraps if wrap.device == key]
            assert max(epochs) == roster.removed[key] < roster.epoch


@settings(max_examples=200)
@given(st.integers(0, len(ADD) - 1), st.binary(min_size=1, max_size=80))
def test_any_bytes_are_an_entry_or_refused(place: int, value: bytes) -> None:
    data = at(ADD, place, value)
    try:
        entry = RosterEntry.parse(data)
    except errors.RosterError:
        return
    assert entry.encode() == data
