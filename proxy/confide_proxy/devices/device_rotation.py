"""This machine's new key: made, put on the space's list of devices, and told to the daemon (PROTOCOL.md 7.10).

The machine stays one device of its space: the old key adds the new, the new removes the old (10.6). A note of both is on the disk before
the roster is touched. Whichever of the two the machine has when it is settled removes the other, so that a rotation that was cut short,
or that never happened, leaves one device as well.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.handshake.rotation import sign_rotation
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_memory.wire.session import ROTATE
from confide_proxy.config import ProxyConfig
from confide_proxy.devices.duties import KeyChange
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.devices.space_connection import SpaceConnection
from confide_proxy.errors import KeyChangeError
from confide_proxy.link import device_identity as identities
from confide_proxy.link.device_identity import Form, Stored
from confide_proxy.link.key_rotation import MachineKeys, exclusive
from confide_proxy.paths import ProxyPaths

REQUEST_DEADLINE_S: Final = 10.0
_LOCK_DEADLINE_S: Final = 2.0


async def rotate(paths: ProxyPaths, config: ProxyConfig, *, passphrase: str | None = None) -> tuple[bytes, bytes]:
    """Give this machine a new key, in the form of the old one. Returns the old and the new Ed25519 public key.

    `passphrase`: seals the new key, and opens the old one; needed where the old one is sealed.

    Raises:
        KeyChangeError: another process changes the key, or the new key is not in force yet; a later connection finishes that.
        PassphraseError: it does not open the old key.
        RequestError: the daemon refuses the new key.
        RosterError: the daemon shows a list of devices that is not to be believed, so the new key cannot be put on it.
        Whatever `open_connection` raises.
    """
    keys = MachineKeys(paths, passphrase=passphrase, is_locked=True)
    with exclusive(paths, wait_s=_LOCK_DEADLINE_S):
        async with SpaceConnection.open(paths, config, machine=keys) as space:
            stored = await asyncio.to_thread(keys.held)
            if stored.following is not None:
                raise KeyChangeError(
                    "an earlier rotation could not be finished",
                    hint="confide device key show tells where the keys are; is the disk full?",
                )
            # Before there is a next key again: the note of an earlier change is needed until its key has left the list of devices.
            with suppress(RequestError):
                await space.keyring.refresh(space.connection)
            is_open = await asyncio.to_thread(KeyChange.read, paths.rosters, space.keyring.space)
            if is_open is not None and space.keyring.keys is not None:
                raise KeyChangeError(
                    "the key of an earlier rotation is still on the list of devices", hint="confide status tries again"
                )
            old = await asyncio.to_thread(stored.current.open, passphrase)
            new = Identity.generate()
            await asyncio.to_thread(_prepare, paths, stored.current, new, passphrase)
            # Before the daemon hears of it: from then on the old key cannot connect, and without it nobody could add the new one.
            await prepare_roster(paths.rosters, space.keyring, space.connection, old, new, now=int(time.time()))
            body = sign_rotation(old, new, space.connection.session_id)
            await ROTATE.ask(
                space.connection,
                {"key": body["key"], "old": body["old"], "new": body["new"]},
                timeout_s=REQUEST_DEADLINE_S,
            )
        async with SpaceConnection.open(paths, config, machine=keys) as space:
            # Else the next connection takes the old key from the list of devices.
            with suppress(ConfideError, TimeoutError):
                await space.keyring.refresh(space.connection)
        if (await asyncio.to_thread(keys.held)).public_keys != (new.public_key, None):
            raise KeyChangeError(
                "the daemon has the new key, but this device does not use it yet", hint="confide status tries again"
            )
    return old.public_key, new.public_key


def _prepare(paths: ProxyPaths, current: Stored, new: Identity, passphrase: str | None) -> None:
    """Have the next key on the disk, and unlocked for as long as the current one: sessions come back with it by themselves."""
    if current.form is Form.PASSPHRASE and (found := identities.find_unlocked(current.public_key)):
        identities.keep_unlocked(new, found.until)
    identities.write(paths.next_identity, new, current.form, passphrase=passphrase)


async def prepare_roster(
    folder: Path, keyring: Keyring, link: RequestChannel, old: Identity, new: Identity, *, now: int
) -> None:
    """Have the new key on the roster, if the old one is, before the daemon hears of it.

    Raises:
        Whatever `Keyring.extend` raises; nothing has happened to this machine's key then.
    """
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
