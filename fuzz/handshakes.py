"""The three messages as their readers get them: changed on the wire, and made by somebody who holds all the keys (PROTOCOL.md 4).

Everything random is fixed, so one input always means the same. Behind the AEAD, the payload is what is varied: it is sealed with
the keys of the handshake, and in message 3 signed with the caller's key where the input asks for that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from tests.support.crypto.channels import HOST, LAPTOP
from tests.support.crypto.snapshots import CLIENT_EPHEMERAL, KEM_KEY, Handshake, again, handshake

from confide_crypto.errors import HandshakeError
from confide_crypto.handshake.handshake import MAX_HELLO, MODE_ENROLL, MODE_SESSION, PROLOGUE, transcript
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.noise import XKPSK3, HandshakeState, KeyPair
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH
from fuzz.supply import Supply

INVITE = Invite("h", 7733, "", False, HOST.static_key, bytes(range(16)))
MADE: tuple[Handshake, ...] = (handshake(hello={"machine": "laptop"}), handshake(invite=INVITE))
_EK = KEM_KEY.public_key().public_bytes_raw()
_LABEL = b"confide/handshake-id/1"
_HELLOS = (b'{"machine":"laptop","replaces":"00"}', b"{}", b'{"m":[{"a":1e9},null,"\\u00e4"]}')


def _initiator() -> HandshakeState:
    """A client's Noise state before message 1, with nothing of `ClientHandshake` around it."""
    return HandshakeState(
        XKPSK3,
        "BLAKE2b",
        initiator=True,
        prologue=PROLOGUE,
        static=KeyPair.from_secret(LAPTOP.static_secret),
        remote_static=HOST.static_key,
        ephemeral=CLIENT_EPHEMERAL,
    )


_BEFORE1 = _initiator()


def message1(data: bytes) -> None:
    """At the daemon: refused, or a mode, an invite id and a KEM key that all keep the rules."""
    supply = Supply(data)
    kind = supply.number() % 4
    theirs = again(MADE[0].daemon_before1)
    payload = None
    if kind == 0:
        message = supply.rest()
    elif kind == 1:
        message = supply.edited(MADE[supply.number() % 2].message1)
    elif kind == 2:
        payload = supply.edited(supply.take(24).ljust(24, b"\0") + _EK, keeps_length=True)
        message = again(_BEFORE1).write_message(payload)
    else:
        payload = supply.take(24).ljust(24, b"\0") + supply.rest()[:1184].ljust(1184, b"\0")
        message = again(_BEFORE1).write_message(payload)
    try:
        theirs.read_message1(message)
    except HandshakeError:
        return
    if payload is None:
        if message not in (MADE[0].message1, MADE[1].message1):
            raise AssertionError("a changed message 1 was accepted")
        return
    MLKEM768PublicKey.from_public_bytes(payload[24:])
    mode, reserved, invite_id = payload[0], payload[1:8], payload[8:24]
    if reserved != bytes(7) or (mode, theirs.invite_id) not in ((MODE_SESSION, None), (MODE_ENROLL, invite_id)):
        raise AssertionError("a message 1 against the rules was accepted")
    if mode == MODE_SESSION and invite_id != bytes(16):
        raise AssertionError("an invite in a session's message 1 was accepted")
    theirs.write_message2()


def message2(data: bytes) -> None:
    """At the client: refused, or it was sealed by the pinned key; then message 3 is written, whatever the ciphertext was."""
    supply = Supply(data)
    kind = supply.number() % 3
    made = MADE[supply.number() % 2]
    ours = again(made.client_before2)
    if kind == 0:
        message = supply.rest()
    elif kind == 1:
        message = supply.edited(made.message2)
    else:
        noise = again(MADE[0].daemon_before1)._noise if made is MADE[0] else again(MADE[1].daemon_before1)._noise
        noise.read_message(made.message1)
        message = noise.write_message(supply.edited(supply.take(1088).ljust(1088, b"\0"), keeps_length=True))
    try:
        ours.read_message2(message)
    except HandshakeError:
        return
    if kind != 2 and message != made.message2:
        raise AssertionError("a changed message 2 was accepted")
    if len(ours.write_message3()) != 512:
        raise AssertionError("a message 3 of a wrong length")


def _before3(made: Handshake) -> HandshakeState:
    """The client's Noise state before message 3."""
    ours = again(made.client_before2)
    ours.read_message2(made.message2)
    return ours._noise


_BEFORE3 = tuple(_before3(made) for made in MADE)
_SIGNED = tuple(
    transcript(HOST.static_key, made.message1, made.message2) + KeyPair.from_secret(LAPTOP.static_secret).public
    for made in MADE
)


def message3(data: bytes) -> None:
    """At the daemon: refused, or a caller whose key has signed and whose hello is an object."""
    supply = Supply(data)
    kind = supply.number() % 4
    which = supply.number() % 2
    made = MADE[which]
    if kind == 0:
        message = supply.edited(made.message3)
    else:
        if kind == 1:  # any payload
            payload = supply.edited(
                bytes(KEY_LENGTH + SIGNATURE_LENGTH) + b"{}".ljust(MAX_HELLO, b"\0"), keeps_length=True
            )
        else:  # a good signature before a hello of any form
            hello = supply.edited(supply.choice(_HELLOS)) if kind == 2 else supply.rest()
            signature = LAPTOP.sign(_LABEL, _SIGNED[which])
            payload = LAPTOP.public_key + signature + hello[:MAX_HELLO].ljust(MAX_HELLO, b"\0")
        message = again(_BEFORE3[which]).write_message(payload)
    theirs = again(made.daemon_before3)
    try:
        caller = theirs.read_message3(message)
    except HandshakeError:
        return
    if kind == 0 and message != made.message3:
        raise AssertionError("a changed message 3 was accepted")
    if caller.public_key != LAPTOP.public_key or not isinstance(caller.hello, dict):
        raise AssertionError("a caller that has proven nothing was accepted")
    json.dumps(caller.hello)
    theirs.finish()


def seeds1() -> Iterator[bytes]:
    """Every kind, with heads of both modes and of none."""
    yield b"\0" + MADE[0].message1
    yield b"\1\0"
    yield b"\1\1\1\0\5\7"
    for head in (bytes(24), b"\1" + bytes(7) + INVITE.invite_id, b"\2" + bytes(23), bytes(7) + b"\1" + bytes(16)):
        yield b"\2" + head
        yield b"\2" + head + b"\2\0\30\xff\xff"
        yield b"\3" + head + _EK


def seeds2() -> Iterator[bytes]:
    """Both sessions: the right message, changed ones, other ciphertexts."""
    for which in (b"\0", b"\1"):
        yield b"\0" + which + MADE[which[0]].message2
        yield b"\1" + which
        yield b"\1" + which + b"\1\2\0\3"
        yield b"\2" + which + bytes(40)
        yield b"\2" + which + MADE[which[0]].message2[32:1120]


def seeds3() -> Iterator[bytes]:
    """The right message, payloads without proof, and hellos behind a good signature."""
    for which in (b"\0", b"\1"):
        yield b"\0" + which
        yield b"\0" + which + b"\1\0\5\2"
        yield b"\1" + which + b"\0\0\0\1"
        for number, hello in enumerate(_HELLOS):
            yield b"\2" + which + bytes([number])
            yield b"\3" + which + hello
        yield b"\3" + which + b"[" * MAX_HELLO
        yield b"\3" + which + b'{"a":"\\ud800","b":1e999,"c":NaN}'
