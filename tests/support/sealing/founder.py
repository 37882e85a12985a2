"""A machine that is a device of its space, as far as a daemon sees one: it makes roster entries and hands over database keys."""

from __future__ import annotations

import base64
import time
from typing import Any

from tests.support.daemon.loopback import Machine

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, RosterEntry
from confide_crypto.sealing.roster_entry import Device as RosterDevice


class Device:
    """The founder of a space's roster, who knows all of its keys."""

    def __init__(self, identity: Identity, name: str = "laptop") -> None:
        self.identity = identity
        self.roster, self.keys = Roster.create(identity, name, now=int(time.time()))

    def database_keys(self, *epochs: int) -> dict[str, str]:
        """As `unlock` takes them; of all epochs where none is named."""
        wanted = epochs or range(1, self.keys.epoch + 1)
        return {str(epoch): base64.b64encode(self.keys.database_key(epoch)).decode() for epoch in wanted}

    async def found(self, machine: Machine) -> None:
        """Bring the first entry."""
        await self._bring(machine, self.roster.entries[0])

    async def add(self, machine: Machine, other: Identity, name: str) -> None:
        """Put another machine on the roster."""
        device = RosterDevice(Card.of(other), name)
        self.roster = self.roster.add(self.identity, device, self.keys, now=int(time.time()))
        await self._bring(machine, self.roster.entries[-1])

    async def rotate(self, machine: Machine) -> None:
        """Begin a new epoch."""
        self.roster, self.keys = self.roster.rotate(self.identity, self.keys, now=int(time.time()))
        await self._bring(machine, self.roster.entries[-1])

    async def unlock(self, machine: Machine, *epochs: int) -> bool:
        """Hand over database keys; whether the space is still locked."""
        answer = await machine.request("unlock", {"keys": self.database_keys(*epochs)})
        return bool(answer["isLocked"])

    async def _bring(self, machine: Machine, entry: RosterEntry) -> dict[str, Any]:
        return await machine.request("extend", {"entry": base64.b64encode(entry.encode()).decode()})
