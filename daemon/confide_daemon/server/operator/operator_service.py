"""The operator's access to the daemon: the control socket, the metrics, and notifications to
systemd.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from confide_daemon.config import DaemonConfig
from confide_daemon.errors import ListenError
from confide_daemon.server.operator.control_socket import Control
from confide_daemon.server.operator.exposition import Exposition
from confide_daemon.server.operator.live_status import DaemonView, Lag, Looking
from confide_daemon.server.operator.metrics import Metrics
from confide_daemon.server.operator.watchdog import WatchdogService

log = logging.getLogger(__name__)


class OperatedDaemon(DaemonView, Protocol):
    """The daemon's attributes that the operator service uses."""

    @property
    def config(self) -> DaemonConfig:
        """The settings from daemon.toml."""

    @property
    def is_on_demand(self) -> bool:
        """True if the proxy on this computer started the daemon. A metrics port that is in use then
        does not keep the daemon from running.
        """


class OperatorService:
    """The operator service of one daemon, from `open` to `close`. Add verbs to `control`, and
    metrics to `metrics`, before `open`.
    """

    def __init__(self, daemon: OperatedDaemon, exposition: Exposition | None = None) -> None:
        """Create the service; `exposition` serves the metrics over TCP."""
        self._daemon = daemon
        self._exposition = exposition
        self._service = WatchdogService.of_environment()
        self._looking = Looking(daemon)
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics = Metrics(self._looking, per_space=daemon.config.metrics.per_space)
        self.control = Control(daemon.state.folder.control)
        self.control.add("metrics", self._metrics)
        self.control.add("top", self._top)

    @property
    def lag(self) -> Lag:
        return self._looking.lag

    async def open(self) -> None:
        """Open the control socket and serve the metrics. Raises ListenError if the metrics port is
        in use.
        """
        await asyncio.to_thread(self._daemon.spaces.disk.look)
        await self.control.open()
        if self._exposition is not None:
            try:
                await self._exposition.open(self.metrics.text)
            except ListenError as error:
                if not self._daemon.is_on_demand:
                    raise
                log.error("%s", error)

    def began(self) -> None:
        """Notify systemd that the daemon is ready, and start to feed its watchdog."""
        self._service.ready()
        self._tasks = [
            asyncio.create_task(self._service.run(self._status, self._writers), name="confide-watchdog"),
            asyncio.create_task(self._daemon.spaces.disk.watch(), name="confide-disk"),
        ]

    async def close(self) -> None:
        """Notify systemd that the daemon ends, and close the sockets."""
        self._service.stopping()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.control.close()
        if self._exposition is not None:
            await self._exposition.close()

    def _status(self) -> str:
        health_problems = sorted(self._daemon.health_problems())
        said = f"{len(self._daemon.sessions)} sessions, {len(self._daemon.spaces.open_spaces())} spaces open"
        return f"{said}; not well: {', '.join(health_problems)}" if health_problems else said

    def _writers(self) -> Mapping[str, Any]:
        return {space_id: space.answer for space_id, space in self._daemon.spaces.open_spaces().items()}

    async def _metrics(self, _asked: Mapping[str, object]) -> dict[str, object]:
        return {"text": await self.metrics.text()}

    async def _top(self, _asked: Mapping[str, object]) -> dict[str, object]:
        return await self.metrics.top()
