"""The Noise Protocol Framework, revision 34: CipherState, SymmetricState and HandshakeState over
25519 and ChaChaPoly.

No I/O, and independent of Confide. Confide uses one pattern and one hash (PROTOCOL.md 4); they are
parameters so that the official test vectors apply. "Noise n" in comments is a section of that
specification. AEAD and KEM come from pyca (2-4 times faster than PyNaCl's binding for small
messages), X25519 from libsodium, which refuses an all-zero result.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base
from nacl.exceptions import CryptoError
from nacl.exceptions import RuntimeError as SodiumError
from nacl.utils import random as random_bytes

DH_LENGTH: Final = 32
TAG_LENGTH: Final = 16
MAX_MESSAGE: Final = 65535
MAX_NONCE: Final = (1 << 64) - 1
"""Reserved for Rekey (Noise 5.1)."""
_ZEROS: Final = bytes(32)
_T = TypeVar("_T")
_nonce: Final = struct.Struct("<4xQ").pack


class NoiseError(Exception):
    """A message or a state that Noise does not allow. The error does not say which check failed."""


class NoiseToken(Enum):
    """A token of a message pattern (Noise 7.1), such as `e` or `psk`: one step of building a
    handshake message.
    """

    E = "e"
    S = "s"
    EE = "ee"
    ES = "es"
    SE = "se"
    SS = "ss"
    PSK = "psk"


class HandshakePattern(NamedTuple):
    """A handshake pattern (Noise 7.4): its messages in order, the initiator's first."""

    name: str  # with its modifiers, such as "XKpsk3"
    messages: tuple[tuple[NoiseToken, ...], ...]  # the tokens of each message
    initiator_static_known: bool = False  # the responder knows the initiator's static key beforehand
    responder_static_known: bool = False  # the initiator knows the responder's static key beforehand

    @property
    def has_psk(self) -> bool:
        """True if the pattern mixes in a pre-shared key. This also changes the meaning of the token
        `e` (Noise 9.2).
        """
        return any(NoiseToken.PSK in message for message in self.messages)


XK: Final = HandshakePattern(
    "XK",
    ((NoiseToken.E, NoiseToken.ES), (NoiseToken.E, NoiseToken.EE), (NoiseToken.S, NoiseToken.SE)),
    responder_static_known=True,
)
XKPSK3: Final = HandshakePattern(
    "XKpsk3",
    ((NoiseToken.E, NoiseToken.ES), (NoiseToken.E, NoiseToken.EE), (NoiseToken.S, NoiseToken.SE, NoiseToken.PSK)),
    responder_static_known=True,
)


@dataclass(frozen=True, slots=True)
class KeyPair:
    secret: bytes
    public: bytes

    @classmethod
    def from_secret(cls, secret: bytes) -> KeyPair:
        return cls(secret, bytes(crypto_scalarmult_base(secret)))

    @classmethod
    def generate(cls) -> KeyPair:
        return cls.from_secret(random_bytes(DH_LENGTH))

    def __repr__(self) -> str:
        return "KeyPair(…)"


def dh(secret: bytes, public: bytes) -> bytes:
    """Return the X25519 shared secret.

    Raises NoiseError if the result is all zero, which happens if `public` has a small order (Noise
    12.1, RFC 7748 6.1).
    """
    try:
        return bytes(crypto_scalarmult(secret, public))
    except (SodiumError, CryptoError):
        raise NoiseError("handshake failed") from None


