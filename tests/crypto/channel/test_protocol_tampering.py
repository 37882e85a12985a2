"""The wire in the hands of somebody else: every changed bit, every cut, and every record in a place where it does not belong.

Each test counts what it tried and what got through. `CONFIDE_THOROUGH=1` tries every bit where the suite takes a sample.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from tests.support.crypto.snapshots import Handshake, again, handshake, one_key_channel

from confide_crypto.channel.protocol import BUCKETS, HEADER_LENGTH, MAX_PAYLOAD, Channel, FrameType, MessageReceived
from confide_crypto.errors import ConnectionLost, HandshakeError, ProtocolViolation
from confide_crypto.handshake.handshake import MESSAGE1_LENGTH, MESSAGE2_LENGTH, MESSAGE3_LENGTH
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.noise import TAG_LENGTH, CipherState, KeyPair
from confide_crypto.keys.identity import Identity

IS_THOROUGH = os.environ.get("CONFIDE_THOROUGH") == "1"
SAMPLE = 2000
KEY = bytes(range(32))
MSG = FrameType.MSG

FIXED = handshake()
INVITE = Invite("h", 7733, "", False, FIXED.daemon_before1.identity.static_key, bytes(range(16)))
ENROLLING = handshake(invite=INVITE)
READERS: dict[int, Callable[[Handshake, bytes], object]] = {
    1: lambda made, message: again(made.daemon_before1).read_message1(message),
    2: lambda made, message: again(made.client_before2).read_message2(message),
    3: lambda made, message: again(made.daemon_before3).read_message3(message),
}


@dataclass(slots=True)
class Tally:
    """How much was tried and how much of it got through."""

    attempts: int = 0
    accepted: int = 0


def flipped(message: bytes, bits: Iterable[int]) -> Iterator[bytes]:
    number = int.from_bytes(message, "big")
    for bit in bits:
        yield (number ^ 1 << bit).to_bytes(len(message), "big")


def lengths_other_than(right: int, most: int) -> list[int]:
    return [length for length in range(most + 1) if length != right]


def messages(made: Handshake) -> dict[int, bytes]:
    return {1: made.message1, 2: made.message2, 3: made.message3}


def offer(made: Handshake, number: int, tries: Iterable[bytes]) -> Tally:
    """Each of `tries` as message `number`, to a fresh reader."""
    tally, read = Tally(), READERS[number]
    for message in tries:
        tally.attempts += 1
        try:
            read(made, message)
        except HandshakeError:
            continue
        tally.accepted += 1
    return tally


# -- the handshake ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [FIXED, ENROLLING], ids=["session", "enrollment"])
@pytest.mark.parametrize(("number", "length"), [(1, MESSAGE1_LENGTH), (2, MESSAGE2_LENGTH), (3, MESSAGE3_LENGTH)])
def test_no_changed_bit_of_a_handshake_message_is_accepted(made: Handshake, number: int, length: int) -> None:
    """All 10,048, 9,088 and 4,096 of them, in both modes; the unused top bit of the ephemeral too, since it is hashed.

    The suite tries one bit of every byte, each byte another; `make fuzz` tries all.
    """
    message = messages(made)[number]
    assert offer(made, number, [message]) == Tally(1, 1), "unchanged it is taken"
    bits = range(8 * length)
    tried = bits if IS_THOROUGH else [bit for bit in bits if bit % 8 == bit // 8 % 8]
    tally = offer(made, number, flipped(message, tried))
    count = {1: 10_048, 2: 9_088, 3: 4_096}[number]
    assert tally == Tally(attempts=count if tried is bits else count // 8, accepted=0)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_other_length_of_a_handshake_message_is_accepted(number: int) -> None:
    """Cut anywhere, and made longer by anything up to the 2048 bytes that are read at all, and by far more."""
    message = messages(FIXED)[number]
    longer = [message + bytes(extra) for extra in (*range(1, 2048 - len(message) + 1), 63_000)]
    tally = offer(FIXED, number, [*(message[:length] for length in range(len(message))), *longer])
    assert tally == Tally(attempts=2048 + 1, accepted=0)


def test_no_handshake_message_passes_for_another() -> None:
    """Messages of this session and of others in every place, the other sessions being as fresh as real ones are.

    A message 1 to the same daemon is left out: it may come from anybody, may be replayed, and leads nowhere (PROTOCOL.md 4.9).
    """

    def other(**parties: Any) -> Handshake:
        kem_key = MLKEM768PrivateKey.generate()
        return handshake(
            client_ephemeral=KeyPair.generate(),
            daemon_ephemeral=KeyPair.generate(),
            kem_key=kem_key,
            kem_answer=kem_key.public_key().encapsulate(),
            **parties,
        )

    elsewhere = other(host=Identity(bytes(range(64, 96))))
    others = [other(), other(client=Identity(bytes(range(32, 64)))), other(invite=INVITE), elsewhere]
    own = messages(FIXED)
    tally = Tally()
    for place in READERS:
        wrong = [message for number, message in own.items() if number != place]
        wrong += [messages(made)[place] for made in ([elsewhere] if place == 1 else others)]
        found = offer(FIXED, place, wrong)
        tally = Tally(tally.attempts + found.attempts, tally.accepted + found.accepted)
    assert tally == Tally(attempts=3 * 2 + 1 + 4 + 4, accepted=0)


def test_a_replayed_message_1_and_an_old_message_3_open_nothing() -> None:
    """The whole recording of a session played to the same daemon again: its own part of the handshake is new."""
    tally = Tally()
    for _ in range(50):
        theirs = again(FIXED.daemon_before1)
        theirs._noise._ephemeral = KeyPair.generate()
        theirs.read_message1(FIXED.message1)
        theirs.write_message2()
        tally.attempts += 1
        try:
            theirs.read_message3(FIXED.message3)
        except HandshakeError:
            continue
        tally.accepted += 1
    assert tally == Tally(50, 0)


# -- records ------------------------------------------------------------------------------------------------------


def give(record: bytes, *, key: bytes = KEY) -> bool:
    """Whether a fresh daemon's channel takes a record; if not, whether nothing at all comes out of it afterwards."""
    channel, peer = one_key_channel(key, initiator=False)
    try:
        channel.receive(record)
    except ProtocolViolation:
        with pytest.raises(ProtocolViolation):
            channel.receive(peer.encrypt(bytes((MSG, 0, 0, 0, 0, 0, 0, 0)).ljust(256, b"\0")))
        with pytest.raises(ConnectionLost):
            channel.seal(MSG, 0, b"")
        return False
    return True


