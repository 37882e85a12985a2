"""The keys of a space: one for each epoch, what is derived from them (PROTOCOL.md 10.2, 10.9), and each wrapped for a device (10.5).

A wrap is an epoch's key sealed to one device, by HPKE with X-Wing (RFC 9180, draft-connolly-cfrg-xwing-kem). Wraps lie for years in a
store that nobody trusts, so a recording of them must be of no use to a later quantum computer either.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from confide_crypto.errors import UnknownEpochError, WrapError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.encoding import joined, labelled, u32

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey, Suite

KEY_LENGTH: Final = 32
SPACE_ID_LENGTH: Final = 16
SECRET_ID_LENGTH: Final = 16
FIRST_EPOCH: Final = 1
_ID_KEY_PERSON: Final = b"confide-id-key-1"
_SECRET_ID_PERSON: Final = b"confide-secret-1"
_RECORD_KEY_PERSON: Final = b"confide-record-1"
_COMMITMENT_PERSON: Final = b"confide-epoch-1"
_DATABASE_KEY_PERSON: Final = b"confide-dbkey-1"
_WRAP_SEED_PERSON: Final = b"confide-wrap-1"
_WRAP_INFO_LABEL: Final = b"confide/space-wrap/1"
_KEM_PUBLIC_LENGTH: Final = 1184
WRAP_KEY_LENGTH: Final = _KEM_PUBLIC_LENGTH + 32
WRAP_LENGTH: Final = 1088 + 32 + KEY_LENGTH + 16
"""X-Wing's ciphertext, the key, and a tag."""
_ANY_SCALAR: Final = bytes(31) + b"\x40"


@dataclass(frozen=True, slots=True)
class SpaceKeys:
    """All epochs' keys of a space, from the first to the present one. The repr shows none."""

    space: bytes  # the space's id, 16 bytes, made with its roster
    epochs: tuple[bytes, ...] = field(repr=False)  # the keys, 32 bytes each; that of epoch 1 is the first

    def __post_init__(self) -> None:
        if len(self.space) != SPACE_ID_LENGTH or not self.epochs:
            raise ValueError("a space has an id of 16 bytes and one epoch at least")
        if any(len(key) != KEY_LENGTH for key in self.epochs):
            raise ValueError("a space key has 32 bytes")

    @classmethod
    def generate(cls) -> Self:
        """A new space: its id, and the key of its first epoch."""
        return cls(secrets.token_bytes(SPACE_ID_LENGTH), (secrets.token_bytes(KEY_LENGTH),))

    def next_epoch(self) -> Self:
        """The same with a fresh key behind the others. Nothing is sealed under it before a roster entry has brought it to all devices."""
        return type(self)(self.space, (*self.epochs, secrets.token_bytes(KEY_LENGTH)))

    @property
    def epoch(self) -> int:
        """The present epoch, under which everything new is sealed."""
        return len(self.epochs)

    def key(self, epoch: int) -> bytes:
        """`K_e`, 32 bytes. Raises UnknownEpochError: it is not among these."""
        if not FIRST_EPOCH <= epoch <= self.epoch:
            raise UnknownEpochError(epoch)
        return self.epochs[epoch - FIRST_EPOCH]

    def secret_id(self, kind: str, value: bytes) -> bytes:
        """The name of a secret, 16 bytes: the same for the same value as long as the space lives. Says nothing to who lacks its keys."""
        id_key = hashlib.blake2b(key=self.epochs[0], person=_ID_KEY_PERSON, digest_size=KEY_LENGTH).digest()
        named = joined(kind.encode(), value)
        return hashlib.blake2b(named, key=id_key, person=_SECRET_ID_PERSON, digest_size=SECRET_ID_LENGTH).digest()

    def record_key(self, epoch: int, secret_id: bytes) -> bytes:
        """What one secret is sealed with in one epoch, 32 bytes. Raises as `key`."""
        key = self.key(epoch)
        return hashlib.blake2b(secret_id, key=key, person=_RECORD_KEY_PERSON, digest_size=KEY_LENGTH).digest()

    def commitment(self, epoch: int) -> bytes:
        """What a roster entry says of the key that it brings, 32 bytes: tells nobody the key, and all devices that they got the same.

        Raises as `key`.
        """
        about = joined(self.space, u32(epoch))
        return hashlib.blake2b(about, key=self.key(epoch), person=_COMMITMENT_PERSON, digest_size=KEY_LENGTH).digest()

    def database_key(self, epoch: int) -> bytes:
        """What a caller hands to a daemon that keeps the space's database under its callers' custody, 32 bytes. Raises as `key`."""
        about = joined(self.space, u32(epoch))
        return hashlib.blake2b(about, key=self.key(epoch), person=_DATABASE_KEY_PERSON, digest_size=KEY_LENGTH).digest()


