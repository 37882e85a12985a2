"""Encoding of roster entries: each entry has exactly one encoding, signed by a device (PROTOCOL.md
10.6).

`roster` checks that an entry may follow another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Self

from confide_crypto.errors import MalformedEntryError, OversizedRosterError
from confide_crypto.keys.identity import KEY_LENGTH, MAX_NAME, SIGNATURE_LENGTH, Identity, verify
from confide_crypto.sealing.encoding import Cursor, u32
from confide_crypto.sealing.space_keys import SPACE_ID_LENGTH, WRAP_KEY_LENGTH, WRAP_LENGTH, WrapKey

_VERSION: Final = 1
_ENTRY_LABEL: Final = b"confide/roster-entry/1"
_CARD_LABEL: Final = b"confide/device-card/1"
_HASH_PERSON: Final = b"confide-roster-1"
HASH_LENGTH: Final = 32
NO_HEAD: Final = bytes(HASH_LENGTH)
"""The hash of the previous entry in the first entry."""
CARD_LENGTH: Final = KEY_LENGTH + WRAP_KEY_LENGTH + SIGNATURE_LENGTH
MAX_EPOCHS: Final = 128
MAX_DEVICES: Final = 32
MAX_ENTRY_BYTES: Final = 160 * 1024
"""Bytes of an entry. A device added in epoch 128 gets as many wraps, 154 KB; all other entries are
far smaller.
"""
_MAX_NAME_BYTES: Final = 255


class RosterChange(IntEnum):
    GENESIS = 1
    """The first entry of a space, with one device."""
    ADD = 2
    REMOVE = 3
    ROTATE = 4
    """A new epoch for the same devices."""


@dataclass(frozen=True, slots=True)
class Card:
    """A device's two public keys: its signing key and its wrap key. The first signs the second, so
    comparing the words of the first (PROTOCOL.md 2.4) confirms both.
    """

    key: bytes  # Ed25519, 32 bytes: identifies the device, to the daemon too
    wrap_key: bytes  # X-Wing, 1216 bytes
    signature: bytes  # by `key` over `wrap_key`, 64 bytes

    @classmethod
    def of(cls, identity: Identity) -> Self:
        wrap_key = WrapKey(identity).public
        return cls(identity.public_key, wrap_key, identity.sign(_CARD_LABEL, wrap_key))

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse a card from 1312 bytes, without checking its signature. Raises ValueError if the
        length is wrong.
        """
        if len(data) != CARD_LENGTH:
            raise ValueError("a device card has another length")
        cursor = Cursor(data)
        return cls(cursor.take(KEY_LENGTH), cursor.take(WRAP_KEY_LENGTH), cursor.take(SIGNATURE_LENGTH))

    def encode(self) -> bytes:
        """Return the card as 1312 bytes."""
        return self.key + self.wrap_key + self.signature

    def verify(self) -> bool:
        """Return True if the device's signing key has signed its wrap key."""
        return verify(self.key, _CARD_LABEL, self.wrap_key, self.signature)


@dataclass(frozen=True, slots=True)
class Device:
    """A device on the roster, the list of a space's devices."""

    card: Card  # its public keys
    name: str  # for people, chosen by the user who added it
    is_paper: bool = False  # it is a recovery code (PROTOCOL.md 10.8)

    def __post_init__(self) -> None:
        is_control = any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in self.name)
        if is_control or not 1 <= len(self.name) <= MAX_NAME or len(self.name.encode()) > _MAX_NAME_BYTES:
            raise ValueError(f"a device's name has 1 to {MAX_NAME} characters, no control characters among them")

    @property
    def key(self) -> bytes:
        """The device's Ed25519 key, 32 bytes."""
        return self.card.key


@dataclass(frozen=True, slots=True)
class Wrap:
    """An epoch's key, encrypted to one device on the roster."""

    epoch: int  # epoch of the key
    device: bytes  # the Ed25519 key of the device, 32 bytes
    sealed: bytes  # the encrypted key, 1168 bytes


