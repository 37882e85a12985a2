"""The keys of a space: one for each epoch, and what is derived from them (PROTOCOL.md 10.2, 10.9)."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final, Self

from confide_crypto.sealing.encoding import joined, u32
from confide_crypto.sealing.errors import UnknownEpochError

KEY_LENGTH: Final = 32
SPACE_ID_LENGTH: Final = 16
SECRET_ID_LENGTH: Final = 16
FIRST_EPOCH: Final = 1
_ID_KEY_PERSON: Final = b"confide-id-key-1"
_SECRET_ID_PERSON: Final = b"confide-secret-1"
_RECORD_KEY_PERSON: Final = b"confide-record-1"
_COMMITMENT_PERSON: Final = b"confide-epoch-1"
_DATABASE_KEY_PERSON: Final = b"confide-dbkey-1"


@dataclass(frozen=True, slots=True)
class SpaceKeys:
    """All epochs' keys of a space, from the first to the present one. The repr shows none.

    Attributes:
        space: the space's id, 16 bytes, made with its roster.
        epochs: the keys, 32 bytes each; that of epoch 1 is the first.
    """

    space: bytes
    epochs: tuple[bytes, ...] = field(repr=False)

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
        """`K_e`, 32 bytes.

        Raises:
            UnknownEpochError: it is not among these.
        """
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
