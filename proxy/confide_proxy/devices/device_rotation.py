"""Rotation of this device's key: create a new key, add it to the space's roster, and send it to the
daemon (PROTOCOL.md 7.10).

The old key adds the new one to the roster, and the new one removes the old one, so that the space
counts one device as before (10.6). Both keys are recorded on disk before the roster changes. After
an interrupted or failed rotation, the key that this device has in the end removes the other one.
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
    """Give this device a new key, stored in the same form as the old one. Return the old and the
    new Ed25519 public key.

    Args:
        passphrase: opens the old key and protects the new one; needed only if the old one has a
            passphrase.

    Raises:
        KeyChangeError: another process is changing the key, or the new key isn't in use yet. In the
            second case a later connection completes the rotation.
        PassphraseError: the passphrase doesn't open the old key.
        RequestError: the daemon refuses the new key.
        RosterError: the daemon's roster fails verification, so the new key cannot be added.
        Errors of `open_connection`.
    """
    keys = MachineKeys(paths, passphrase=passphrase, is_locked=True)
    with exclusive(paths, wait_s=_LOCK_DEADLINE_S):
        async with SpaceConnection.open(paths, config, machine=keys) as space:
            stored = await asyncio.to_thread(keys.read_keys)
            if stored.following is not None:
                raise KeyChangeError(
                    "an earlier rotation could not be finished",
                    hint="confide device key show prints where the keys are; is the disk full?",
                )
            # Before creating another key: the record of an earlier rotation is needed until its key
            # has left the roster.
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
            # Before the daemon gets the new key: from then on the old key cannot connect, and only
            # the old key can add the new one.
            await prepare_roster(paths.rosters, space.keyring, space.connection, old, new, now=int(time.time()))
            body = sign_rotation(old, new, space.connection.session_id)
            await ROTATE.ask(
                space.connection,
                {"key": body["key"], "old": body["old"], "new": body["new"]},
                timeout_s=REQUEST_DEADLINE_S,
            )
        async with SpaceConnection.open(paths, config, machine=keys) as space:
            # Otherwise the next connection removes the old key from the roster.
            with suppress(ConfideError, TimeoutError):
                await space.keyring.refresh(space.connection)
        if (await asyncio.to_thread(keys.read_keys)).public_keys != (new.public_key, None):
            raise KeyChangeError(
                "the daemon has the new key, but this device does not use it yet", hint="confide status tries again"
            )
    return old.public_key, new.public_key


def _prepare(paths: ProxyPaths, current: Stored, new: Identity, passphrase: str | None) -> None:
    """Write the next key to disk, and keep it unlocked as long as the current one, so that running
    sessions can reconnect.
    """
    if current.form is Form.PASSPHRASE and (found := identities.find_unlocked(current.public_key)):
        identities.keep_unlocked(new, found.until)
    identities.write(paths.next_identity, new, current.form, passphrase=passphrase)


async def prepare_roster(
    folder: Path, keyring: Keyring, link: RequestChannel, old: Identity, new: Identity, *, now: int
) -> None:
    """Add the new key to the roster if the old key is on it.

    Raises the errors of `Keyring.extend`; this device's key is unchanged then.
    """
    try:
        await keyring.refresh(link)
    except RequestError:
        if RosterCache(folder).last() is not None:
            raise
        return  # the daemon doesn't support rosters
    if keyring.keys is None:
        return
    KeyChange(keyring.space, old.public_key, new.public_key).write(folder)

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        name = roster.devices[old.public_key].name
        return roster.add(old, Device(Card.of(new), name), keys, now=now) if keys else None

    await keyring.extend(link, make)
