"""The handshake of PROTOCOL.md 4 in both roles and both modes, over anything that sends and receives messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from tests.interop.engine import PROLOGUE, Engine
from tests.interop.texts import Identity, Invite, blake2b

LENGTHS = (1256, 1136, 512)
SESSION, ENROLL = 0, 1
NO_INVITE = bytes(16)
_EK_LENGTH, _HELLO_LENGTH = 1184, 352
_KYBER_MODULUS = 3329
_ED25519_PRIME = 2**255 - 19
# The y coordinates of the eight points of small order (4.5); the two large ones have order 8.
_SMALL_ORDER = {
    0,
    1,
    _ED25519_PRIME - 1,
    int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"),
    int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"),
}


class HandshakeError(Exception):
    """The peer broke a rule of section 4, or does not hold the key it should."""


class Wire(Protocol):
    """What carries whole messages, such as a websocket."""

    async def send(self, message: bytes, /) -> None:
        """Send one binary message."""

    async def recv(self) -> bytes | str:
        """The next message."""


@dataclass(slots=True)
class Caller:
    """What a daemon knows after message 3."""

    mode: int
    invite_id: bytes
    key: bytes
    hello: dict[str, Any]


def checked_ek(ek: bytes) -> MLKEM768PublicKey:
    """The encapsulation key after FIPS 203's modulus check (7.2). Raises HandshakeError."""
    bits = int.from_bytes(ek[:1152], "little")
    if len(ek) != _EK_LENGTH or any((bits >> 12 * index) & 0xFFF >= _KYBER_MODULUS for index in range(768)):
        raise HandshakeError("the encapsulation key fails the modulus check")
    return MLKEM768PublicKey.from_public_bytes(ek)


def verify(key: bytes, signature: bytes, message: bytes) -> None:
    """Ed25519, refusing small orders and encodings that are not canonical (4.5). Raises HandshakeError."""
    y = int.from_bytes(key, "little") & ~(1 << 255)
    if y >= _ED25519_PRIME or y in _SMALL_ORDER:
        raise HandshakeError("a public key of small order, or not canonical")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        raise HandshakeError("a bad signature") from None


def transcript(daemon_static: bytes, first: bytes, second: bytes) -> bytes:
    """T of 4.4."""
    return blake2b(512, PROLOGUE + daemon_static + first + second)


def late_psk(mode: int, invite_secret: bytes, hashed: bytes, shared: bytes) -> bytes:
    """The psk of 4.4."""
    return blake2b(256, bytes([mode]) + invite_secret + hashed, key=shared, person=b"confide-psk-1")


def statement(hashed: bytes, client_static: bytes) -> bytes:
    """What the caller signs."""
    return b"confide/handshake-id/1\x00" + hashed + client_static


def daemon_statement(daemon_static: bytes) -> bytes:
    """What the daemon signs (4.7)."""
    return b"confide/daemon-static/1\x00" + daemon_static


def checked(message: bytes | str, number: int) -> bytes:
    """A handshake message of the right form and length (4.2). Raises HandshakeError."""
    if not isinstance(message, bytes) or len(message) != LENGTHS[number - 1]:
        raise HandshakeError(f"message {number} has the wrong form")
    return message


def read_first(engine: Engine, message: bytes | str) -> tuple[int, bytes, MLKEM768PublicKey]:
    """Mode, invite id and encapsulation key of message 1. Raises HandshakeError, and what the engine raises."""
    payload = engine.read(checked(message, 1))
    mode, invite_id = payload[0], payload[8:24]
    if mode not in (SESSION, ENROLL) or any(payload[1:8]) or (mode == SESSION and invite_id != NO_INVITE):
        raise HandshakeError("an unknown mode")
    return mode, invite_id, checked_ek(payload[24:])


def read_third(
    engine: Engine, message: bytes | str, hashed: bytes, remote_static: Callable[[], bytes]
) -> tuple[bytes, dict[str, Any]]:
    """The caller's verified key and the hello of message 3. Raises HandshakeError, and what the engine raises."""
    payload = engine.read(checked(message, 3))
    key, signature, text = payload[:32], payload[32:96], payload[96:]
    verify(key, signature, statement(hashed, remote_static()))
    try:
        hello = json.loads(text.rstrip(b"\0"))
    except (ValueError, RecursionError):
        raise HandshakeError("the hello is no JSON") from None
    if not isinstance(hello, dict):
        raise HandshakeError("the hello is no object")
    return key, hello


async def initiate(
    wire: Wire, engine: Engine, identity: Identity, daemon_static: bytes, invite: Invite | None, hello: dict[str, Any]
) -> None:
    """The client's half: afterwards the engine is in its transport phase. Raises what the wire and the engine raise."""
    mode, invite_id, invite_secret = SESSION, NO_INVITE, bytes(32)
    if invite is not None:
        mode, invite_id, invite_secret = ENROLL, invite.id, invite.secret
    kem = MLKEM768PrivateKey.generate()
    first = engine.write(bytes([mode]) + bytes(7) + invite_id + kem.public_key().public_bytes_raw())
    await wire.send(first)
    second = checked(await wire.recv(), 2)
    shared = kem.decapsulate(engine.read(second))
    hashed = transcript(daemon_static, first, second)
    engine.set_psk(late_psk(mode, invite_secret, hashed, shared))
    signature = identity.signing.sign(statement(hashed, identity.static))
    text = json.dumps(hello).encode()
    assert len(text) <= _HELLO_LENGTH
    await wire.send(engine.write(identity.key + signature + text.ljust(_HELLO_LENGTH, b"\0")))


async def respond(
    wire: Wire,
    engine: Engine,
    remote_static: Callable[[], bytes],
    daemon_static: bytes,
    invite_secret: Callable[[bytes], bytes | None],
) -> Caller:
    """The daemon's half. `invite_secret` looks an id up; `remote_static` tells the client's, after message 3."""
    first = checked(await wire.recv(), 1)
    mode, invite_id, ek = read_first(engine, first)
    secret = bytes(32)
    if mode == ENROLL:
        secret = invite_secret(invite_id) or secrets.token_bytes(32)
    shared, ciphertext = ek.encapsulate()
    second = engine.write(ciphertext)
    await wire.send(second)
    hashed = transcript(daemon_static, first, second)
    engine.set_psk(late_psk(mode, secret, hashed, shared))
    key, hello = read_third(engine, await wire.recv(), hashed, remote_static)
    return Caller(mode, invite_id, key, hello)