def record_of(bucket: int) -> bytes:
    length = bucket - HEADER_LENGTH
    head = bytes((MSG, 0, 0, 0, 0, 0)) + length.to_bytes(2, "big")
    return CipherState(KEY).encrypt(head + bytes(number % 251 for number in range(length)))


@pytest.mark.parametrize("bucket", BUCKETS)
def test_no_changed_bit_of_a_record_is_accepted(bucket: int) -> None:
    """Every one of the small buckets, a seeded sample of the great ones; tag and last byte always."""
    record = record_of(bucket)
    assert give(record)
    count = 8 * (bucket + TAG_LENGTH)
    bits: Iterable[int] = range(count)
    if bucket > 1024 and not IS_THOROUGH:
        tail = 8 * (TAG_LENGTH + 1)
        bits = [*range(tail), *random.Random(bucket).sample(range(tail, count), SAMPLE - tail)]
        count = SAMPLE
    tally = Tally()
    for changed in flipped(record, bits):
        tally.attempts += 1
        tally.accepted += give(changed)
    assert tally == Tally(attempts=count, accepted=0)


@pytest.mark.parametrize("bucket", BUCKETS)
def test_no_other_length_of_a_record_is_accepted(bucket: int) -> None:
    """Cut to every length and padded to every length up to the greatest record, by zeros and by the record's own bytes."""
    record = record_of(bucket)
    greatest = BUCKETS[-1] + TAG_LENGTH
    tally = Tally()
    for length in [*lengths_other_than(len(record), greatest + 64), 65_535]:
        tally.attempts += 1
        tally.accepted += give((record + bytes(65_535))[:length])
    for other in BUCKETS:
        if other != bucket:
            tally.attempts += 1
            tally.accepted += give((record * (other // 256 + 1))[-other - TAG_LENGTH :])
    assert tally == Tally(attempts=greatest + 64 + 1 + 3, accepted=0)


def welcomed(made: Handshake) -> tuple[Channel, Channel]:
    client, daemon = made.channels()
    client.receive(daemon.seal(FrameType.RES, 0, b"{}", bucket=1024))
    return client, daemon


@pytest.mark.parametrize("sender", ["client", "daemon"])
def test_records_are_taken_in_their_order_or_not_at_all(sender: str) -> None:
    """Of eight records every one that is not the next is refused: lost ones before it, repeated ones, swapped ones."""
    tally = Tally()
    for done in range(8):
        for place in range(8):
            source, target = welcomed(FIXED) if sender == "client" else reversed(welcomed(FIXED))
            records = [source.seal(MSG, 0, b"%d" % number) for number in range(8)]
            for number in range(done):
                assert target.receive(records[number]) == MessageReceived(b"%d" % number)
            if place == done:
                continue
            tally.attempts += 1
            try:
                target.receive(records[place])
            except ProtocolViolation:
                with pytest.raises(ProtocolViolation):
                    target.receive(records[done])  # the right one comes too late
                continue
            tally.accepted += 1
    assert tally == Tally(attempts=56, accepted=0)


def test_an_end_takes_none_of_its_own_records() -> None:
    tally = Tally()
    for kind, payload in ((MSG, b"{}"), (FrameType.KEEPALIVE, b""), (FrameType.REQ, b"{}"), (FrameType.CLOSE, b"done")):
        for end in range(2):
            channel = welcomed(FIXED)[end]
            record = channel.seal(kind, 1 + end if kind is FrameType.REQ else 0, payload)
            tally.attempts += 1
            try:
                channel.receive(record)
            except ProtocolViolation:
                continue
            tally.accepted += 1
    assert tally == Tally(attempts=8, accepted=0)


def test_no_record_of_another_session_or_direction_is_taken() -> None:
    """Between the same two keys: three sessions, each end's records offered to every end that they are not meant for."""
    sessions = [handshake(daemon_ephemeral=KeyPair.generate()) for _ in range(3)]
    tally = Tally()
    for source in range(3):
        for target in range(3):
            for sender in range(2):
                for reader in range(2):
                    if source == target and sender != reader:
                        continue
                    record = welcomed(sessions[source])[sender].seal(MSG, 0, b"secret")
                    tally.attempts += 1
                    try:
                        welcomed(sessions[target])[reader].receive(record)
                    except ProtocolViolation:
                        continue
                    tally.accepted += 1
    assert tally == Tally(attempts=30, accepted=0)


def test_a_continued_message_is_whole_or_nothing() -> None:
    """Any one of its records left out, doubled, exchanged with the next or taken from another message: nothing is delivered."""
    count = 5
    tally = Tally()

    def sealed() -> tuple[Channel, list[bytes], list[bytes]]:
        client, daemon = welcomed(FIXED)
        bodies = [bytes([letter]) * (MAX_PAYLOAD * (count - 1) + 1) for letter in b"ab"]
        rows = [
            [
                client.seal(MSG, 0, body[start : start + MAX_PAYLOAD], more=start + MAX_PAYLOAD < len(body))
                for start in range(0, len(body), MAX_PAYLOAD)
            ]
            for body in bodies
        ]
        return daemon, rows[0], rows[1]

    for place in range(count):
        daemon, row, other = sealed()
        after = row[place + 1 :] + other
        for wrong in (
            row[:place] + after,
            [*row[: place + 1], row[place], *after],
            [*row[:place], after[0], row[place], *after[1:]],
            [*row[:place], other[place], *after],
        ):
            taker = again(daemon)
            delivered = []
            tally.attempts += 1
            try:
                for record in wrong:
                    event = taker.receive(record)
                    if event is not None:
                        delivered.append(event)
            except ProtocolViolation:
                # Only the message that had come whole before the first wrong record, if that was the doubled last one.
                tally.accepted += len(delivered) != (wrong[: place + 1] == row)
            else:
                tally.accepted += 1
    assert tally == Tally(attempts=20, accepted=0)
