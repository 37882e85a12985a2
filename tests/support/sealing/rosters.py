"""Devices, spaces and roster entries for the tests of sealing: fixed seeds, and entries that a hostile device might sign."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device, RosterEntry
from confide_crypto.sealing.space_keys import SpaceKeys

LAPTOP: Final = Identity(bytes(range(32)))
DESKTOP: Final = Identity(bytes(range(33, 65)))
PHONE: Final = Identity(bytes(range(66, 98)))
STRANGER: Final = Identity(bytes(range(99, 131)))
SPACE: Final = bytes(range(200, 216))
KEYS: Final = SpaceKeys(SPACE, (bytes(range(160, 192)),))
NOW: Final = 1_800_000_000


def device(identity: Identity, name: str = "machine", *, is_paper: bool = False) -> Device:
    """As somebody adds it."""
    return Device(Card.of(identity), name, is_paper=is_paper)


def founded() -> tuple[Roster, SpaceKeys]:
    """A space with the laptop alone, in its first epoch."""
    return Roster.create(LAPTOP, "laptop", now=NOW, keys=KEYS)


def shared() -> tuple[Roster, SpaceKeys]:
    """A space with laptop and desktop, in its second epoch."""
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW + 1)
    return roster.rotate(DESKTOP, keys, now=NOW + 2)


def encoded(roster: Roster) -> list[bytes]:
    """The chain as a daemon keeps it."""
    return [entry.encode() for entry in roster.entries]


def resigned(entry: RosterEntry, by: Identity, **changes: Any) -> bytes:
    """The entry with something changed, signed by somebody who holds the key."""
    return replace(entry, **changes).sign(by).encode()


def flipped(data: bytes, bits: Iterable[int] | None = None) -> Iterator[bytes]:
    """`data` with one bit changed: each in turn, or those of `bits`."""
    number = int.from_bytes(data, "big")
    for bit in range(8 * len(data)) if bits is None else bits:
        yield (number ^ 1 << bit).to_bytes(len(data), "big")


def one_bit_a_byte(data: bytes) -> range:
    """Places of bits, a different one in each byte."""
    return range(0, 8 * len(data), 9)
