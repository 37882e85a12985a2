"""Work that a device does when its space's roster changes. It answers the devices that it has
invited, removes those that were declared lost, and completes its own key rotation.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, PairingError, RequestError, RosterError
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.keys.private_files import read_private_file, remove_private_file, write_private_file
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import MAX_DEVICES, Card, Device
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_proxy import addons
from confide_proxy.devices import roster_client
from confide_proxy.devices.device_pairing import Invitation, Invitations
from confide_proxy.link.key_rotation import MachineKeys

log = logging.getLogger(__name__)

_KEY_CHANGE: Final = "succession.json"
_LOST: Final = "lost.json"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The record of an incomplete rotation of this device's key, written before the roster changes.

    Attributes:
        space: the id that the daemon gives the space.
        old, new: the Ed25519 public keys, one of which must leave the roster.
    """

    space: str
    old: bytes
    new: bytes

    @classmethod
    def read(cls, folder: Path, space: str) -> KeyChange | None:
        """Read the record of an incomplete rotation in a space; None without one. An unreadable
        record counts as none: the old key then visibly stays on the roster.
        """
        path = folder / _KEY_CHANGE
        if not path.exists():
            return None
        with suppress(ConfideError, ValueError, KeyError, TypeError):
            record = json.loads(read_private_file(path))
            found = cls(str(record["space"]), bytes.fromhex(record["old"]), bytes.fromhex(record["new"]))
            return found if found.space == space else None
        return None

    def write(self, folder: Path) -> None:
        """Write the record to the folder. Raises KeyFileError if that fails."""
        record = {"space": self.space, "old": self.old.hex(), "new": self.new.hex()}
        write_private_file(folder / _KEY_CHANGE, json.dumps(record).encode(), replace=True)

    def other(self, mine: bytes) -> bytes | None:
        """Return the key that must leave the roster if this device's key is `mine`; None if `mine`
        is neither the old nor the new key.
        """
        return {self.new: self.old, self.old: self.new}.get(mine)


@dataclass(frozen=True, slots=True)
class LostDevices:
    """The record of the devices that a person has declared lost while the daemon was unreachable.
    They are removed at the next connection.

    Attributes:
        folder: the folder of the roster cache.
    """

    folder: Path

    def of(self, space: bytes) -> list[bytes]:
        """Return the public keys of the lost devices of a space, by the id in its roster. Raises
        KeyFileError if the record cannot be read.
        """
        if not (self.folder / _LOST).exists():
            return []
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(read_private_file(self.folder / _LOST))
            if record["space"] == space.hex():
                return [bytes.fromhex(key) for key in record["keys"]][:MAX_DEVICES]
        return []

    def add(self, space: bytes, key: bytes) -> None:
        """Add a device to the record by its public key. Raises KeyFileError if it cannot be
        written.
        """
        self._keep(space, [*dict.fromkeys([*self.of(space), key])])

    def forget(self, space: bytes, gone: Collection[bytes]) -> None:
        """Delete devices from the record after their removal. Raises KeyFileError if it cannot be
        written.
        """
        self._keep(space, [key for key in self.of(space) if key not in gone])

    def _keep(self, space: bytes, keys: Sequence[bytes]) -> None:
        if not keys:
            remove_private_file(self.folder / _LOST)
            return
        record = {"space": space.hex(), "keys": [each.hex() for each in keys]}
        write_private_file(self.folder / _LOST, json.dumps(record).encode(), replace=True)


