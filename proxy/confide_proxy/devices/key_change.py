"""A machine that changes its key stays one device of its space: the old key adds the new, the new removes the old (PROTOCOL.md 10.6).

A note of both is on the disk before the roster is touched. Whichever of the two the machine has when it is settled removes the other, so
that a rotation that was cut short, or that never happened, leaves one device as well.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.private import read_private_file, remove_private_file, write_private_file

if TYPE_CHECKING:
    from confide_crypto.keys import Identity
    from confide_crypto.sealing.roster import Roster
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_proxy.sealing.keyring import Keyring
    from confide_proxy.sealing.requests import Asks

_NOTE: Final = "succession.json"


@dataclass(frozen=True, slots=True)
class Succession:
    """Two Ed25519 keys of this machine, of which one is to leave the roster of a space."""

    space: str
    old: bytes
    new: bytes

    def other(self, mine: bytes) -> bytes | None:
        """The one that leaves, where this machine has `mine`; None: it has neither."""
        return {self.new: self.old, self.old: self.new}.get(mine)


def read(folder: Path, space: str) -> Succession | None:
    """The one that is not finished in this space. One that cannot be read counts as none: the old key then stays on the roster, visibly."""
    path = folder / _NOTE
    if not path.exists():
        return None
    with suppress(ConfideError, ValueError, KeyError, TypeError):
        record = json.loads(read_private_file(path))
        found = Succession(str(record["space"]), bytes.fromhex(record["old"]), bytes.fromhex(record["new"]))
        return found if found.space == space else None
    return None


def forget(folder: Path) -> None:
    """It is finished. Raises KeyFileError."""
    remove_private_file(folder / _NOTE)


async def prepare(folder: Path, keyring: Keyring, link: Asks, old: Identity, new: Identity, *, now: int) -> None:
    """Have the new key on the roster, if the old one is, before the daemon hears of it.

    Raises:
        Whatever `Keyring.extend` raises; nothing has happened to this machine's key then.
    """
    from confide_crypto.sealing.entries import Card, Device
    from confide_proxy.sealing.cached_roster import RosterCache

    try:
        await keyring.refresh(link)
    except RequestError:
        if RosterCache(folder).last() is not None:
            raise
        return  # a daemon that knows no devices
    if keyring.keys is None:
        return
    note = {"space": keyring.space, "old": old.public_key.hex(), "new": new.public_key.hex()}
    write_private_file(folder / _NOTE, json.dumps(note).encode(), replace=True)

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        name = roster.devices[old.public_key].name
        return roster.add(old, Device(Card.of(new), name), keys, now=now) if keys else None

    await keyring.extend(link, make)
