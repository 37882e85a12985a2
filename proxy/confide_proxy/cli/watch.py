"""The command `confide sync --watch`: keep folders in sync with the daemon until it is stopped
(docs/notes.md).

It syncs as an agent's session does, and takes turns with sessions: the process that holds a
folder's lock watches the folder. One connection serves several folders.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from confide_crypto import portable
from confide_crypto.errors import ConfideError, DeniedError, HandshakeError, KeyFileError, printable
from confide_crypto.transport.task_group import TaskGroup
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.wire.session import Attached
from confide_proxy.cli.console import CommandContext, json_text, project_of, remark
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError, KeyringError, NotJoinedError
from confide_proxy.freshness.late_ties import LateTies
from confide_proxy.hooks.server.seat import Hooks
from confide_proxy.link.connection_terms import attach_body
from confide_proxy.link.daemon_link import Callbacks, Link
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.link.services import ServiceRunner
from confide_proxy.mcp.client import background_services
from confide_proxy.mcp.fallback import Fallback
from confide_proxy.offline.outage import backlog
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import SealedCalls
from confide_proxy.sync.ledger import SyncReport
from confide_proxy.sync.project import Project
from confide_proxy.sync.watching.folder_streamer import Streamer
from confide_proxy.sync.workspace import Files

MOST_NAMED: Final = 100
"""The most removed files of one comparison that are printed by name."""
FOLDERS_A_LINK: Final = 7
"""A connection attaches at most 8 projects, and one of them is the global one."""
END_DEADLINE_S: Final = 0.8
_GOODBYE_S: Final = 0.4
_FINAL = (KeyFileError, KeyringError, NotJoinedError, HandshakeError)
"""Errors that no further attempt can fix. A locked key or a stopped daemon are not among them."""
_FINAL_DENIALS: Final = frozenset({"unknown", "revoked", "expired", "invite"})


def watch(here: CommandContext, folders: Sequence[Path], *, as_json: bool) -> None:
    """Keep project folders in sync with the daemon until SIGTERM or Ctrl-C. With `as_json`, print
    the events as JSON lines.

    Raises FolderError if one of them is not a folder; also every error that no further attempt can
    fix.
    """
    asked = list(map(_folder, folders))
    served = {project.root: project for project in asyncio.run(_projects_of(here, asked))}
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="confide: %(levelname)s: %(message)s")
    failure = asyncio.run(_serve(here.paths, here.config, list(served.values()), Teller(as_json=as_json)))
    if failure is not None:
        raise failure


class Teller:
    """Prints events as text on stderr, or as JSON lines on stdout. Events contain names and counts,
    but no texts.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def print_event(self, event: str, text: str, **facts: Any) -> None:
        """Print one event.

        Args:
            event: its name in the JSON line.
            text: its sentence on stderr.
            facts: further fields of the JSON line.
        """
        if self._as_json:
            sys.stdout.write(json_text({"event": event, **facts}) + "\n")
            sys.stdout.flush()
        else:
            remark(f"confide: {text}")

    def report(self, project: str, report: SyncReport, is_comparison: bool) -> None:
        """Print the result of syncing a project, if anything was sent, received or removed.

        Args:
            is_comparison: True if the whole folder was compared; the JSON output then has an event
                for that too.
        """
        counts = {"sent": report.sent, "received": report.pulled, "removed": report.removed}
        if any(counts.values()):
            message = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
            self.print_event("synced", f"{project}: {message}", project=project, **counts)
        for path in map(printable, report.removed_paths[:MOST_NAMED]):
            self.print_event("removed", f"{project}: removed {path}", project=project, path=path)
        if is_comparison and self._as_json:
            self.print_event("compared", "", project=project, files=report.files_scanned)


