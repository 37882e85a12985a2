"""The handshake against everything that is not one: wrong keys, wrong secrets, wrong words (changed bits: `test_protocol_tampering`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from tests.crypto.handshake.test_noise_known_answers import wycheproof
from tests.support.crypto.channels import HOST, LAPTOP, shake_hands

from confide_crypto.errors import HandshakeError
from confide_crypto.handshake.handshake import (
    MAX_HELLO,
    MESSAGE1_LENGTH,
    MESSAGE2_LENGTH,
    MESSAGE3_LENGTH,
    PROLOGUE,
    ClientHandshake,
    DaemonHandshake,
    derive_psk,
    transcript,
)
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.noise import XKPSK3, HandshakeState, KeyPair
from confide_crypto.keys.identity import Identity


def started(invite: Invite | None = None) -> tuple[ClientHandshake, bytes]:
    ours = ClientHandshake(LAPTOP, HOST.static_key, invite=invite)
    return ours, ours.write_message1()


def responder_from(message1: bytes) -> DaemonHandshake:
    theirs = DaemonHandshake(HOST)
    theirs.read_message1(message1)
    return theirs


@pytest.mark.parametrize("has_invite", [False, True])
def test_both_sides_know_each_other_and_share_a_session(has_invite: bool) -> None:
    invite = Invite.new(HOST.static_key, "ws://h") if has_invite else None
    ours = ClientHandshake(LAPTOP, HOST.static_key, invite=invite, hello={"machine": "löptop"})
    theirs = DaemonHandshake(HOST)
    messages = [ours.write_message1()]
    theirs.read_message1(messages[0])
    assert theirs.invite_id == (invite.invite_id if invite else None)
    messages.append(theirs.write_message2(invite.invite_psk if invite else None))
    ours.read_message2(messages[1])
    messages.append(ours.write_message3())
    caller = theirs.read_message3(messages[2])
    assert (
        [len(message) for message in messages]
        == [MESSAGE1_LENGTH, MESSAGE2_LENGTH, MESSAGE3_LENGTH]
        == [1256, 1136, 512]
    )
    assert (caller.public_key, caller.hello) == (LAPTOP.public_key, {"machine": "löptop"})
    client, daemon = ours.finish(), theirs.finish()
    assert client.session_id == daemon.session_id
    assert daemon.receiving.decrypt(client.sending.encrypt(b"up")) == b"up"
    assert client.receiving.decrypt(daemon.sending.encrypt(b"down")) == b"down"


def test_a_message_3_is_taken_once() -> None:
    """Repeated to the same daemon it is refused, and the handshake that had succeeded is of no more use."""
    ours, message1 = started()
    theirs = responder_from(message1)
    ours.read_message2(theirs.write_message2())
    message3 = ours.write_message3()
    theirs.read_message3(message3)
    with pytest.raises(HandshakeError):
        theirs.read_message3(message3)
    with pytest.raises(HandshakeError):
        theirs.finish()


def test_two_sessions_share_nothing() -> None:
    (one, _), (two, _) = shake_hands(), shake_hands()
    assert one.finish().session_id != two.finish().session_id


def other_lengths(message: bytes) -> list[bytes]:
    return [message[:length] for length in range(len(message))] + [message + bytes(extra) for extra in (1, 16, 64000)]


def test_every_other_length_is_dropped_and_leaves_the_state_as_it_was() -> None:
    """Before any cryptography: afterwards the right message still goes through."""
    ours, message1 = started()
    theirs = DaemonHandshake(HOST)
    for wrong in other_lengths(message1):
        with pytest.raises(HandshakeError):
            theirs.read_message1(wrong)
    theirs.read_message1(message1)
    message2 = theirs.write_message2()
    for wrong in other_lengths(message2):
        with pytest.raises(HandshakeError):
            ours.read_message2(wrong)
    ours.read_message2(message2)
    message3 = ours.write_message3()
    for wrong in other_lengths(message3):
        with pytest.raises(HandshakeError):
            theirs.read_message3(wrong)
    theirs.read_message3(message3)


def test_a_daemon_with_another_key_cannot_read_message_1() -> None:
    _, message1 = started()
    with pytest.raises(HandshakeError):
        DaemonHandshake(Identity.generate()).read_message1(message1)


def test_a_daemon_with_another_key_cannot_answer() -> None:
    """Somebody in between who lets the true daemon read message 1 still cannot write message 2."""
    ours, _ = started()
    impostor = ClientHandshake(LAPTOP, HOST.static_key)
    fake = responder_from(impostor.write_message1())
    with pytest.raises(HandshakeError):
        ours.read_message2(fake.write_message2())


def test_messages_of_another_session_do_not_fit() -> None:
    """Replay and splice: message 3 and message 1 of an earlier session against a new responder."""
    ours, message1 = started()
    first = responder_from(message1)
    ours.read_message2(first.write_message2())
    message3 = ours.write_message3()
    first.read_message3(message3)
    second = responder_from(message1)  # message 1 alone can be replayed; it leads nowhere
    second.write_message2()
    with pytest.raises(HandshakeError):
        second.read_message3(message3)


def test_a_message_reflected_to_its_sender_is_refused() -> None:
    ours, message1 = started()
    with pytest.raises(HandshakeError):
        ours.read_message2(message1[:MESSAGE2_LENGTH])
    theirs = DaemonHandshake(LAPTOP)
    with pytest.raises(HandshakeError):
        theirs.read_message1(message1)


@pytest.mark.parametrize("psk", [None, bytes(32), b"\1" * 32], ids=["unknown", "zeros", "wrong"])
def test_an_invite_that_the_daemon_does_not_hold_fails_at_message_3(psk: bytes | None) -> None:
    """Until then nothing tells the client, or anybody on the way, that the invite is unknown, spent or wrong."""
    invite = Invite.new(HOST.static_key, "ws://h")
    ours, message1 = started(invite)
    theirs = responder_from(message1)
    assert theirs.invite_id == invite.invite_id
    ours.read_message2(theirs.write_message2(psk))
    with pytest.raises(HandshakeError):
        theirs.read_message3(ours.write_message3())


def test_the_secret_of_one_invite_does_not_open_another() -> None:
    one, two = Invite.new(HOST.static_key, "ws://h"), Invite.new(HOST.static_key, "ws://h")
    ours, message1 = started(one)
    theirs = responder_from(message1)
    ours.read_message2(theirs.write_message2(two.invite_psk))
    with pytest.raises(HandshakeError):
        theirs.read_message3(ours.write_message3())


def test_without_an_invite_an_invites_secret_is_not_mixed_in() -> None:
    """The mode is hashed into the psk: a daemon in mode 0 never gets to a caller in mode 1."""
    ours, message1 = started()
    theirs = responder_from(message1)
    assert theirs.invite_id is None
    ours.read_message2(theirs.write_message2(b"\7" * 32))
    theirs.read_message3(ours.write_message3())


class Hostile:
    """A client that holds all keys and writes what it likes."""

    def __init__(self) -> None:
        self.static = KeyPair.from_secret(LAPTOP.static_secret)
        self.noise = HandshakeState(
            XKPSK3, "BLAKE2b", initiator=True, prologue=PROLOGUE, static=self.static, remote_static=HOST.static_key
        )
        self.kem = MLKEM768PrivateKey.generate()

    def message1(self, head: bytes = bytes(24), ek: bytes | None = None) -> bytes:
        return self.noise.write_message(head + (ek or self.kem.public_key().public_bytes_raw()))


@pytest.mark.parametrize(
    "head",
    [
        b"\2" + bytes(23),
        b"\xff" + bytes(23),
        b"\0\1" + bytes(22),
        bytes(7) + b"\1" + bytes(16),
        b"\1" + bytes(6) + b"\1" + bytes(16),
        bytes(8) + b"\1" + bytes(15),
        bytes(23) + b"\1",
    ],
    ids=[
        "mode 2",
        "mode 255",
        "reserved first",
        "reserved last",
        "reserved in mode 1",
        "invite in mode 0",
        "invite end",
    ],
)
def test_a_message_1_that_says_something_unknown_is_refused(head: bytes) -> None:
    with pytest.raises(HandshakeError):
        DaemonHandshake(HOST).read_message1(Hostile().message1(head))


def test_invalid_kem_keys_are_refused() -> None:
    """Wycheproof's public keys with coefficients over the modulus, in an otherwise perfect message 1."""
    tried = 0
    for _, case in wycheproof("mlkem_768_encaps_test.subset"):
        ek = bytes.fromhex(case["ek"])
        if case["result"] == "invalid" and len(ek) == 1184:
            with pytest.raises(HandshakeError):
                DaemonHandshake(HOST).read_message1(Hostile().message1(ek=ek))
            tried += 1
    assert tried >= 10


