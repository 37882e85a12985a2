"""The keys of a space: one for each epoch, the keys derived from them (PROTOCOL.md 10.2, 10.9), and
their encryption to devices, called wraps (10.5).

A wrap is an epoch's key encrypted to one device, by HPKE with X-Wing (RFC 9180,
draft-connolly-cfrg-xwing-kem). An untrusted daemon stores wraps for years, so a copy of them must
stay useless even to a later quantum computer.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from cryptography.exceptions import InvalidTag

from confide_crypto.errors import UnknownEpochError, WrapError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.encoding import join_labelled, join_parts, u32
from confide_crypto.sealing.placeholder import SECRET_ID_LENGTH

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey, Suite

KEY_LENGTH: Final = 32
SPACE_ID_LENGTH: Final = 16
FIRST_EPOCH: Final = 1
_ID_KEY_PERSON: Final = b"confide-id-key-1"
_SECRET_ID_PERSON: Final = b"confide-secret-1"
_RECORD_KEY_PERSON: Final = b"confide-record-1"
_COMMITMENT_PERSON: Final = b"confide-epoch-1"
_DATABASE_KEY_PERSON: Final = b"confide-dbkey-1"
_TIE_KEY_PERSON: Final = b"confide-ties-1"
_WRAP_SEED_PERSON: Final = b"confide-wrap-1"
_WRAP_INFO_LABEL: Final = b"confide/space-wrap/1"
_KEM_PUBLIC_LENGTH: Final = 1184
WRAP_KEY_LENGTH: Final = _KEM_PUBLIC_LENGTH + 32
WRAP_LENGTH: Final = 1088 + 32 + KEY_LENGTH + 16
"""X-Wing's ciphertext, the key, and a tag."""
_ANY_SCALAR: Final = bytes(31) + b"\x40"


@dataclass(frozen=True, slots=True)
class SpaceKeys:
    """The keys of all epochs of a space, from the first to the current. `repr` shows no key."""

    space: bytes  # the space's id, 16 bytes, made with its roster
    epochs: tuple[bytes, ...] = field(repr=False)  # the keys, 32 bytes each; that of epoch 1 is the first

    def __post_init__(self) -> None:
        if len(self.space) != SPACE_ID_LENGTH or not self.epochs:
            raise ValueError("a space has an id of 16 bytes and one epoch at least")
        if any(len(key) != KEY_LENGTH for key in self.epochs):
            raise ValueError("a space key has 32 bytes")

    @classmethod
    def generate(cls) -> Self:
        """Create the keys of a new space: its id, and the key of its first epoch."""
        return cls(secrets.token_bytes(SPACE_ID_LENGTH), (secrets.token_bytes(KEY_LENGTH),))

    def next_epoch(self) -> Self:
        """Return the keys with a new random one appended, for the next epoch. Encrypt nothing under
        it before a roster entry has distributed it to all devices.
        """
        return type(self)(self.space, (*self.epochs, secrets.token_bytes(KEY_LENGTH)))

    @property
    def epoch(self) -> int:
        """The number of the current epoch. All new records are encrypted with the key of this
        epoch.
        """
        return len(self.epochs)

    def key(self, epoch: int) -> bytes:
        """Return the key `K_e` of an epoch, 32 bytes. Raises UnknownEpochError if the key of that
        epoch is missing.
        """
        if not FIRST_EPOCH <= epoch <= self.epoch:
            raise UnknownEpochError(epoch)
        return self.epochs[epoch - FIRST_EPOCH]

    def secret_id(self, kind: str, value: bytes) -> bytes:
        """Return the id of a secret, 16 bytes. In one space, the same kind and value always have
        the same id. It reveals nothing without the space's keys.
        """
        id_key = hashlib.blake2b(key=self.epochs[0], person=_ID_KEY_PERSON, digest_size=KEY_LENGTH).digest()
        named = join_parts(kind.encode(), value)
        return hashlib.blake2b(named, key=id_key, person=_SECRET_ID_PERSON, digest_size=SECRET_ID_LENGTH).digest()

    def tie_key(self) -> bytes:
        """Return the key, 32 bytes, for the hashes of a project's files in notes (PROTOCOL.md
        10.2). It is the same for the life of the space.
        """
        return hashlib.blake2b(key=self.epochs[0], person=_TIE_KEY_PERSON, digest_size=KEY_LENGTH).digest()

    def record_key(self, epoch: int, secret_id: bytes) -> bytes:
        """Return the key that encrypts one secret in one epoch, 32 bytes. Raises UnknownEpochError
        if the key of that epoch is missing.
        """
        key = self.key(epoch)
        return hashlib.blake2b(secret_id, key=key, person=_RECORD_KEY_PERSON, digest_size=KEY_LENGTH).digest()

    def commitment(self, epoch: int) -> bytes:
        """Return the commitment to an epoch's key, 32 bytes, which its roster entry contains.

        It does not reveal the key, and proves to all devices that they got the same key. Raises
        UnknownEpochError if the key of that epoch is missing.
        """
        about = join_parts(self.space, u32(epoch))
        return hashlib.blake2b(about, key=self.key(epoch), person=_COMMITMENT_PERSON, digest_size=KEY_LENGTH).digest()

    def database_key(self, epoch: int) -> bytes:
        """Return the key, 32 bytes, that devices give to a daemon to open a space's database, if
        the space's devices and not the daemon keep that key (`caller` custody).

        Raises UnknownEpochError if the key of that epoch is missing.
        """
        about = join_parts(self.space, u32(epoch))
        return hashlib.blake2b(about, key=self.key(epoch), person=_DATABASE_KEY_PERSON, digest_size=KEY_LENGTH).digest()