class CipherState:
    """A key and its nonce counter for one direction (Noise 5.1). After a failure, every call fails."""

    __slots__ = ("_aead", "_key", "nonce")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._aead: ChaCha20Poly1305 | None = ChaCha20Poly1305(key)
        self.nonce = 0

    def encrypt(self, plaintext: bytes, ad: bytes | None = None) -> bytes:
        """Encrypt and authenticate (EncryptWithAd). Raises NoiseError if the key was deleted, or
        all nonces are used up.
        """
        if self._aead is None or self.nonce >= MAX_NONCE:
            raise NoiseError("cipher state is used up")
        ciphertext = self._aead.encrypt(_nonce(self.nonce), plaintext, ad)
        self.nonce += 1
        return ciphertext

    def decrypt(self, ciphertext: bytes, ad: bytes | None = None) -> bytes:
        """Verify and decrypt (DecryptWithAd).

        Raises NoiseError if the ciphertext is not authentic; then the key is deleted.
        """
        if self._aead is None or self.nonce >= MAX_NONCE:
            raise NoiseError("cipher state is used up")
        try:
            plaintext = self._aead.decrypt(_nonce(self.nonce), ciphertext, ad)
        except InvalidTag:
            self.kill()
            raise NoiseError("record is not authentic") from None
        self.nonce += 1
        return plaintext

    def rekey(self) -> None:
        """Replace the key by one derived from it (Rekey in Noise 4.2, 11.3). The nonce counter
        continues.
        """
        if self._aead is None:
            raise NoiseError("cipher state is used up")
        self._key = self._aead.encrypt(_nonce(MAX_NONCE), _ZEROS, None)[:32]
        self._aead = ChaCha20Poly1305(self._key)

    def kill(self) -> None:
        """Delete the key, so that every later call fails."""
        self._aead = None
        self._key = b""


class SymmetricState:
    """The chaining key, the handshake hash and the cipher of a handshake. Methods are named as in
    Noise 5.2.
    """

    def __init__(self, protocol_name: bytes, hash_name: str) -> None:
        self._new_hash: Callable[..., Any] = getattr(hashlib, hash_name.lower())
        self._length = int(self._new_hash().digest_size)
        padded = protocol_name.ljust(self._length, b"\0")
        self.h = padded if len(padded) == self._length else self._hash(protocol_name)
        self._ck = self.h
        self._cipher: CipherState | None = None

    def mix_key(self, material: bytes) -> None:
        self._ck, key = self._hkdf(material, 2)
        self._cipher = CipherState(key[:32])

    def mix_hash(self, data: bytes) -> None:
        self.h = self._hash(self.h + data)

    def mix_key_and_hash(self, material: bytes) -> None:
        """Mix a pre-shared key into the chaining key and the handshake hash (MixKeyAndHash, Noise
        9.2).
        """
        self._ck, temporary, key = self._hkdf(material, 3)
        self.mix_hash(temporary)
        self._cipher = CipherState(key[:32])

    @property
    def has_key(self) -> bool:
        """True once a key is set, so that payloads are encrypted."""
        return self._cipher is not None

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        ciphertext = plaintext if self._cipher is None else self._cipher.encrypt(plaintext, self.h)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        plaintext = ciphertext if self._cipher is None else self._cipher.decrypt(ciphertext, self.h)
        self.mix_hash(ciphertext)
        return plaintext

    def split(self) -> tuple[CipherState, CipherState]:
        """Return the cipher for each direction; the first encrypts what the initiator sends."""
        first, second = self._hkdf(b"", 2)
        return CipherState(first[:32]), CipherState(second[:32])

    def _hash(self, data: bytes) -> bytes:
        return bytes(self._new_hash(data).digest())

    def _hkdf(self, material: bytes, count: int) -> list[bytes]:
        temporary = hmac.digest(self._ck, material, self._hmac_name())
        outputs: list[bytes] = []
        last = b""
        for number in range(1, count + 1):
            last = hmac.digest(temporary, last + bytes([number]), self._hmac_name())
            outputs.append(last)
        return outputs

    def _hmac_name(self) -> str:
        return str(self._new_hash().name)