def test_low_order_ephemerals_are_refused() -> None:
    """They would make `es` independent of the daemon's secret (Noise 14)."""
    points = {bytes.fromhex(case["public"]) for _, case in wycheproof("x25519_test") if case["shared"] == "00" * 32}
    assert len(points) >= 8
    _, message1 = started()
    for point in points:
        with pytest.raises(HandshakeError):
            DaemonHandshake(HOST).read_message1(point + message1[32:])


def test_a_pin_of_low_order_is_no_daemons() -> None:
    """It would make `es` known to everybody; the caller gets the handshake's own error for it, as for any other failure."""
    for point in (bytes(32), b"\1" + bytes(31)):
        with pytest.raises(HandshakeError):
            ClientHandshake(LAPTOP, point).write_message1()


def message3_with(hostile: Hostile, theirs: DaemonHandshake, payload: Any, head: bytes = bytes(24)) -> bytes:
    """What a client sends that got as far as message 3: `payload` makes the plaintext from T."""
    message1 = hostile.message1(head)
    theirs.read_message1(message1)
    message2 = theirs.write_message2()
    secret = hostile.kem.decapsulate(hostile.noise.read_message(message2))
    t = transcript(HOST.static_key, message1, message2)
    hostile.noise.set_psk(derive_psk(secret, head[0], bytes(32), t))
    return hostile.noise.write_message(payload(t))