class WrapKey:
    """A device's private wrap key. Derived from its identity's seed, so there is no second thing to keep."""

    def __init__(self, identity: Identity) -> None:
        seed = hashlib.blake2b(key=identity.seed, person=_WRAP_SEED_PERSON, digest_size=32).digest()
        self.device = identity.public_key
        """The Ed25519 key of the device, 32 bytes."""
        self._private, self.public = expand(seed)

    def open(self, wrap: bytes, *, space: bytes, epoch: int, head: bytes) -> bytes:
        """The epoch's key, 32 bytes.

        Args:
            wrap: 1168 bytes.
            space: the space's id, 16 bytes.
            epoch: whose key it is.
            head: the hash, 32 bytes, that the entry with this wrap names as the one before it.

        Raises WrapError: it is for another device, or was made for another space, epoch or place in the roster, or was changed.
        """
        from cryptography.exceptions import InvalidTag

        try:
            key = bytes(_suite().decrypt(wrap, self._private, info=_wrap_info(space, epoch, self.device, head)))
        except InvalidTag:
            key = b""
        if len(key) != KEY_LENGTH:
            raise WrapError("a wrapped space key does not open with this machine's key")
        return key


def expand(seed: bytes) -> tuple[MLKEM768X25519PrivateKey, bytes]:
    """X-Wing's key pair of a 32-byte seed: the private key, and the public one as 1216 bytes (its draft, 5.2)."""
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey

    expanded = hashlib.shake_256(seed).digest(96)
    kem, dh = MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), X25519PrivateKey.from_private_bytes(expanded[64:])
    public = kem.public_key().public_bytes_raw() + dh.public_key().public_bytes_raw()
    return MLKEM768X25519PrivateKey(kem, dh), public


def seal_wrap(key: bytes, wrap_key: bytes, *, space: bytes, epoch: int, device: bytes, head: bytes) -> bytes:
    """An epoch's key for one device, 1168 bytes; never the same twice.

    Args:
        key: the epoch's key, 32 bytes.
        wrap_key: the device's public wrap key, 1216 bytes.
        space: the space's id, 16 bytes.
        epoch: whose key it is.
        device: the device's Ed25519 key, 32 bytes.
        head: the hash, 32 bytes, of the entry before the one that will carry the wrap.

    Raises WrapError: nothing can be wrapped to that key.
    """
    return bytes(_suite().encrypt(key, _wrap_public(wrap_key), info=_wrap_info(space, epoch, device, head)))


def check_wrap_key(wrap_key: bytes) -> None:
    """Check that something can be wrapped to this key: a device with one that cannot be used would stop every later change of epoch.

    Raises WrapError: it has another length, or one of its halves is not a good key of its kind.
    """
    _wrap_public(wrap_key)


def _wrap_public(wrap_key: bytes) -> MLKEM768X25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PublicKey

    try:
        kem = MLKEM768PublicKey.from_public_bytes(wrap_key[:_KEM_PUBLIC_LENGTH])
        dh = X25519PublicKey.from_public_bytes(wrap_key[_KEM_PUBLIC_LENGTH:])
        X25519PrivateKey.from_private_bytes(_ANY_SCALAR).exchange(
            dh
        )  # a point of small order gives zero with every scalar
    except ValueError:
        raise WrapError("a device's wrap key is not one") from None
    return MLKEM768X25519PublicKey(kem, dh)


@cache
def _suite() -> Suite:
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def _wrap_info(space: bytes, epoch: int, device: bytes, head: bytes) -> bytes:
    return labelled(_WRAP_INFO_LABEL, space, u32(epoch), device, head)
