"""All that whoever runs the daemon has of it, put together: the control socket, metrics, and what systemd is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from confide_daemon.access.registry import State
from confide_daemon.errors import ListenError
from confide_daemon.server.operator.control import Control
from confide_daemon.server.operator.exposition import Exposition
from confide_daemon.server.operator.metrics import Metrics
from confide_daemon.server.operator.now import Lag, Looking
from confide_daemon.server.operator.watchdog import Service
from confide_daemon.spaces.pool import Spaces

log = logging.getLogger(__name__)

DISK: Final = "disk"
"""The word of `/health` while there is little room."""


class OperatorDesk:
    """One for each daemon, from `open` to `close`. What is to be asked or shown besides is added to `control` and `metrics` before."""

    def __init__(
        self,
        state: State,
        spaces: Spaces,
        sessions: Callable[[], int],
        *,
        per_space: bool = False,
        exposition: Exposition | None = None,
        service: Service | None = None,
        is_on_demand: bool = False,
    ) -> None:
        """What it needs of the daemon.

        Args:
            sessions: how many there are.
            per_space: whether metrics have series for single spaces.
            exposition: where metrics are had over TCP.
            service: None: as the environment says.
            is_on_demand: a port that is taken does not keep it from serving its machine.
        """
        self._spaces = spaces
        self._sessions = sessions
        self._exposition = exposition
        self._service = service or Service.of_environment()
        self._is_on_demand = is_on_demand
        self._looking = Looking(state, spaces, sessions, self.ailments)
        self._ailing: list[Callable[[], set[str]]] = [spaces.ailments]
        self._beside: list[asyncio.Task[None]] = []
        self.metrics = Metrics(self._looking.look, per_space=per_space)
        self.control = Control(state.folder.control)
        self.control.add("metrics", self._metrics)
        self.control.add("top", self._top)

    @property
    def lag(self) -> Lag:
        return self._looking.lag

    def ailments(self) -> set[str]:
        """What does not work as it should, in the words of `/health`."""
        found = set[str]().union(*(ailing() for ailing in self._ailing))
        return found | ({DISK} if self._spaces.disk.is_low else set())

    def also(self, ailing: Callable[[], set[str]]) -> None:
        """Ask this part as well what of it does not work as it should."""
        self._ailing.append(ailing)

    async def open(self) -> None:
        """Can be asked from now on. Raises ListenError: the port of metrics is taken."""
        await asyncio.to_thread(self._spaces.disk.look)
        await self.control.open()
        if self._exposition is not None:
            try:
                await self._exposition.open(self.metrics.text)
            except ListenError as error:
                if not self._is_on_demand:
                    raise
                log.error("%s", error)

    def began(self) -> None:
        """The daemon listens."""
        self._service.ready()
        self._beside = [
            asyncio.create_task(self._service.run(self._status, self._writers), name="confide-watchdog"),
            asyncio.create_task(self._spaces.disk.watch(), name="confide-disk"),
        ]

    async def close(self) -> None:
        """The daemon is about to end."""
        self._service.stopping()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self.control.close()
        if self._exposition is not None:
            await self._exposition.close()

    def _status(self) -> str:
        ailments = sorted(self.ailments())
        said = f"{self._sessions()} sessions, {len(self._spaces.opened())} spaces open"
        return f"{said}; not well: {', '.join(ailments)}" if ailments else said

    def _writers(self) -> Mapping[str, Any]:
        return {space_id: space.answer for space_id, space in self._spaces.opened().items()}

    async def _metrics(self, _asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"text": await self.metrics.text()}

    async def _top(self, _asked: Mapping[str, Any]) -> dict[str, Any]:
        return await self.metrics.top()