class HandshakeState:
    """An end of a handshake (Noise 5.3). The two ends send messages in turn; any failure is final."""

    def __init__(
        self,
        pattern: HandshakePattern,
        hash_name: str,
        *,
        initiator: bool,
        prologue: bytes = b"",
        static: KeyPair | None = None,
        remote_static: bytes | None = None,
        ephemeral: KeyPair | None = None,
        psks: tuple[bytes, ...] = (),
    ) -> None:
        """Start a handshake; `ephemeral` is for known answers only, by default a new key pair is
        generated.
        """
        name = f"Noise_{pattern.name}_25519_ChaChaPoly_{hash_name}"
        self._state = SymmetricState(name.encode(), hash_name)
        self._state.mix_hash(prologue)
        self._pattern = pattern
        self._initiator = initiator
        self._static = static
        self._ephemeral = ephemeral
        self._remote_ephemeral: bytes | None = None
        self._psks = list(psks)
        self._step = 0
        self._failed = False
        self.remote_static = remote_static
        own = static.public if static is not None else None
        for is_known, key in (
            (pattern.initiator_static_known, own if initiator else remote_static),
            (pattern.responder_static_known, remote_static if initiator else own),
        ):
            if is_known:
                self._state.mix_hash(_require(key))

    @property
    def is_finished(self) -> bool:
        return self._step == len(self._pattern.messages) and not self._failed

    @property
    def handshake_hash(self) -> bytes:
        """The hash of all handshake messages, which identifies the channel (Noise 11.2)."""
        return self._state.h

    def set_psk(self, psk: bytes) -> None:
        """Set the pre-shared key, at any time before the message that mixes it in."""
        self._psks = [psk]

    def write_message(self, payload: bytes = b"") -> bytes:
        """Return the next message that this end sends (WriteMessage)."""
        message = b"".join(self._write_token(token) for token in self._begin(writing=True))
        message += self._state.encrypt_and_hash(payload)
        return self._end(message)

    def read_message(self, message: bytes) -> bytes:
        """Return the payload of the peer's next message (ReadMessage).

        Raises NoiseError if the message is not authentic or not the expected one; then the
        handshake has failed.
        """
        rest = memoryview(message)
        try:
            for token in self._begin(writing=False):
                rest = rest[self._read_token(token, rest) :]
            payload = self._state.decrypt_and_hash(bytes(rest))
        except NoiseError:
            self._failed = True
            raise
        self._end(message)
        return payload

    def split(self) -> tuple[CipherState, CipherState]:
        """Return two ciphers: one to encrypt what this end sends, one to decrypt what it receives."""
        if not self.is_finished:
            raise NoiseError("handshake is not finished")
        first, second = self._state.split()
        return (first, second) if self._initiator else (second, first)

    def _begin(self, *, writing: bool) -> tuple[NoiseToken, ...]:
        if self._failed or self._step >= len(self._pattern.messages):
            raise NoiseError("handshake is over")
        ours = (self._step % 2 == 0) == self._initiator
        if ours is not writing:
            raise NoiseError("it is the other side's turn")
        return self._pattern.messages[self._step]

    def _end(self, message: bytes) -> bytes:
        if len(message) > MAX_MESSAGE:
            self._failed = True
            raise NoiseError("message is too long")
        self._step += 1
        return message

    def _write_token(self, token: NoiseToken) -> bytes:
        if token is NoiseToken.E:
            self._ephemeral = self._ephemeral or KeyPair.generate()
            self._mix_ephemeral(self._ephemeral.public)
            return self._ephemeral.public
        if token is NoiseToken.S:
            return self._state.encrypt_and_hash(_require(self._static).public)
        self._mix(token)
        return b""

    def _read_token(self, token: NoiseToken, rest: memoryview) -> int:
        if token not in (NoiseToken.E, NoiseToken.S):
            self._mix(token)
            return 0
        length = DH_LENGTH + (TAG_LENGTH if token is NoiseToken.S and self._state.has_key else 0)
        if len(rest) < length:
            raise NoiseError("handshake failed")
        field = bytes(rest[:length])
        if token is NoiseToken.E:
            self._remote_ephemeral = field
            self._mix_ephemeral(field)
        else:
            self.remote_static = self._state.decrypt_and_hash(field)
        return length

    def _mix_ephemeral(self, public: bytes) -> None:
        self._state.mix_hash(public)
        if self._pattern.has_psk:  # Noise 9.2: the ephemeral randomizes keys that come from the psk alone
            self._state.mix_key(public)

    def _mix(self, token: NoiseToken) -> None:
        if token is NoiseToken.PSK:
            if not self._psks:
                raise NoiseError("psk is missing")
            self._state.mix_key_and_hash(self._psks.pop(0))
            return
        first, second = token.value if self._initiator else reversed(token.value)
        own = self._ephemeral if first == "e" else self._static
        remote = self._remote_ephemeral if second == "e" else self.remote_static
        self._state.mix_key(dh(_require(own).secret, _require(remote)))


def _require(value: _T | None) -> _T:
    if value is None:
        raise NoiseError("a key that the pattern needs is missing")
    return value
