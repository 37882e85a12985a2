"""One agent's session in the event loop: the link, the tunnel, and the files of its project."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_proxy import catalogue as catalogues
from confide_proxy import projects
from confide_proxy.config import ProxyConfig
from confide_proxy.files import Files
from confide_proxy.folder import Folder
from confide_proxy.link import Callbacks, Link
from confide_proxy.paths import Paths
from confide_proxy.projects import Project
from confide_proxy.tunnel import Tunnel
from confide_proxy.version import VERSION

log = logging.getLogger(__name__)

_CATALOGUE_DEADLINE_S = 10.0


class Session:
    """Runs until cancelled; every part of it lives in one task group."""

    def __init__(self, paths: Paths, config: ProxyConfig, project: Project, tunnel: Tunnel) -> None:
        self._paths = paths
        self._config = config
        self._tunnel = tunnel
        self.files = Files(paths, config, project)
        names = dict.fromkeys((project.name, projects.GLOBAL))
        callbacks = Callbacks(
            on_up=self._on_up,
            on_message=tunnel.on_message,
            on_request=self.files.on_request,
            on_stream=self.files.on_stream,
            on_down=tunnel.on_down,
            on_renewed=self._on_renewed,
            is_waiting=tunnel.is_waiting,
            on_retired=tunnel.on_retired,
        )
        self.link = Link(paths, config, [attach_body(name, config) for name in names], callbacks)
        tunnel.attach(self.link)
        self._group: asyncio.TaskGroup | None = None
        self._first_compare: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.link.run())
            group.create_task(self._tunnel.send())
            for folder in self.files.folders:
                group.create_task(self._watch(folder))

    async def _on_up(self, attached: dict[str, Any]) -> None:
        await self.files.open(self.link, str(attached["space"]))
        self._tunnel.on_up()
        if self._first_compare:
            self._first_compare.cancel()  # what it was waiting for went down with the connection
        self._compare()
        self._spawn(self._refresh_catalogue(str(attached.get("catalogue", ""))))

    async def _on_renewed(self, _attached: dict[str, Any]) -> None:
        self._tunnel.on_renewed()
        if self._first_compare is None or self._first_compare.done():
            self._compare()  # the daemon's new session does not know yet what this machine holds

    def _compare(self) -> None:
        self._first_compare = self._spawn(_logged(self.files.compare(force=False), "the comparison of files"))

    async def _watch(self, folder: Folder) -> None:
        # Imported late: the agent has its first answers before the file system is looked at.
        from confide_proxy.watch import Watcher

        watcher = Watcher(folder, debounce_s=self._config.debounce_ms / 1000)
        try:
            await asyncio.to_thread(watcher.start)
            async for paths in watcher.changes():
                await _logged(self.files.changed(folder.project, paths), "sending a change")
        finally:
            await asyncio.to_thread(watcher.stop)

    async def _refresh_catalogue(self, current: str) -> None:
        data = self._tunnel.catalogue.data
        if current == catalogue_hash(data):
            return
        try:
            body = {"toolsets": list(self._config.toolsets)}
            fresh = await self.link.request("catalogue", body, timeout_s=_CATALOGUE_DEADLINE_S)
            self._tunnel.replace_catalogue(catalogues.Catalogue(fresh))
        except (ConfideError, TimeoutError, KeyError, TypeError, ValueError, AttributeError) as error:
            log.info("kept the cached catalogue: %s", type(error).__name__)
            return
        with suppress(OSError):  # a full disk: the next connection asks again
            await asyncio.to_thread(catalogues.save, self._paths.catalogue, fresh)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None
        return self._group.create_task(work)


def attach_body(project: str, config: ProxyConfig) -> dict[str, Any]:
    """The `attach` request of this machine."""
    return {
        "project": project,
        "machine": socket.gethostname() or "unnamed",
        "proxyVersion": VERSION,
        "toolsets": list(config.toolsets),
    }


def catalogue_hash(data: Any) -> str:
    """SHA-256 of a catalogue in canonical JSON: how both ends see whether it is the same."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


async def _logged(work: Coroutine[Any, Any, Any], what: str) -> None:
    # These run in the background, so no caller hears of a failure; the next event, connection or rescan tries again.
    try:
        await work
    except ConnectionLost:
        log.debug("%s stopped: the link is down", what)
    except (ConfideError, TimeoutError, OSError) as error:
        log.warning("%s failed: %s", what, error if isinstance(error, ConfideError) else type(error).__name__)
    except (KeyError, TypeError, ValueError, AttributeError):
        log.warning("%s failed: the daemon's answer is not of the agreed form", what)
