"""Wraps: an epoch's key sealed to one device, by HPKE with X-Wing (PROTOCOL.md 10.5; RFC 9180, draft-connolly-cfrg-xwing-kem).

They lie for years in a store that nobody trusts, so a recording of them must be of no use to a later quantum computer either.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Final

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.encoding import labelled, u32
from confide_crypto.sealing.errors import WrapError
from confide_crypto.sealing.space_keys import KEY_LENGTH

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey, Suite

_SEED_PERSON: Final = b"confide-wrap-1"
_INFO_LABEL: Final = b"confide/space-wrap/1"
_KEM_PUBLIC_LENGTH: Final = 1184
WRAP_KEY_LENGTH: Final = _KEM_PUBLIC_LENGTH + 32
WRAP_LENGTH: Final = 1088 + 32 + KEY_LENGTH + 16
"""X-Wing's ciphertext, the key, and a tag."""
_ANY_SCALAR: Final = bytes(31) + b"\x40"


class WrapKey:
    """A device's private wrap key. Derived from its identity's seed, so there is no second thing to keep (PROTOCOL.md 10.5)."""

    def __init__(self, identity: Identity) -> None:
        seed = hashlib.blake2b(key=identity.seed, person=_SEED_PERSON, digest_size=32).digest()
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

        Raises:
            WrapError: it is for another device, or was made for another space, epoch or place in the roster, or was changed.
        """
        from cryptography.exceptions import InvalidTag

        try:
            key = bytes(_suite().decrypt(wrap, self._private, info=_info(space, epoch, self.device, head)))
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

    Raises:
        WrapError: nothing can be wrapped to that key.
    """
    return bytes(_suite().encrypt(key, _public(wrap_key), info=_info(space, epoch, device, head)))


def check_wrap_key(wrap_key: bytes) -> None:
    """Check that something can be wrapped to this key: a device with one that cannot be used would stop every later change of epoch.

    Raises:
        WrapError: it has another length, or one of its halves is not a good key of its kind.
    """
    _public(wrap_key)


def _public(wrap_key: bytes) -> MLKEM768X25519PublicKey:
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


def _info(space: bytes, epoch: int, device: bytes, head: bytes) -> bytes:
    return labelled(_INFO_LABEL, space, u32(epoch), device, head)
