"""A machine that changes its key stays one device of its space: the old key adds the new, the new removes the old (PROTOCOL.md 10.6).

A note of both is on the disk before the roster is touched. Whichever of the two the machine has when it is settled removes the other, so
that a rotation that was cut short, or that never happened, leaves one device as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from confide_crypto.errors import RequestError

if TYPE_CHECKING:
    from confide_crypto.keys.identity import Identity
    from confide_crypto.sealing.roster import Roster
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_memory.wire.document_body import Asks
    from confide_proxy.devices.keyring import Keyring


async def prepare(folder: Path, keyring: Keyring, link: Asks, old: Identity, new: Identity, *, now: int) -> None:
    """Have the new key on the roster, if the old one is, before the daemon hears of it.

    Raises:
        Whatever `Keyring.extend` raises; nothing has happened to this machine's key then.
    """
    from confide_crypto.sealing.roster_entry import Card, Device
    from confide_proxy.devices.duties import KeyChange
    from confide_proxy.devices.roster_cache import RosterCache

    try:
        await keyring.refresh(link)
    except RequestError:
        if RosterCache(folder).last() is not None:
            raise
        return  # a daemon that knows no devices
    if keyring.keys is None:
        return
    KeyChange(keyring.space, old.public_key, new.public_key).write(folder)

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        name = roster.devices[old.public_key].name
        return roster.add(old, Device(Card.of(new), name), keys, now=now) if keys else None

    await keyring.extend(link, make)
