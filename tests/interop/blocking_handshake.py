"""Keys, invites and the handshake (PROTOCOL.md 1.4, 2, 4, 5), with the PyPI package `noiseprotocol` for Noise."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from noise.connection import Keypair, NoiseConnection  # type: ignore[import-untyped]
from tests.interop.blocking_wire import Records

PROTOCOL = b"Noise_XKpsk3_25519_ChaChaPoly_BLAKE2b"
PROLOGUE = b"confide-channel/1 mlkem768\0"
LENGTHS = (1256, 1136, 512)
SESSION, ENROLLMENT = 0, 1
HELLO_BYTES = 352
DEFAULT_PORT = 7733
_CHARSET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32M = 0x2BC830A3


class HandshakeFailedError(Exception):
    """4.6."""


def blake2b(bits: int, data: bytes, *, key: bytes = b"", person: bytes = b"") -> bytes:
    """`BLAKE2b-n` of 1.2."""
    return hashlib.blake2b(data, digest_size=bits // 8, key=key, person=person).digest()


def bech32m(prefix: str, data: bytes) -> str:
    """BIP-350's text form, without the limit of 90 characters."""
    number, bits = int.from_bytes(data), len(data) * 8
    pad = -bits % 5
    number <<= pad
    values = [number >> shift & 31 for shift in range(bits + pad - 5, -1, -5)]
    check = _polymod([*_expand(prefix), *values, 0, 0, 0, 0, 0, 0]) ^ _BECH32M
    values += [check >> 5 * (5 - i) & 31 for i in range(6)]
    return prefix + "1" + "".join(_CHARSET[value] for value in values)


def unbech32m(prefix: str, text: str) -> bytes:
    """The bytes in a text form with this prefix.

    Raises:
        ValueError: it is none.
    """
    if text not in (text.lower(), text.upper()):
        raise ValueError("capitals and small letters")
    found, _, rest = text.lower().rpartition("1")
    values = [_CHARSET.index(letter) for letter in rest]
    if found != prefix or _polymod([*_expand(prefix), *values]) != _BECH32M:
        raise ValueError("a wrong prefix or checksum")
    number = 0
    for value in values[:-6]:
        number = number << 5 | value
    bits = 5 * (len(values) - 6)
    if bits % 8 > 4 or number & ((1 << bits % 8) - 1):
        raise ValueError("padding")
    return (number >> bits % 8).to_bytes(bits // 8)


def _expand(prefix: str) -> list[int]:
    return [ord(letter) >> 5 for letter in prefix] + [0] + [ord(letter) & 31 for letter in prefix]


def _polymod(values: list[int]) -> int:
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for i, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            check ^= generator if top >> i & 1 else 0
    return check


@dataclass(frozen=True)
class Identity:
    """2.1 and 2.2."""

    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @cached_property
    def signing(self) -> Ed25519PrivateKey:
        """The Ed25519 private key."""
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> bytes:
        """The Ed25519 public key."""
        return self.signing.public_key().public_bytes_raw()

    @cached_property
    def static(self) -> bytes:
        """The X25519 private key."""
        return blake2b(256, b"", key=self.seed, person=b"confide-static-1")

    @cached_property
    def static_public(self) -> bytes:
        """The X25519 public key."""
        return X25519PrivateKey.from_private_bytes(self.static).public_key().public_bytes_raw()


@dataclass(frozen=True)
class Invite:
    """5.1 and 5.2."""

    url: str
    daemon_static: bytes
    token: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Invite:
        """From what a person pasted.

        Raises:
            ValueError: it is of no kind that this implementation knows.
        """
        parts = urlsplit(text)
        data = unbech32m("invite", parts.fragment)
        if parts.scheme not in ("confide", "confides") or len(data) != 49 or data[0] != 1:
            raise ValueError("an unknown kind of invite")
        scheme = "wss" if parts.scheme == "confides" else "ws"
        host = parts.netloc if parts.port else f"{parts.netloc}:{DEFAULT_PORT}"
        return cls(f"{scheme}://{host}{parts.path or '/'}", data[1:33], data[33:])

    @classmethod
    def make(cls, port: int, daemon_static: bytes) -> Invite:
        """A new one for a daemon on loopback."""
        return cls(f"ws://127.0.0.1:{port}/", daemon_static, secrets.token_bytes(16))

    def text(self) -> str:
        """What a person pastes."""
        return self.url.replace("ws", "confide", 1) + "#" + bech32m("invite", b"\1" + self.daemon_static + self.token)

    @property
    def id(self) -> bytes:
        """What message 1 shows of it."""
        return blake2b(128, self.token, person=b"confide-inv-id-1")

    @property
    def secret(self) -> bytes:
        """What goes into the psk."""
        return blake2b(256, self.token, person=b"confide-inv-psk1")


@dataclass(frozen=True)
class Caller:
    """What message 3 told the daemon."""

    public: bytes
    hello: dict[str, Any]


class _Handshake:
    def __init__(self, identity: Identity, daemon_static: bytes) -> None:
        self._identity = identity
        self._daemon_static = daemon_static
        self._hashed = PROLOGUE + daemon_static
        self._noise = NoiseConnection.from_name(PROTOCOL)
        self._noise.set_prologue(PROLOGUE)
        # The library wants the psk at the start; the real one is known after message 2 only.
        self._noise.set_psks(psk=bytes(32))
        self._noise.set_keypair_from_private_bytes(Keypair.STATIC, identity.static)

    @property
    def session_id(self) -> str:
        """4.8."""
        return bytes(self._noise.get_handshake_hash())[:16].hex()

    def records(self) -> Records:
        """6.1, after message 3."""
        protocol = self._noise.noise_protocol
        return Records(protocol.cipher_state_encrypt, protocol.cipher_state_decrypt)

    def _write(self, payload: bytes) -> bytes:
        return bytes(self._noise.write_message(payload))

    def _read(self, message: object, number: int) -> bytes:
        if not isinstance(message, bytes) or len(message) != LENGTHS[number - 1]:
            raise HandshakeFailedError("a message of another length or kind")
        try:
            return bytes(self._noise.read_message(message))
        except Exception:
            raise HandshakeFailedError("a message that does not open") from None

    def _transcript(self, *messages: bytes) -> bytes:
        return blake2b(512, self._hashed + b"".join(messages))

    def _set_psk(self, mode: int, invite_secret: bytes, transcript: bytes, shared: bytes) -> None:
        psk = blake2b(256, bytes([mode]) + invite_secret + transcript, key=shared, person=b"confide-psk-1")
        self._noise.noise_protocol.psks[:] = [psk]


def _signed(transcript: bytes, client_static: bytes) -> bytes:
    return b"confide/handshake-id/1\0" + transcript + client_static


class ClientHandshake(_Handshake):
    """The initiator: `first`, `third`, then `records`."""

    def __init__(self, identity: Identity, daemon_static: bytes, invite: Invite | None = None) -> None:
        super().__init__(identity, daemon_static)
        self._invite = invite
        self._kem = MLKEM768PrivateKey.generate()
        self._message1 = b""
        self._noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, daemon_static)
        self._noise.set_as_initiator()
        self._noise.start_handshake()

    def first(self) -> bytes:
        """Message 1."""
        mode, invite_id = (ENROLLMENT, self._invite.id) if self._invite else (SESSION, bytes(16))
        self._message1 = self._write(bytes([mode]) + bytes(7) + invite_id + self._kem.public_key().public_bytes_raw())
        return self._message1

    def third(self, message2: object, hello: dict[str, Any]) -> bytes:
        """Message 3, from the daemon's message 2.

        Raises:
            HandshakeFailedError: the endpoint does not hold the pinned key.
        """
        shared = self._kem.decapsulate(self._read(message2, 2))
        assert isinstance(message2, bytes)
        transcript = self._transcript(self._message1, message2)
        mode, secret = (ENROLLMENT, self._invite.secret) if self._invite else (SESSION, bytes(32))
        self._set_psk(mode, secret, transcript, shared)
        signature = self._identity.signing.sign(_signed(transcript, self._identity.static_public))
        padded = json.dumps(hello).encode().ljust(HELLO_BYTES, b"\0")
        return self._write(self._identity.public + signature + padded)


