"""A connection about a space's devices. It attaches nothing, so it works while the space is locked, and without its keys."""

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
    """Use with `async with SpaceConnection.open(...)`.

    Attributes:
        connection: open.
        keyring: of the space that the connection leads to; nothing was asked for it yet.
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
        """Connected. Raises what `open_connection` raises.

        `machine`: has the keys to connect with, where the caller has opened or locked them.
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
        """Wait until the daemon says that something about the devices is new, or as long as that. Raises ConnectionLost."""
        waiting = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait({waiting, self._serving}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self._news.clear()
        if self._serving.done():
            await self._serving


async def introduce(paths: ProxyPaths, config: ProxyConfig) -> ConfideError | None:
    """Show the devices of the space that this machine is there; why it has no keys of it, if that is known."""
    try:
        async with SpaceConnection.open(paths, config) as space:
            await space.keyring.refresh(space.connection)
            return space.keyring.problem
    except (LinkError, RequestError, TimeoutError):
        return None
    except ConfideError as error:
        return error


async def await_keys(paths: ProxyPaths, config: ProxyConfig, wait_s: float) -> None:
    """Ask to be taken in, and wait so long for a device that is connected. Whether there are keys then, the next connection says."""
    with suppress(ConfideError, TimeoutError):
        async with SpaceConnection.open(paths, config) as space, asyncio.timeout(wait_s):
            await space.keyring.refresh(space.connection)
            while space.keyring.keys is None:
                await space.news(wait_s)
                await space.keyring.refresh(space.connection)