class Watch:
    """The watched folders that share one link. If an error occurs that no further attempt can fix,
    it becomes the result of `ended`.
    """

    def __init__(
        self,
        paths: ProxyPaths,
        config: ProxyConfig,
        served: list[Project],
        teller: Teller,
        ended: asyncio.Future[ConfideError],
        services: ServiceRunner,
    ) -> None:

        self._events = teller
        self._services = services
        self._end = ended
        self._reason = ""
        self._group: TaskGroup
        machine = MachineKeys(paths)
        self.sealing = SessionSealing(paths, config, machine)
        self._files = Files(
            paths,
            config,
            *served,
            sealing=self.sealing,
            on_report=teller.report,
            backlog=backlog,
            on_news=lambda: self._group.create_task(
                services.attempt("looking for news of devices", self._streamer.look_again)
            ),
            services=services,
        )
        self._files.on_ignored = lambda said: teller.print_event("ignored", said)
        for each in served:
            self._files.seen_functions[each.name] = LateTies(each.root, each.name, self.sealing).of_file
        bodies = {folder.project: attach_body(folder.project, config) for folder in self._files.folders}
        callbacks = Callbacks(
            on_up=self._on_up,
            on_request=self._files.on_request,
            on_stream=self._files.on_stream,
            on_down=self._on_down,
            on_renewed=self._on_renewed,
            on_locked=self.sealing.keyring.unlock,
        )
        # The link attaches only the global project; each folder's project follows when it is
        # streamed, so that one which is denied to this device does not keep the others down.
        self.link = Link(paths, config, [bodies[GLOBAL_PROJECT]], callbacks, machine)
        debounce_s = config.debounce_ms / 1000
        self._streamer = Streamer(
            paths.seats, self._files, self.sealing, self.link, bodies, services, debounce_s=debounce_s
        )
        sealed = SealedCalls(self.sealing, served[0].name)
        self._fallback = Fallback(paths, config, served[0], self.link, sealed, self._files)

    async def run(self) -> None:
        async with TaskGroup() as group:
            self._group = group
            group.create_task(self.link.run())
            keep = self._services.keep
            group.create_task(keep("attending to keys", lambda: self.sealing.attend(self._streamer.look_again)))
            group.create_task(keep("keeping receipts", lambda: self.link.receipts.keep_fresh(self.link)))

    async def _on_up(self, attached: Attached) -> None:
        await self._streamer.on_up(attached, self._group.create_task)
        if self._fallback.has_queue:
            self._fallback.send_queue(lambda: None)
        self._reason = ""
        self._events.print_event("up", "the link is up", space=str(attached["space"]))

    def _on_down(self, reason: ConfideError) -> None:
        self._streamer.on_down()
        self._fallback.on_down()
        is_final = isinstance(reason, _FINAL) and not isinstance(reason, DeniedError)
        if is_final or (isinstance(reason, DeniedError) and reason.reason in _FINAL_DENIALS):
            if not self._end.done():
                self._end.set_result(reason)
        elif str(reason) != self._reason:  # print a reason once, not at every attempt
            self._reason = str(reason)
            self._events.print_event("down", f"the link is down, trying again: {reason}", reason=str(reason))

    async def _on_renewed(self, attached: Attached) -> None:
        self._streamer.on_renewed(attached, self._group.create_task)


def group_projects(served: Iterable[Project]) -> list[list[Project]]:
    """Group the projects by connection. At most `FOLDERS_A_LINK` projects share one, and two clones
    of the same project never do.
    """
    groups: list[list[Project]] = []
    for project in served:
        for group in groups:
            if len(group) < FOLDERS_A_LINK and all(other.name != project.name for other in group):
                group.append(project)
                break
        else:
            groups.append([project])
    return groups


async def _serve(paths: ProxyPaths, config: ProxyConfig, served: list[Project], teller: Teller) -> ConfideError | None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[ConfideError] = loop.create_future()
    stop = asyncio.Event()
    portable.call_on_signals(loop, portable.ending_signals(), stop.set)
    for project in served:
        teller.print_event(
            "watching", f"watching {project.root} as {project.name}", project=project.name, folder=str(project.root)
        )
    services = ServiceRunner(paths.seats)
    watches = [Watch(paths, config, group, teller, ended, services) for group in group_projects(served)]
    async with TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in watches]
        if config.transcripts:
            from confide_proxy.sync.transcripts.transcript_streamer import TranscriptStreamer

            transcripts = TranscriptStreamer(paths, config, watches[0].link, watches[0].sealing, services)
            tasks.append(group.create_task(services.keep("sending transcripts", transcripts.run)))
        if config.hooks:
            roots = [project.root for project in served]
            hooks = Hooks(paths, watches[0].link, watches[0].sealing, roots)
            tasks.append(group.create_task(services.keep("answering hooks", hooks.run)))
        if config.learn.is_on:
            for name, work in (await asyncio.to_thread(background_services, paths, config)).items():
                tasks.append(group.create_task(services.keep(name, work)))
        ended.add_done_callback(lambda _ended: stop.set())
        await stop.wait()
        # A thread that is blocked by the disk must not delay the end of the process.
        timer = threading.Timer(END_DEADLINE_S, os._exit, (ended.result().exit_code if ended.done() else 0,))
        timer.daemon = True
        timer.start()
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.gather(*(each.link.close() for each in watches))
        except TimeoutError:
            pass
        for task in tasks:
            task.cancel()
    services.close()
    if ended.done():
        return ended.result()
    teller.print_event("ended", "ended")
    return None


async def _projects_of(here: CommandContext, folders: list[Path]) -> list[Project]:
    return [await project_of(here, folder, is_written=True) for folder in folders]


def _folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise FolderError(str(folder), "is not a folder", hint="name the project's folder")
    return folder.absolute()
