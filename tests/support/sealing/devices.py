"""Machines of one space, as their keyrings see it: real keys and files, real connections to a daemon in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Serving
from tests.support.deadline import DEADLINE_S

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.transport.open_channel import Connection, connect
from confide_daemon.access.enrolled_callers import Grants
from confide_proxy.devices.device_pairing import Invitation, Invitations
from confide_proxy.devices.keyring import Keyring
from confide_proxy.link.daemon import KnownDaemon, save_pin
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths

SPACE = "home"


class Device:
    """One machine: its folder, and a keyring as often as it is started."""

    def __init__(self, root: Path, serving: Serving, name: str, **rights: Any) -> None:
        self.paths = ProxyPaths(root / name / "proxy.toml", root / name / "proxy", root / name / "g", root / name / "d")
        self.name = name
        self._serving = serving
        self.news = asyncio.Event()
        identity = serving.enroll(name, space=SPACE, **rights)
        identity.save(self.paths.identity)

    @property
    def identity(self) -> Identity:
        """Its key."""
        return Identity.load(self.paths.identity)

    def take_in_again(self) -> None:
        """Have access again after a removal: the operator, or an older copy of the daemon, lets it in."""
        registry = self._serving.state.registry
        registry.add_caller(self.identity.public_key, Grants(self.name), space=SPACE, added_by="line")

    def keyring(self) -> Keyring:
        """That of a process that has just started."""
        return Keyring(self.paths, MachineKeys(self.paths))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """A connection that is served."""
        connection = await connect(self._serving.url, self.identity, self._serving.state.identity.static_key)

        async def on_request(_op: str, _body: dict[str, Any]) -> dict[str, Any]:
            self.news.set()
            return {}

        async def on_message(_data: bytes) -> None:
            """No agent speaks here."""

        serve = asyncio.create_task(connection.serve(on_message=on_message, on_request=on_request))
        try:
            yield connection
        finally:
            await connection.close()
            serve.cancel()
            await asyncio.gather(serve, return_exceptions=True)

    async def attach(self, connection: Connection) -> dict[str, Any]:
        """The answer to `attach`."""
        body = {"project": "p", "machine": self.name, "proxyVersion": "0", "toolsets": ["core"], "watches": False}
        answer: dict[str, Any] = await connection.request("attach", body, timeout_s=DEADLINE_S)
        return answer

    async def visit(self) -> Keyring:
        """Connect as a session does, have the keys, and leave again."""
        keyring = self.keyring()
        async with self.connected() as connection:
            await keyring.open(connection, await self.attach(connection))
        return keyring

    def invite(self, space: str, name: str, until: float) -> DeviceInvite:
        """Make a device's invite without the daemon, which has enrolled everybody already."""
        made = DeviceInvite.new(bytes(32), "confide://h:1")
        Invitations(self.paths.rosters).keep(Invitation(space, name, made.pair, until))
        return made

    def take(self, invite: DeviceInvite) -> None:
        """Have joined with it."""
        secret = (invite.pair.invite_id, invite.pair.secret)
        save_pin(self.paths.link, KnownDaemon(self._serving.url, bytes(32), pair=secret))