class WrapKey:
    """A device's private key for decrypting wrapped epoch keys. It is derived from the seed of the
    device's identity, so no second secret has to be stored.
    """

    def __init__(self, identity: Identity) -> None:
        seed = hashlib.blake2b(key=identity.seed, person=_WRAP_SEED_PERSON, digest_size=32).digest()
        self.device = identity.public_key
        """The Ed25519 key of the device, 32 bytes."""
        self._private, self.public = expand(seed)

    def open(self, wrap: bytes, *, space: bytes, epoch: int, head: bytes) -> bytes:
        """Decrypt an epoch's key, 32 bytes.

        Args:
            wrap: the encrypted key, 1168 bytes.
            space: the space's id, 16 bytes.
            epoch: the epoch of the key.
            head: the hash, 32 bytes, of the roster entry before the one that carries the wrap.

        Raises WrapError if the wrap is for another device, space, epoch or position in the roster,
        or was changed.
        """
        try:
            key = bytes(_suite().decrypt(wrap, self._private, info=_wrap_info(space, epoch, self.device, head)))
        except InvalidTag:
            key = b""
        if len(key) != KEY_LENGTH:
            raise WrapError("a wrapped space key does not open with this device's key")
        return key


def expand(seed: bytes) -> tuple[MLKEM768X25519PrivateKey, bytes]:
    """Derive X-Wing's private key from a 32-byte seed; return it with the public key, 1216 bytes
    (section 5.2 of its draft).
    """
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey

    expanded = hashlib.shake_256(seed).digest(96)
    kem, dh = MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), X25519PrivateKey.from_private_bytes(expanded[64:])
    public = kem.public_key().public_bytes_raw() + dh.public_key().public_bytes_raw()
    return MLKEM768X25519PrivateKey(kem, dh), public


def seal_wrap(key: bytes, wrap_key: bytes, *, space: bytes, epoch: int, device: bytes, head: bytes) -> bytes:
    """Encrypt an epoch's key to one device, as 1168 bytes. The result differs each time.

    Args:
        key: the epoch's key, 32 bytes.
        wrap_key: the device's public wrap key, 1216 bytes.
        space: the space's id, 16 bytes.
        epoch: the epoch of the key.
        device: the device's Ed25519 key, 32 bytes.
        head: the hash, 32 bytes, of the roster entry before the one that will carry the wrap.

    Raises WrapError if `wrap_key` is not a valid key.
    """
    return bytes(_suite().encrypt(key, _wrap_public(wrap_key), info=_wrap_info(space, epoch, device, head)))


def check_wrap_key(wrap_key: bytes) -> None:
    """Check that epoch keys can be encrypted to this public key. An invalid one on the roster would
    block every later change of epoch.

    Raises WrapError if the length is wrong, or one of its two halves is not a valid key.
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
    return join_labelled(_WRAP_INFO_LABEL, space, u32(epoch), device, head)