def signed(
    t: bytes, static: bytes, hello: bytes = b"{}", identity: Identity = LAPTOP, label: bytes = b"confide/handshake-id/1"
) -> bytes:
    return identity.public_key + identity.sign(label, t + static) + hello.ljust(MAX_HELLO, b"\0")


def test_the_hostile_client_would_get_in_if_it_behaved() -> None:
    hostile, theirs = Hostile(), DaemonHandshake(HOST)
    message = message3_with(hostile, theirs, lambda t: signed(t, hostile.static.public))
    assert theirs.read_message3(message).public_key == LAPTOP.public_key


@pytest.mark.parametrize(
    "payload",
    [
        lambda t, s: Identity.generate().public_key + signed(t, s)[32:],
        lambda t, s: signed(bytes(64), s),
        lambda t, s: signed(t, bytes(32)),
        lambda t, s: signed(t, s, label=b"confide/daemon-static/1"),
        lambda t, s: bytes([1]) + bytes(31) + bytes([1]) + bytes(63) + signed(t, s)[96:],
        lambda t, s: bytes(96) + signed(t, s)[96:],
        lambda t, s: signed(t, s, hello=b""),
        lambda t, s: signed(t, s, hello=b"[]"),
        lambda t, s: signed(t, s, hello=b"{}\0{}"),
        lambda t, s: signed(t, s, hello=b"\xff\xfe"),
        lambda t, s: signed(t, s, hello=b"[" * MAX_HELLO),
    ],
    ids=[
        "another's key", "another transcript", "another static", "another label", "identity point", "zeros",
        "no hello", "hello is a list", "text behind the hello", "hello is not UTF-8", "hello is nested",
    ],
)  # fmt: skip
def test_a_message_3_that_proves_nothing_is_refused(payload: Any) -> None:
    hostile, theirs = Hostile(), DaemonHandshake(HOST)
    message = message3_with(hostile, theirs, lambda t: payload(t, hostile.static.public))
    with pytest.raises(HandshakeError, match=r"^handshake failed$"):
        theirs.read_message3(message)


def test_no_fixed_secret_opens_an_invite_that_does_not_exist() -> None:
    """A client that makes up an invite id and mixes in zeros, as an enrolled one would: the daemon's secret is random instead."""
    hostile, theirs = Hostile(), DaemonHandshake(HOST)
    head = b"\1" + bytes(7) + b"\5" * 16
    message = message3_with(hostile, theirs, lambda t: signed(t, hostile.static.public), head)
    assert theirs.invite_id == b"\5" * 16
    with pytest.raises(HandshakeError):
        theirs.read_message3(message)


def test_the_hello_has_a_limit() -> None:
    room = MAX_HELLO - len(json.dumps({"m": ""}, separators=(",", ":")))
    shake_hands(hello={"m": "x" * room})
    with pytest.raises(ValueError, match="352 fit"):
        ClientHandshake(LAPTOP, HOST.static_key, hello={"m": "x" * (room + 1)})


def test_failures_are_all_alike() -> None:
    """Which check failed is nobody's business (PROTOCOL.md 4.6)."""
    _, message1 = started()
    texts = set()
    for wrong in (
        b"",
        message1[:-1],
        bytes(MESSAGE1_LENGTH),
        message1[:-1] + bytes([message1[-1] ^ 1]),
        Hostile().message1(b"\2" + bytes(23)),
    ):
        with pytest.raises(HandshakeError) as caught:
            DaemonHandshake(HOST).read_message1(wrong)
        texts.add(str(caught.value))
    assert texts == {"handshake failed"}


def test_nothing_is_answered_before_message_1() -> None:
    with pytest.raises(HandshakeError):
        DaemonHandshake(HOST).write_message2()
