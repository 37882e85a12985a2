"""One agent's session in the event loop: the link, the tunnel, and the files of its project."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import socket
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_proxy import catalogue as catalogues
from confide_proxy import projects
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError
from confide_proxy.folder import MEMORY_FOLDER, Folder
from confide_proxy.ledger import Ledger
from confide_proxy.link import Callbacks, Link
from confide_proxy.paths import Paths
from confide_proxy.projects import Project
from confide_proxy.replica import Replica, Requests, SyncReport
from confide_proxy.tunnel import Tunnel
from confide_proxy.version import VERSION

log = logging.getLogger(__name__)

_ATTACH_DEADLINE_S = 10.0
_CATALOGUE_DEADLINE_S = 10.0


class Files:
    """The replicas of one session: its project's folder and the global one."""

    def __init__(self, paths: Paths, config: ProxyConfig, project: Project) -> None:
        self._paths = paths
        self._config = config
        self._project = project
        limit = config.max_file_kib * 1024
        self.folders = [Folder(project.name, project.root, config.extra, limit)]
        if project.name != projects.GLOBAL:
            self.folders.append(Folder(projects.GLOBAL, paths.global_folder.absolute(), (), limit))
        self._replicas: dict[str, Replica] = {}
        self._is_ignored = not (config.gitignore and project.is_git)

    async def open(self, link: Requests, space: str) -> None:
        """Make the replicas for the space that the link led to."""
        for folder in self.folders:
            ledger = await asyncio.to_thread(Ledger, self._paths.ledgers, space, folder.root)
            self._replicas[folder.project] = Replica(folder, ledger, link, before_write=self._before_write)

    async def compare(self, *, force: bool, progress: Callable[[int, int], None] | None = None) -> SyncReport:
        """Compare every folder with the daemon."""
        report = SyncReport()
        for replica in list(self._replicas.values()):
            report.add(await replica.compare(force=force, progress=progress))
        return report

    async def changed(self, project: str, paths: set[str] | None) -> None:
        """Send what changed in one folder; None means that anything may have."""
        replica = self._replicas.get(project)
        if replica is None:
            return  # not connected yet: the comparison at the next connection finds it
        report = await (replica.compare() if paths is None else replica.changed(paths))
        for item in report.skipped:
            log.warning("a file was skipped: it %s", item["reason"])

    async def on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer what the daemon may ask of this machine: to write a revision, to send one file if it has changed, to look for changes,
        and to count them. Nothing else.

        Raises:
            RequestError: the request is not one of these, or the file system refuses.
        """
        try:
            if op == "apply":
                return await self._apply(body)
            if op == "flush":
                return await self._flush(body)
            if op == "backlog":
                return await self._backlog()
            if op == "scan":
                return (await self.compare(force=bool(body.get("force")))).as_json()
        except FolderError as error:
            raise RequestError("invalid", str(error), error.hint) from None
        except (KeyError, TypeError, ValueError):
            raise RequestError("invalid", f"the request is not of the form that {op} takes") from None
        raise RequestError("invalid", "this proxy does not know that request", "update confide on that machine")

    async def _apply(self, body: dict[str, Any]) -> dict[str, Any]:
        replica = self._replicas.get(str(body.get("project")))
        if replica is None:
            raise RequestError("not_found", "this machine does not keep that project here")
        return await replica.apply(body)

    async def _backlog(self) -> dict[str, Any]:
        pending = 0
        for replica in self._replicas.values():
            pending += await asyncio.to_thread(replica.pending)
        # Calls that meet a daemon that cannot be reached fail and say so: nothing is queued on this machine.
        return {"pendingUploads": pending, "queuedOffline": 0, "deadLetters": 0}

    async def _flush(self, body: dict[str, Any]) -> dict[str, Any]:
        replica = self._replicas.get(str(body.get("project")))
        if replica is not None:
            await replica.changed([str(body["path"])])
        return {}

    async def _before_write(self, folder: Folder) -> None:
        if folder.project == self._project.name and not self._is_ignored:
            self._is_ignored = True
            await asyncio.to_thread(ignore_memory, self._project.root)


class Session:
    """Runs until cancelled; every part of it lives in one task group."""

    def __init__(self, paths: Paths, config: ProxyConfig, project: Project, tunnel: Tunnel) -> None:
        self._paths = paths
        self._config = config
        self._project = project
        self._tunnel = tunnel
        self.files = Files(paths, config, project)
        self._attach = attach_body(project.name, config)
        callbacks = Callbacks(self._on_up, tunnel.on_message, self.files.on_request, tunnel.on_down)
        self.link = Link(paths, config, self._attach, callbacks)
        tunnel.attach(self.link)
        self._group: asyncio.TaskGroup | None = None
        self._first_compare: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.link.run())
            for folder in self.files.folders:
                group.create_task(self._watch(folder))

    async def _on_up(self, attached: dict[str, Any]) -> None:
        if self._project.name != projects.GLOBAL:
            body = {**self._attach, "project": projects.GLOBAL}
            await self.link.request("attach", body, timeout_s=_ATTACH_DEADLINE_S)
        await self.files.open(self.link, str(attached["space"]))
        await self._tunnel.on_up()
        if self._first_compare:
            self._first_compare.cancel()
        self._first_compare = self._spawn(_logged(self.files.compare(force=False), "the comparison of files"))
        self._spawn(self._refresh_catalogue(str(attached.get("catalogue", ""))))

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
        except (ConfideError, TimeoutError, KeyError, TypeError) as error:
            log.info("kept the cached catalogue: %s", type(error).__name__)
            return
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


def ignore_memory(root: Path) -> None:
    """Add `memory/` to the repository's `.gitignore`, unless git ignores it already: memory is private by default."""
    try:
        check = subprocess.run(
            ["git", "-C", str(root), "check-ignore", "-q", f"{MEMORY_FOLDER}/x.md"],
            capture_output=True,
            timeout=2.0,
            check=False,
        )
        tracked = subprocess.run(
            ["git", "-C", str(root), "ls-files", "--", MEMORY_FOLDER], capture_output=True, timeout=2.0, check=False
        )
        # 1 means "not ignored"; files that the team tracks already were meant to be shared, and stay so.
        if check.returncode != 1 or tracked.stdout.strip():
            return
        ignore = root / ".gitignore"
        before = ignore.read_text(encoding="utf-8") if ignore.exists() else ""
        if ignore.is_symlink():
            return
        gap = "" if not before or before.endswith("\n") else "\n"
        ignore.write_text(f"{before}{gap}{MEMORY_FOLDER}/\n", encoding="utf-8")
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
        log.warning("could not add %s/ to .gitignore: %s", MEMORY_FOLDER, type(error).__name__)


async def _logged(work: Coroutine[Any, Any, Any], what: str) -> None:
    # These run in the background, so no caller hears of a failure; the next event, connection or rescan tries again.
    try:
        await work
    except ConnectionLost:
        log.debug("%s stopped: the link is down", what)
    except (ConfideError, TimeoutError, OSError) as error:
        log.warning("%s failed: %s", what, error if isinstance(error, ConfideError) else type(error).__name__)
