"""A device joins with a secret that the daemon never sees: both ways, and everything the daemon in between could try."""

from __future__ import annotations

import hashlib
import struct

import pytest
from tests.support.sealing.rosters import (
    DESKTOP,
    LAPTOP,
    NOW,
    PHONE,
    STRANGER,
    device,
    encoded,
    flipped,
    founded,
)

from confide_crypto.errors import ForkedRosterError, InviteError, PairingError, WithheldRosterError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.bech32m import decode, encode
from confide_crypto.sealing.pairing import ANSWER_LENGTH, REQUEST_LENGTH, DeviceInvite, Pair, parse_invite
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_crypto.sealing.space_keys import WrapKey

PAIR = Pair(bytes(range(16)), bytes(range(100, 116)))
CARD = Card.of(DESKTOP)
ALONE, KEYS = founded()
PAIRED = ALONE.add(LAPTOP, Device(CARD, "desktop"), KEYS, now=NOW)


def test_a_device_joins_and_both_ends_know_whom_they_have() -> None:
    """As it goes: the string on A, the request on B, the entry and the answer on A, the roster that a daemon shows to B."""
    made = DeviceInvite.new(bytes(32), "confide://host:7733/")
    invite, pair = parse_invite(f" '{made.to_string()}' ")
    assert (invite, pair) == (made.invite, made.pair)
    assert pair is not None

    card = made.pair.read_request(pair.request(Card.of(DESKTOP)))
    roster = ALONE.add(LAPTOP, Device(card, "desktop"), KEYS, now=NOW)
    answer = made.pair.answer(card, roster)

    shown = Roster.read(encoded(roster))
    assert pair.accept(answer, DESKTOP, shown) == roster.pin
    assert shown.open(WrapKey(DESKTOP)) == KEYS
    later, _ = roster.rotate(LAPTOP, KEYS, now=NOW)
    assert pair.accept(answer, DESKTOP, Roster.read(encoded(later))) == later.pin


def test_the_string_is_an_invite_with_a_second_secret_behind() -> None:
    made = DeviceInvite.new(bytes(range(32)), "wss://host:443/confide")
    address, _, fragment = made.to_string().partition("#")
    assert address == "confides://host:443/confide/"
    assert decode(fragment) == ("invite", b"\1" + bytes(range(32)) + made.invite.token + made.pair_secret)
    for shown in (str(made), repr(made), repr(made.pair)):
        assert made.pair_secret.hex() not in shown
        assert repr(made.pair_secret) not in shown
    with pytest.raises(InviteError):
        Invite.parse(made.to_string())  # a program that knows nothing of pairs does not lose half of it silently


def test_a_daemons_own_invite_has_no_pair() -> None:
    plain = Invite.new(bytes(32), "confide://host:7733/")
    assert parse_invite(plain.to_string()) == (plain, None)


@pytest.mark.parametrize(
    "fragment",
    [
        "",
        "garbage",
        encode("invite", bytes(65)),
        encode("invite", b"\1" + bytes(65)),
        encode("other", b"\1" + bytes(64)),
    ],
    ids=["none", "no Bech32m", "version 0", "a byte more", "something else"],
)
def test_damaged_strings_are_refused(fragment: str) -> None:
    with pytest.raises(InviteError):
        parse_invite(f"confide://host:7733/#{fragment}")


def test_the_bytes_are_those_of_the_protocol() -> None:
    """PROTOCOL.md 10.7, written down a second time."""

    def mac(person: bytes, label: bytes, *parts: bytes) -> bytes:
        data = label + b"\0" + b"".join(struct.pack(">I", len(part)) + part for part in parts)
        return hashlib.blake2b(data, key=PAIR.secret, person=person, digest_size=32).digest()

    card = CARD.key + CARD.wrap_key + CARD.signature
    head = b"\1" + PAIR.invite_id
    assert PAIR.request(CARD) == head + card + mac(b"confide-pair-r-1", b"confide/pair-request/1", PAIR.invite_id, card)
    shown = (PAIRED.space, b"\0\0\0\1", PAIRED.hashes[1])
    about = mac(b"confide-pair-a-1", b"confide/pair-answer/1", PAIR.invite_id, card, *shown)
    assert PAIR.answer(CARD, PAIRED) == head + b"".join(shown) + about
    assert (REQUEST_LENGTH, ANSWER_LENGTH) == (1361, 101)


@pytest.mark.long
def test_every_changed_bit_is_refused() -> None:
    request, answer = PAIR.request(CARD), PAIR.answer(CARD, PAIRED)
    tried = 0
    for bad in flipped(request):
        tried += 1
        with pytest.raises(PairingError):
            PAIR.read_request(bad)
    for bad in flipped(answer):
        tried += 1
        with pytest.raises(PairingError):
            PAIR.read_answer(bad, CARD)
    assert tried == 8 * (1361 + 101)


def test_other_lengths_directions_and_secrets_are_refused() -> None:
    request, answer = PAIR.request(CARD), PAIR.answer(CARD, PAIRED)
    other = Pair(PAIR.invite_id, bytes(16))
    elsewhere = Pair(bytes(16), PAIR.secret)
    for pair, message in (
        (PAIR, b""),
        (PAIR, request[:-1]),
        (PAIR, request + b"\0"),
        (PAIR, answer),
        (PAIR, other.request(CARD)),
        (PAIR, elsewhere.request(CARD)),
        (elsewhere, request),
        (elsewhere, b"\1" + elsewhere.invite_id + request[17:]),
    ):
        with pytest.raises(PairingError) as caught:
            pair.read_request(message)
        assert caught.value.hint
    for pair, message in ((PAIR, request), (PAIR, answer[:-1]), (other, answer), (PAIR, other.answer(CARD, PAIRED))):
        with pytest.raises(PairingError):
            pair.read_answer(message, CARD)


def test_a_card_that_its_device_has_not_signed_is_refused() -> None:
    mixed = Card(CARD.key, Card.of(STRANGER).wrap_key, CARD.signature)
    with pytest.raises(PairingError):
        PAIR.read_request(PAIR.request(mixed))


def test_the_daemon_cannot_show_another_space() -> None:
    """One that it founded itself, with the new device in it: everything sealed there would be its own to read."""
    answer = PAIR.answer(CARD, PAIRED)
    theirs, keys = Roster.create(STRANGER, "laptop", now=NOW, keys=KEYS)
    theirs = theirs.add(STRANGER, device(DESKTOP), keys, now=NOW)
    with pytest.raises(ForkedRosterError):
        PAIR.accept(answer, DESKTOP, theirs)
    with pytest.raises(WithheldRosterError):
        PAIR.accept(answer, DESKTOP, ALONE)
    with pytest.raises(PairingError):
        PAIR.accept(Pair(PAIR.invite_id, bytes(16)).answer(CARD, theirs), DESKTOP, theirs)


def test_the_answer_is_for_one_device() -> None:
    answer = PAIR.answer(CARD, PAIRED)
    with pytest.raises(PairingError):
        PAIR.accept(answer, PHONE, PAIRED)
    removed, _ = PAIRED.remove(LAPTOP, DESKTOP.public_key, KEYS, now=NOW)
    with pytest.raises(PairingError, match="no longer among"):
        PAIR.accept(answer, DESKTOP, removed)
    other = Card(CARD.key, CARD.wrap_key, bytes(64))
    with pytest.raises(ValueError, match="another card"):
        PAIR.answer(other, PAIRED)
