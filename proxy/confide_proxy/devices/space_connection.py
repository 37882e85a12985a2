"""A connection for requests about a space's devices. It attaches no session, so it works while the
space is locked, and without the space's keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Self

from confide_crypto.errors import ConfideError, LinkError, RequestError
from confide_crypto.transport.open_channel import Connection
from confide_proxy.config import ProxyConfig
from confide_proxy.devices.keyring import Keyring
from confide_proxy.link.daemon_link import open_connection
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths


@dataclass(frozen=True, slots=True)
class SpaceConnection:
    """An open connection to the daemon with the keyring of its space; use `async with
    SpaceConnection.open(...)`.

    Attributes:
        connection: the open connection.
        keyring: the keyring of the space, not refreshed yet.
    """

    connection: Connection
    keyring: Keyring
    _serving: asyncio.Task[None]
    _news: asyncio.Event

    @classmethod
    @asynccontextmanager
    async def open(
        cls, paths: ProxyPaths, config: ProxyConfig, *, machine: MachineKeys | None = None
    ) -> AsyncIterator[Self]:
        """Connect to the daemon. Raises the errors of `open_connection`.

        Args:
            machine: the keys to connect with, if the caller has opened or locked them.
        """
        machine = machine or MachineKeys(paths)
        news = asyncio.Event()

        async def on_request(op: str, _body: dict[str, object]) -> dict[str, object]:
            if op != "roster":
                raise RequestError("unavailable", "this connection is about the devices of the space only")
            news.set()
            return {}

        connection = await open_connection(paths, config, keys=machine)
        serving = asyncio.create_task(connection.serve(on_request=on_request))
        try:
            yield cls(connection, Keyring(paths, machine), serving, news)
        finally:
            await connection.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def news(self, wait_s: float) -> None:
        """Wait up to `wait_s` seconds for the daemon to announce a change of the space's devices.
        Raises ConnectionLost if the connection breaks.
        """
        waiting = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait({waiting, self._serving}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self._news.clear()
        if self._serving.done():
            await self._serving


async def introduce(paths: ProxyPaths, config: ProxyConfig) -> ConfideError | None:
    """Send this device's public keys to the daemon, so that the space's other devices can approve
    it. Return the error that says why it has no keys of the space; None if it has them, or if the
    daemon cannot be reached.
    """
    try:
        async with SpaceConnection.open(paths, config) as space:
            await space.keyring.refresh(space.connection)
            return space.keyring.problem
    except (LinkError, RequestError, TimeoutError):
        return None
    except ConfideError as error:
        return error


async def await_keys(paths: ProxyPaths, config: ProxyConfig, wait_s: float) -> None:
    """Ask the space's other devices to add this one, and wait up to `wait_s` seconds until a
    connected device has done so. Whether this device has the keys then is seen at its next
    connection.
    """
    with suppress(ConfideError, TimeoutError):
        async with SpaceConnection.open(paths, config) as space, asyncio.timeout(wait_s):
            await space.keyring.refresh(space.connection)
            while space.keyring.keys is None:
                await space.news(wait_s)
                await space.keyring.refresh(space.connection)