class DaemonHandshake(_Handshake):
    """The responder: `second`, `finish`, then `records`. `invites` is by id."""

    def __init__(self, identity: Identity, invites: dict[bytes, Invite]) -> None:
        super().__init__(identity, identity.static_public)
        self._invites = invites
        self._transcribed = b""
        self.invite: Invite | None = None
        self._noise.set_as_responder()
        self._noise.start_handshake()

    def second(self, message1: object) -> bytes:
        """Message 2.

        Raises:
            HandshakeFailedError: 4.6.
        """
        payload = self._read(message1, 1)
        assert isinstance(message1, bytes)
        mode, reserved, invite_id = payload[0], payload[1:8], payload[8:24]
        if mode not in (SESSION, ENROLLMENT) or any(reserved) or (mode == SESSION and any(invite_id)):
            raise HandshakeFailedError("an unknown mode")
        try:
            shared, ciphertext = MLKEM768PublicKey.from_public_bytes(payload[24:]).encapsulate()
        except ValueError:
            raise HandshakeFailedError("an encapsulation key that is none") from None
        self.invite = self._invites.get(invite_id) if mode == ENROLLMENT else None
        secret = bytes(32)
        if mode == ENROLLMENT:
            secret = self.invite.secret if self.invite else secrets.token_bytes(32)
        message2 = self._write(ciphertext)
        self._transcribed = self._transcript(message1, message2)
        self._set_psk(mode, secret, self._transcribed, shared)
        return message2

    def finish(self, message3: object) -> Caller:
        """Who calls.

        Raises:
            HandshakeFailedError: 4.6.
        """
        static = self._noise.noise_protocol.handshake_state
        payload = self._read(message3, 3)
        key, signature, padded = payload[:32], payload[32:96], payload[96:]
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(
                signature, _signed(self._transcribed, static.rs.public_bytes)
            )
            hello = json.loads(padded.rstrip(b"\0"))
        except Exception:
            raise HandshakeFailedError("a signature or a hello that is none") from None
        if not isinstance(hello, dict):
            raise HandshakeFailedError("a hello that is no object")
        return Caller(key, hello)
