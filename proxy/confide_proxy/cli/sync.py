"""`confide watch`: keeps folders the same without any agent's session (docs/files.md).

It streams like a session does, and takes turns with them: who holds a folder's seat watches it. One connection carries several folders.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError, DeniedError, HandshakeError, KeyFileError
from confide_proxy import projects
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError, KeyringError, NotJoinedError
from confide_proxy.paths import Paths
from confide_proxy.projects import Project

if TYPE_CHECKING:
    from confide_proxy.cli import Here
    from confide_proxy.sync_report import SyncReport

FOLDERS_A_LINK: Final = 7
"""A connection attaches at most 8 projects, and one of them is the global one."""
END_DEADLINE_S: Final = 0.8
_GOODBYE_S: Final = 0.4
_FINAL = (KeyFileError, KeyringError, NotJoinedError, HandshakeError)
"""What no further attempt mends; that a key is locked or a daemon down may change at any time."""
_FINAL_DENIALS: Final = frozenset({"unknown", "revoked", "expired", "invite"})


def watch(
    context: typer.Context,
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Project folders; this one if none is named.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what is done as JSON lines on stdout.")] = False,
) -> None:
    """Keep project folders and the daemon the same, with no agent running; until it is told to end."""
    here: Here = context.obj
    served = {project.root: project for project in map(projects.identify, map(_folder, folders or [Path()]))}
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="confide: %(levelname)s: %(message)s")
    failure = asyncio.run(_serve(here.paths, here.config, list(served.values()), Teller(as_json=as_json)))
    if failure is not None:
        raise failure


class Teller:
    """Says what is done, for people on stderr or as JSON lines on stdout. Names of projects and counts, nothing of what is in files."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def say(self, event: str, text: str, **facts: Any) -> None:
        """One line: `facts` are the JSON's members beside `event`."""
        if self._as_json:
            sys.stdout.write(json.dumps({"event": event, **facts}, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        else:
            sys.stderr.write(f"confide: {text}\n")

    def report(self, project: str, report: SyncReport, is_comparison: bool) -> None:
        """What a comparison or a change came to, if anything."""
        counts = {"sent": report.sent, "received": report.pulled, "removed": report.removed}
        if any(counts.values()):
            told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
            self.say("synced", f"{project}: {told}", project=project, **counts)
        if is_comparison and self._as_json:
            self.say("compared", "", project=project, files=report.files_scanned)


class Watch:
    """The folders of one link. `ended` is told of a failure that no further attempt mends."""

    def __init__(
        self,
        paths: Paths,
        config: ProxyConfig,
        served: list[Project],
        teller: Teller,
        ended: asyncio.Future[ConfideError],
    ) -> None:
        from confide_proxy.files import Files
        from confide_proxy.key_rotation import MachineKeys
        from confide_proxy.link import Callbacks, Link
        from confide_proxy.sealing.calls import SealedCalls
        from confide_proxy.sealing.space_sealing import Sealing
        from confide_proxy.session import attach_body
        from confide_proxy.standin import StandIn
        from confide_proxy.streamer import Streamer

        self._teller = teller
        self._ended = ended
        self._reason = ""
        self._group: asyncio.TaskGroup | None = None
        machine = MachineKeys(paths)
        self.sealing = Sealing(paths, config, machine)
        self._files = Files(paths, config, *served, sealing=self.sealing, on_report=teller.report)
        bodies = {folder.project: attach_body(folder.project, config) for folder in self._files.folders}
        callbacks = Callbacks(
            on_up=self._on_up,
            on_message=_ignore,
            on_request=self._on_request,
            on_stream=self._files.on_stream,
            on_down=self._on_down,
            on_renewed=self._on_renewed,
            on_locked=self.sealing.keyring.unlock,
            is_waiting=lambda _session_id: False,
            on_retired=lambda _session_id, _reason: None,
        )
        # The link attaches the global project alone; each folder's follows when it is streamed, so that one which is denied to this
        # machine does not keep the others down.
        self.link = Link(paths, config, [bodies[projects.GLOBAL]], callbacks, machine)
        self._streamer = Streamer(paths.seats, self._files, self.link, bodies, debounce_s=config.debounce_ms / 1000)
        sealed = SealedCalls(self.sealing, served[0].name)
        self._standin = StandIn(paths, config, served[0], self.link, sealed)

    async def run(self) -> None:
        """Stream until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.link.run())
            group.create_task(self.sealing.attend(self._look_again))

    async def _on_up(self, attached: dict[str, Any]) -> None:
        assert self._group is not None
        space = str(attached["space"])
        await self.sealing.open(self.link, attached)
        await self._files.open(self.link, space)
        self._streamer.on_up(space, self._group.create_task)
        if self._standin.has_queue:
            self._standin.send_queue(lambda: None)
        self._reason = ""
        self._teller.say("up", "the link is up", space=space)

    def _on_down(self, reason: ConfideError) -> None:
        self._streamer.on_down()
        self._standin.on_down()
        is_final = isinstance(reason, _FINAL) and not isinstance(reason, DeniedError)
        if is_final or (isinstance(reason, DeniedError) and reason.reason in _FINAL_DENIALS):
            if not self._ended.done():
                self._ended.set_result(reason)
        elif str(reason) != self._reason:  # not once for every attempt
            self._reason = str(reason)
            self._teller.say("down", f"the link is down, trying again: {reason}", reason=str(reason))

    async def _on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        if op != "roster":
            return await self._files.on_request(op, body)
        assert self._group is not None
        self._group.create_task(self._look_again())
        return {}

    async def _on_renewed(self, attached: dict[str, Any]) -> None:
        assert self._group is not None
        self._group.create_task(self._look_again(attached))
        self._streamer.on_renewed(self._group.create_task)

    async def _look_again(self, attached: dict[str, Any] | None = None) -> None:
        from confide_proxy.streamer import logged

        await self.sealing.look_again(self.link, attached)
        await logged(self._files.reseal(), "sealing files anew")


def grouped(served: Iterable[Project]) -> list[list[Project]]:
    """The projects by connection: at most `FOLDERS_A_LINK` on each, and two clones of one project never on the same."""
    groups: list[list[Project]] = []
    for project in served:
        for group in groups:
            if len(group) < FOLDERS_A_LINK and all(other.name != project.name for other in group):
                group.append(project)
                break
        else:
            groups.append([project])
    return groups


async def _serve(paths: Paths, config: ProxyConfig, served: list[Project], teller: Teller) -> ConfideError | None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[ConfideError] = loop.create_future()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for project in served:
        teller.say(
            "watching", f"watching {project.root} as {project.name}", project=project.name, folder=str(project.root)
        )
    watches = [Watch(paths, config, group, teller, ended) for group in grouped(served)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in watches]
        if config.transcripts:
            from confide_proxy.transcripts.stream import Transcripts

            tasks.append(group.create_task(Transcripts(paths, config, watches[0].link, watches[0].sealing).run()))
        ended.add_done_callback(lambda _ended: stop.set())
        await stop.wait()
        # A thread that waits for a disk must not keep a process that was told to end.
        _end_for_good(ended.result().exit_code if ended.done() else 0)
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.gather(*(each.link.close() for each in watches))
        except TimeoutError:
            pass
        for task in tasks:
            task.cancel()
    if ended.done():
        return ended.result()
    teller.say("ended", "ended")
    return None


def _end_for_good(code: int) -> None:
    timer = threading.Timer(END_DEADLINE_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


async def _ignore(_message: bytes) -> None:
    return


def _folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise FolderError(str(folder), "is not a folder", hint="name the project's folder")
    return folder.absolute()
