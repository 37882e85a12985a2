"""The session of one agent in the event loop: the link to the daemon, the tunnel for its messages,
and the files of its project.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from confide_crypto import heaps
from confide_crypto.errors import ConfideError
from confide_crypto.transport.task_group import TaskGroup
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.tools.call import COUNTED, catalogue_hash
from confide_memory.wire.session import CATALOGUE, Attached
from confide_proxy import addons
from confide_proxy.config import ProxyConfig
from confide_proxy.freshness.late_ties import LateTies
from confide_proxy.link.connection_terms import attach_body
from confide_proxy.link.daemon_link import Callbacks, Link
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.link.services import ServiceRunner
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp.fallback import Fallback
from confide_proxy.mcp.jsonrpc import PendingCall
from confide_proxy.mcp.tunnel import Tunnel
from confide_proxy.offline.outage import backlog
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import SealedCalls
from confide_proxy.sync.project import Project
from confide_proxy.sync.watching.folder_streamer import Streamer
from confide_proxy.sync.workspace import Files

if TYPE_CHECKING:
    from confide_proxy.hooks.server.pending_decisions import DecisionPlace
    from confide_proxy.mcp.features.note_reads import NoteReads

log = logging.getLogger(__name__)

UNKNOWN = "the daemon has tools that this version does not know, which the agent is not shown; an update of confide brings them"
_FORGETTING_S = 5.0
"""Seconds that the first calls of a connection wait for it."""
_CATALOGUE_DEADLINE_S = 10.0
SETTLED_S = 0.25
"""Seconds after the first link in which the modules that it needs finish loading."""


class AgentSession:
    """The session of one agent. It runs until cancelled; all its parts are tasks of one task group."""

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, project: Project, tunnel: Tunnel) -> None:
        self._paths = paths
        self._config = config
        self._tunnel = tunnel
        self._project = project
        machine = MachineKeys(paths)
        self.sealing = SessionSealing(paths, config, machine)
        self.services = ServiceRunner(paths.seats)
        self.files = Files(
            paths,
            config,
            project,
            sealing=self.sealing,
            backlog=backlog,
            on_news=self._on_news,
            services=self.services,
        )
        bodies = {name: attach_body(name, config) for name in (project.name, GLOBAL_PROJECT)}
        callbacks = Callbacks(
            on_up=self._on_up,
            on_message=tunnel.on_message,
            on_request=self.files.on_request,
            on_stream=self.files.on_stream,
            on_down=self._on_down,
            on_renewed=self._on_renewed,
            on_locked=self.sealing.keyring.unlock,
            is_waiting=tunnel.is_waiting,
            on_retired=tunnel.on_retired,
        )
        self.link = Link(paths, config, list(bodies.values()), callbacks, machine)
        debounce_s = config.debounce_ms / 1000
        self._streamer = Streamer(
            paths.seats, self.files, self.sealing, self.link, bodies, self.services, debounce_s=debounce_s
        )
        self.ties = LateTies(project.root, project.name, self.sealing)
        self.files.seen_functions[project.name] = self.ties.of_file
        sealed = SealedCalls(self.sealing, project.name, flush=self.files.flush, seen=self.ties.of_call)
        fallback = Fallback(paths, config, project, self.link, sealed, self.files)
        fallback.questions = lambda: tunnel.responses.questions
        fallback.decision_place = self.decision_place
        tunnel.attach(self.link, fallback, sealed, str(project.root))
        tunnel.notices = self._notices
        self._notes_to_agent: list[str] = []
        tunnel.responses.on_result = self._on_result
        tunnel.responses.mark = self.ties.mark_result
        self.files.on_ignored = lambda said: log.warning("%s", said)
        self._group: TaskGroup
        self._reads: NoteReads | None = None
        self._has_beside = False
        self._is_settled = False

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self.services.close()

    async def _run(self) -> None:
        async with TaskGroup() as group:
            self._group = group
            group.create_task(self.link.run())
            group.create_task(self._tunnel.send())
            keep = self.services.keep
            group.create_task(keep("keeping receipts", lambda: self.link.receipts.keep_fresh(self.link)))
            group.create_task(keep("attending to keys", lambda: self.sealing.attend(self._streamer.look_again)))
            if self._config.transcripts:
                group.create_task(keep("sending transcripts", self._transcripts))
            if self._tunnel.responses.questions is not None:
                group.create_task(keep("taking questions of other programs", self._questions))
                group.create_task(keep("asking for decisions", self._decisions))
            if self._config.hooks:
                group.create_task(keep("answering hooks", self._hooks))

    async def _transcripts(self) -> None:
        from confide_proxy.sync.transcripts.transcript_streamer import (
            TranscriptStreamer,  # loaded only if configured
        )

        await TranscriptStreamer(self._paths, self._config, self.link, self.sealing, self.services).run()

    async def _hooks(self) -> None:
        # Loaded after the link's imports and in a thread, so that the client's first calls do not
        # wait for it.
        seat = await asyncio.to_thread(importlib.import_module, "confide_proxy.hooks.server.seat")
        await seat.Hooks(self._paths, self.link, self.sealing, [self._project.root]).run()

    async def _questions(self) -> None:
        questions = self._tunnel.responses.questions
        assert questions is not None
        await questions.is_able.wait()  # few clients can ask, and only for those the module is loaded
        asks = await asyncio.to_thread(importlib.import_module, "confide_proxy.hooks.server.session_asks")
        await asks.SessionAsk(self._paths, self._project.root, questions).run()

    async def _decisions(self) -> None:
        questions = self._tunnel.responses.questions
        assert questions is not None
        await questions.is_able.wait()
        place = await self.decision_place()
        pending, folders = (
            await _import_module("hooks.server.pending_decisions"),
            await _import_module("hooks.server.folder_decisions"),
        )
        finders = [*folders.FINDERS, *await asyncio.to_thread(addons.each, "decisions")]
        await pending.DecisionDesk(place, questions, finders).run()

    async def decision_place(self) -> DecisionPlace:
        """Return what this session's search for pending decisions needs: paths, project, and a way
        to connect.
        """
        pending, client = await _import_module("hooks.server.pending_decisions"), await _import_module("mcp.client")
        connect = partial(client.CommandClient, self._paths, self._config)
        notify = self._notes_to_agent.append
        place: DecisionPlace = pending.DecisionPlace(self._paths, self._config, self._project, connect, notify)
        return place

    async def _begin_beside(self) -> None:
        # Loaded in a thread, as hooks are, and only for sessions with learning on.
        client = await asyncio.to_thread(importlib.import_module, "confide_proxy.mcp.client")
        found = await asyncio.to_thread(client.background_services, self._paths, self._config)
        for name, work in found.items():
            self._spawn(self.services.keep(name, work))

    def _on_result(self, call: PendingCall, result: dict[str, object]) -> None:
        if call.tool not in COUNTED:
            return
        ms = int((time.monotonic() - call.began) * 1000)
        self._attempt("counting what notes are used for", lambda: self._count(call, result, ms))

    async def _count(self, call: PendingCall, result: dict[str, object], ms: int) -> None:
        if self._reads is None:  # not before the first answer
            reads = await asyncio.to_thread(importlib.import_module, "confide_proxy.mcp.features.note_reads")
            self._reads = self._reads or reads.NoteReads(os.fspath(self._paths.state), self._project.name)
        arguments = call.params.get("arguments")
        await self._reads.count(str(call.tool), arguments if isinstance(arguments, dict) else {}, result, ms)

    def _notices(self) -> list[str]:
        """Return the sentences of the person, each once, and the notices about files. Blocks briefly."""
        said, self._notes_to_agent[:] = list(self._notes_to_agent), []
        return [*said, *self.files.notices(), *self.files.obstacles()]  # a daemon shows the first four

    def _on_news(self) -> None:
        self._attempt("looking for news of devices", self._streamer.look_again)

    async def _on_up(self, attached: Attached) -> None:
        await self._streamer.on_up(attached, self._spawn)
        if attached["forgotten"] or self._paths.forgotten.exists():
            # Before queued calls are sent, of which one may hold a forgotten text.
            work = self.services.attempt("forgetting", lambda: self._exchange_forgotten(attached))
            await asyncio.wait({self._spawn(work)}, timeout=_FORGETTING_S)
        self._tunnel.on_up()
        self._attempt("sealing old records again", lambda: self.sealing.reseal(self.link))
        self._attempt("keeping the catalogue", lambda: self._refresh_catalogue(attached["catalogue"]))
        if not self._is_settled:
            self._is_settled = True
            self._spawn(self._settle())
        if self._config.learn.is_on and not self._has_beside:
            self._has_beside = True  # not before the first link, so that no start waits for its imports
            self._attempt("beginning what add-ons do", self._begin_beside)

    async def _exchange_forgotten(self, attached: Attached) -> None:
        texts = await asyncio.to_thread(
            importlib.import_module, "confide_proxy.hooks.server.forgetting.forgotten_texts"
        )
        await texts.exchange(self._paths, self.link, self.sealing.keyring, attached)

    async def _settle(self) -> None:
        """Return memory to the system that loading and the first link needed: one such process runs
        all day beside every agent.
        """
        await asyncio.sleep(SETTLED_S)
        await asyncio.to_thread(heaps.give_back)
        await asyncio.to_thread(heaps.give_back_files)

    def _on_down(self, reason: ConfideError) -> None:
        self._streamer.on_down()
        self._tunnel.on_down(reason)

    async def _on_renewed(self, attached: Attached) -> None:
        self._tunnel.on_renewed()
        self._streamer.on_renewed(attached, self._spawn)

    async def _refresh_catalogue(self, current: str) -> None:
        before, toolsets = self._tunnel.catalogue, self._config.toolsets
        if current in (before.digest, catalogue_hash(before.data)):
            return
        try:
            listing = await CATALOGUE.ask(self.link, {"toolsets": list(toolsets)}, timeout_s=_CATALOGUE_DEADLINE_S)
            fresh = await asyncio.to_thread(catalogues.common_catalogue, listing, toolsets, current)
        except (ConfideError, TimeoutError, KeyError, TypeError, ValueError, OSError) as error:
            log.info("kept the catalogue: %s", type(error).__name__)
            return
        self._tunnel.replace_catalogue(fresh)
        if new := [name for name in fresh.unknown if name not in before.unknown]:
            log.warning("%s: %s", UNKNOWN, ", ".join(new))
        with suppress(OSError):  # a full disk: the next connection asks again
            await asyncio.to_thread(catalogues.save, self._paths.catalogue, fresh)

    def _attempt(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._spawn(self.services.attempt(name, work))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._group.create_task(work)


async def _import_module(module: str) -> Any:
    """Import a module of this package in a thread, since the client's first calls must not wait."""
    return await asyncio.to_thread(importlib.import_module, f"confide_proxy.{module}")