@dataclass(frozen=True, slots=True)
class Duties:
    """The work of this device that a change of its space's roster causes, over one connection.

    Attributes:
        folder: the folder of the roster cache.
        space: the id that the daemon gives the space.
        identity: this device's key pair.
        link: the connection to the daemon.
        extend: appends a change to the roster at the daemon, and returns the new roster
            (`Keyring.extend`).
    """

    folder: Path
    space: str
    identity: Identity
    link: RequestChannel
    extend: Callable[[RequestChannel, Callable[[Roster, SpaceKeys | None], Roster | None]], Awaitable[Roster]]

    async def answer(self, waiting: Iterable[roster_client.Joiner]) -> None:
        """Add those of the waiting devices that prove the secret of one of this device's invites,
        and send each its answer.

        Raises KeyFileError if an invite cannot be read or written; RequestError, ConnectionLost or
        TimeoutError if a request fails. Unfinished work is done at the next connection.
        """
        joiners = tuple(waiting)
        invitations = Invitations(self.folder)
        for invitation in await asyncio.to_thread(invitations.of, self.space, time.time()):
            await self._answer(invitations, invitation, joiners)

    async def remove_lost(self, space: bytes) -> None:
        """Remove the devices from the roster that were declared lost while the daemon was
        unreachable.

        Args:
            space: the id of the space in its roster.

        Raises KeyFileError if the record of lost devices cannot be read or written; RequestError,
        ConnectionLost or TimeoutError if a request fails. The others are removed at the next
        connection.
        """
        lost = LostDevices(self.folder)
        keys = await asyncio.to_thread(lost.of, space)
        for key in keys:

            def make(roster: Roster, held: SpaceKeys | None, key: bytes = key) -> Roster | None:
                device = roster.current(key)  # a thief may have changed its key meanwhile
                if held is None or device is None:
                    return None
                return roster.remove(self.identity, device.key, held, now=int(time.time()))[0]

            try:
                await self.extend(self.link, make)
            except (RequestError, RosterError) as error:
                if isinstance(error, RequestError) and error.code not in ("denied", "invalid"):
                    raise
                log.warning("a device that was declared lost cannot be removed: %s", error)
                return
            log.warning("removed a device that was declared lost: %s", fingerprint_words(key))
        if keys:
            await asyncio.to_thread(lost.forget, space, keys)

    async def _answer(
        self, invitations: Invitations, invitation: Invitation, joiners: tuple[roster_client.Joiner, ...]
    ) -> None:
        card = _card_of(invitation, joiners)
        if card is not None and not invitation.card_key:
            used_for = await asyncio.to_thread(invitations.used_for, invitation, card.key)
            invitation = replace(invitation, card_key=used_for or b"")
            card = card if used_for == card.key else None
        if not invitation.card_key:
            return

        def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
            if card is None or keys is None or card.key in roster.devices:
                return None
            try:
                return roster.add(self.identity, Device(card, invitation.name), keys, now=int(time.time()))
            except RosterError as error:  # it was removed, or the roster is full; sealing goes on
                log.warning("a device that this device has invited cannot be added: %s", error)
                return None

        try:
            roster = await self.extend(self.link, make)
        except RequestError as error:
            if error.code != "denied":
                raise
            # This device may have lost the right to write; sealing goes on, and another device can
            # approve the new one.
            log.warning("a device that this device has invited cannot be added: %s", error)
            return
        added = roster.devices.get(invitation.card_key)
        if added is not None:
            answer = invitation.pair.answer(added.card, roster)
            await roster_client.pair_answer(self.link, added.key, answer)
            log.info("added a device that this device has invited")
        if added is not None or invitation.until <= time.time():
            await asyncio.to_thread(invitations.forget, invitation)

    async def finish_key_change(self, machine: MachineKeys) -> None:
        """Complete a rotation of this device's key: remove the key that it no longer uses from the
        roster.

        Raises RosterError if the roster cannot be changed; RequestError, ConnectionLost or
        TimeoutError if a request fails. The next connection tries again.
        """
        change = await asyncio.to_thread(KeyChange.read, self.folder, self.space)
        if change is None:
            return
        with machine.hold_settled() as is_settled:
            if not is_settled:
                return
            mine, other = self.identity.public_key, change.other(self.identity.public_key)

            def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
                if keys is None or mine not in roster.devices or other is None or other not in roster.devices:
                    return None
                return roster.remove(self.identity, other, keys, now=int(time.time()))[0]

            if other is not None:
                # While both keys are on the roster: add-ons sign again what the other key signed.
                roster = await self.extend(self.link, _as_it_is)
                for on_change in await asyncio.to_thread(addons.each, "key_changed"):
                    await on_change(self.link, roster, self.identity, other)
            await self.extend(self.link, make)
            await asyncio.to_thread(remove_private_file, self.folder / _KEY_CHANGE)


def _as_it_is(_roster: Roster, _keys: SpaceKeys | None) -> None:
    """Change nothing, for `extend` to return the current roster."""


def are_due(folder: Path, space: str) -> bool:
    """Return True if this device may have work in a space, by its files: an open invite, a lost
    device, or an incomplete rotation of its key. Blocks.
    """
    is_inviting = bool(Invitations(folder).of(space, time.time()))
    return is_inviting or KeyChange.read(folder, space) is not None or (folder / _LOST).exists()


def _card_of(invitation: Invitation, joiners: tuple[roster_client.Joiner, ...]) -> Card | None:
    """Return the card of the first device that proved the invite's secret, or None."""
    for joiner in joiners:
        if joiner.request is None or invitation.card_key not in (b"", joiner.key):
            continue
        try:
            card = invitation.pair.read_request(joiner.request)
        except PairingError:
            continue
        if card.key == joiner.key:
            return card
    return None
