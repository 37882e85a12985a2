"""Machines of one space with folders of memory, as a session keeps them: real keys, files and connections, a daemon in this process."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from tests.support.daemon.loopback import Serving
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.devices import SPACE, Device

from confide_crypto.sealing import roster_entry
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_crypto.transport.open_channel import Connection
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.spaces.space import Space
from confide_proxy.config import Policy, ProxyConfig
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.ledger import SyncReport
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import Files

PROJECT = "shop"
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
OTHER = "ghp_" + "Z9y8X7w6V5u4" * 3


class Keeper:
    """One process of a machine with a link: its files, and what seals them."""

    def __init__(self, machine: SealedMachine, connection: Connection, sealing: SessionSealing, files: Files) -> None:
        self.machine = machine
        self.connection = connection
        self.sealing = sealing
        self.files = files
        self.space = ""

    async def sync(self, *, force: bool = False) -> SyncReport:
        """As `confide sync`."""
        return await self.files.compare(force=force)

    async def documents(self) -> dict[str, str]:
        """What the daemon has of the project, by path."""
        space = await self.machine.space_here(self.space)
        rows = await space.documents.following(frozenset((PROJECT,)), (PROJECT, ""), sources=None, limit=1000)
        return {row.path: (await space.documents.read(PROJECT, row.path)).text for row in rows}

    async def records(self) -> list[dict[str, Any]]:
        """The sealed records that the daemon lists."""
        body = {"after": "", "limit": 1000, "below": None}
        return list((await self.connection.request("record-list", body, timeout_s=DEADLINE_S))["records"])


class SealedMachine(Device):
    """A machine with a folder of memory."""

    def __init__(self, root: Path, serving: Serving, name: str, **secrets: Any) -> None:
        super().__init__(root, serving, name)
        self.root = root / name / "project"
        (self.root / "memory").mkdir(parents=True)
        self.policy = Policy(**secrets)
        self.options: dict[str, Any] = {}

    async def space_here(self, space_id: str) -> Space:
        """The space, as its daemon has it open."""
        return await self._serving.daemon.spaces.get(space_id)

    def at(self, serving: Serving, *, space: str = SPACE) -> Self:
        """The same machine, which has joined a space of another daemon instead; it is known there by the same key."""
        other = copy.copy(self)
        other._serving = serving
        before, now = (each.state.identity.static_key for each in (self._serving, serving))
        RosterCache(self.paths.rosters).record_daemon_change(before, now)
        serving.state.registry.add_caller(
            self.identity.public_key, Grants(self.name, "write", None, None), space=space, added_by="line"
        )
        return other

    @property
    def config(self) -> ProxyConfig:
        """What its user has chosen."""
        return ProxyConfig(secrets=self.policy, **self.options)

    @property
    def project(self) -> Project:
        """Its folder."""
        return Project(PROJECT, self.root, is_git=False)

    def write(self, path: str, text: str) -> None:
        """Save a file, as an editor does."""
        (self.root / path).write_text(text)

    def read(self, path: str) -> str:
        """A file as it is."""
        return (self.root / path).read_text()

    @asynccontextmanager
    async def running(self, *, watches: bool = False) -> AsyncIterator[Keeper]:
        """Connect, have the keys if that can be, and open the files."""
        config, daemon = self.config, self._serving
        sealing = SessionSealing(self.paths, config, MachineKeys(self.paths))
        files = Files(self.paths, config, self.project, sealing=sealing)
        connection = await daemon.connect_in_time(self.identity)

        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            return {} if op == "roster" else await files.on_request(op, body)

        async def on_message(_data: bytes) -> None:
            """No agent speaks here."""

        serve = asyncio.create_task(
            connection.serve(on_message=on_message, on_request=on_request, on_stream=files.on_stream)
        )
        try:
            body = {"machine": self.name, "proxyVersion": "0", "toolsets": ["core"], "watches": watches}
            answers = [
                await connection.request("attach", {"project": project, **body}, timeout_s=DEADLINE_S)
                for project in (PROJECT, "global")
            ]
            await sealing.open(connection, answers[0])
            await files.open(connection, str(answers[0]["space"]))
            keeper = Keeper(self, connection, sealing, files)
            keeper.space = str(answers[0]["space"])
            yield keeper
        finally:
            await connection.close()
            serve.cancel()
            await asyncio.gather(serve, return_exceptions=True)


async def approve(device: Device, newcomer: Device) -> None:
    """Add a machine to the space, as two people do who compare words."""
    keyring = await newcomer.visit()
    known = await device.visit()
    assert known.roster is not None
    async with device.connected() as link:
        await known.refresh(link)
        assert known.daemon_roster is not None
        card = next(one.card for one in known.daemon_roster.waiting if one.key == newcomer.identity.public_key)
        assert card is not None

        def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
            assert keys is not None
            return roster.add(device.identity, roster_entry.Device(card, newcomer.name), keys, now=int(time.time()))

        await known.extend(link, make)
        pin = known.roster.pin
    keyring = await newcomer.visit()
    async with newcomer.connected() as link:
        await keyring.confirm(link, pin)
    assert keyring.keys is not None