@dataclass(frozen=True, slots=True)
class RosterEntry:
    change: RosterChange  # kind of change
    space: bytes  # the space's id, 16 bytes
    number: int  # position in the chain, from 0
    previous: bytes  # the hash of the entry before it, 32 bytes; zeros in the first
    time: int  # seconds since 1970 by the signer's clock; only for people to read
    signer: bytes  # the Ed25519 key of the device that signs it
    device: Device | None  # the founder or the added device; None otherwise
    removed: bytes  # Ed25519 key of the removed device in a `REMOVE`; b"" otherwise
    commitment: bytes  # commitment to the new epoch's key, 32 bytes; b"" in an `ADD`, which has none
    wraps: tuple[Wrap, ...]  # the wrapped keys that it distributes
    signature: bytes = b""  # 64 bytes over all of the above

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse an entry, without checking its signature or its position.

        Raises OversizedRosterError if it is over `MAX_ENTRY_BYTES`; MalformedEntryError if it is
        malformed.
        """
        if len(data) > MAX_ENTRY_BYTES:
            raise OversizedRosterError(f"a roster entry has at most {MAX_ENTRY_BYTES} bytes")
        cursor = Cursor(data)
        try:
            entry = cls._read(cursor)
            cursor.end()
        except ValueError:
            raise MalformedEntryError("a roster entry is damaged, or of a kind this version does not know") from None
        return entry

    @classmethod
    def _read(cls, cursor: Cursor) -> Self:
        if cursor.number(1) != _VERSION:
            raise ValueError("another version")
        change = RosterChange(cursor.number(1))
        space, number, previous = cursor.take(SPACE_ID_LENGTH), cursor.number(4), cursor.take(HASH_LENGTH)
        if (change is RosterChange.GENESIS) != (number == 0) or (number == 0) != (previous == NO_HEAD):
            raise ValueError("only the first entry begins a space")
        time, signer = cursor.number(8), cursor.take(KEY_LENGTH)
        device = _read_device(cursor) if change in (RosterChange.GENESIS, RosterChange.ADD) else None
        removed = cursor.take(KEY_LENGTH) if change is RosterChange.REMOVE else b""
        commitment = b"" if change is RosterChange.ADD else cursor.take(HASH_LENGTH)
        count = cursor.number(2)
        wraps = tuple(Wrap(cursor.number(4), cursor.take(KEY_LENGTH), cursor.take(WRAP_LENGTH)) for _ in range(count))
        signature = cursor.take(SIGNATURE_LENGTH)
        return cls(change, space, number, previous, time, signer, device, removed, commitment, wraps, signature)

    def sign(self, identity: Identity) -> Self:
        """Return the entry with the signature of `identity`, which must be the signer that the
        entry names.
        """
        return replace(self, signature=identity.sign(_ENTRY_LABEL, self._body()))

    def verify(self) -> bool:
        """Return True if the entry has a valid signature by the signer that it names."""
        return verify(self.signer, _ENTRY_LABEL, self._body(), self.signature)

    def encode(self) -> bytes:
        """Return the entry as the bytes that are stored and sent."""
        return self._body() + self.signature

    def hash(self) -> bytes:
        """Return the hash of the entry, 32 bytes over body and signature. The next entry contains
        it, and devices remember it as their pin.
        """
        return hashlib.blake2b(self.encode(), person=_HASH_PERSON, digest_size=HASH_LENGTH).digest()

    def _body(self) -> bytes:
        return b"".join(
            (
                bytes([_VERSION, self.change]),
                self.space,
                u32(self.number),
                self.previous,
                self.time.to_bytes(8, "big"),
                self.signer,
                _device_bytes(self.device) if self.device else b"",
                self.removed,
                self.commitment,
                len(self.wraps).to_bytes(2, "big"),
                *(u32(wrap.epoch) + wrap.device + wrap.sealed for wrap in self.wraps),
            )
        )


def _device_bytes(device: Device) -> bytes:
    name = device.name.encode()
    return device.card.encode() + bytes([device.is_paper, len(name)]) + name


def _read_device(cursor: Cursor) -> Device:
    card, paper = Card.parse(cursor.take(CARD_LENGTH)), cursor.number(1)
    if paper > 1:
        raise ValueError("neither a device nor paper")
    return Device(card, cursor.take(cursor.number(1)).decode(), is_paper=bool(paper))
