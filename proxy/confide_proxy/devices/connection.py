"""A connection about a space's devices. It attaches nothing, so it works while the space is locked, and without its keys."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from confide_crypto.errors import ConfideError, LinkError, RequestError
from confide_crypto.transport.open import Connection
from confide_proxy.config import ProxyConfig
from confide_proxy.devices.keyring import Keyring
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.link.link import open_connection
from confide_proxy.paths import Paths


class SpaceConnection:
    """Use with `async with`. Raises, on entry, what `open_connection` raises.

    Attributes:
        keyring: of the space that the connection leads to; nothing was asked for it yet.
    """

    def __init__(self, paths: Paths, config: ProxyConfig, *, machine: MachineKeys | None = None) -> None:
        """`machine` has the keys to connect with, where the caller has opened or locked them."""
        self._paths = paths
        self._config = config
        self._machine = machine or MachineKeys(paths)
        self._connection: Connection | None = None
        self._serving: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.keyring = Keyring(paths, self._machine)

    async def __aenter__(self) -> Self:
        self._connection = await open_connection(self._paths, self._config, keys=self._machine)
        self._serving = asyncio.create_task(self._connection.serve(on_message=_pass_over, on_request=self._on_request))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._serving is not None
        await self.connection.close()
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    @property
    def connection(self) -> Connection:
        """The open connection."""
        assert self._connection is not None
        return self._connection

    async def news(self, wait_s: float) -> None:
        """Wait until the daemon says that something about the devices is new, or as long as that. Raises ConnectionLost."""
        assert self._serving is not None
        waiting = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait({waiting, self._serving}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self._news.clear()
        if self._serving.done():
            await self._serving

    async def _on_request(self, op: str, _body: dict[str, Any]) -> dict[str, Any]:
        if op != "roster":
            raise RequestError("unavailable", "this connection is about the devices of the space only")
        self._news.set()
        return {}


async def introduce(paths: Paths, config: ProxyConfig) -> ConfideError | None:
    """Show the devices of the space that this machine is there; why it has no keys of it, if that is known."""
    try:
        async with SpaceConnection(paths, config) as space:
            await space.keyring.refresh(space.connection)
            return space.keyring.problem
    except (LinkError, RequestError, TimeoutError):
        return None
    except ConfideError as error:
        return error


async def await_keys(paths: Paths, config: ProxyConfig, wait_s: float) -> None:
    """Ask to be taken in, and wait so long for a device that is connected. Whether there are keys then, the next connection says."""
    with suppress(ConfideError, TimeoutError):
        async with SpaceConnection(paths, config) as space, asyncio.timeout(wait_s):
            await space.keyring.refresh(space.connection)
            while space.keyring.keys is None:
                await space.news(wait_s)
                await space.keyring.refresh(space.connection)


async def _pass_over(_message: bytes) -> None:
    """No agent's session runs here."""
