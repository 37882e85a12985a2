"""Local answers to a session's calls while the daemon is unreachable, and the sending of its queued
calls afterwards.

Every session loads this small module. Journal, search and replay are imported when they are first
needed.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_memory.tools.call import ToolAnswer
from confide_memory.tools.result_views import ResultViews
from confide_memory.wire.session import PING
from confide_proxy import addons
from confide_proxy.config import ProxyConfig
from confide_proxy.link.daemon_link import Link
from confide_proxy.mcp.catalogue import CORE, NOTE_SETS, switched_off, unknown_toolsets
from confide_proxy.mcp.jsonrpc import PendingCall
from confide_proxy.offline.completing import Completion
from confide_proxy.offline.outage import Outage
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.sealed_calls import SealedCalls
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import Files

if TYPE_CHECKING:
    from confide_proxy.hooks.server.pending_decisions import DecisionPlace
    from confide_proxy.hooks.server.session_asks import PersonQuestions
    from confide_proxy.mcp.features.forget_call import ForgetCalls
    from confide_proxy.mcp.features.person_approval import PersonApproval
    from confide_proxy.offline.offline_calls import Offline
    from confide_proxy.offline.queued_writes import QueueReplay

    Facts = tuple[ConfideError | None, float, bool]
    """The fields `reason`, `since` and `is_behind` of an `outage.Outage`."""

log = logging.getLogger(__name__)

IMPORT: Final = "memory_import"
SECRET: Final = "secret_get"  # noqa: S105 - a tool's name
FORGET: Final = "memory_forget"
TOOLS_HERE: Final = frozenset({IMPORT, SECRET, FORGET})
"""Tools about files, keys or the user of this device. Their calls are never sent: the client would take the
daemon's response for this device's, or for the value of a secret.
"""
KEEP_S: Final = 60.0
"""Seconds after the link is back for which the local search index is kept, in case the link breaks
again.
"""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


class Fallback:
    """Answers a session's calls on this device, or queues them there. Used in the session's event
    loop. `sealed` seals the arguments of its calls.
    """

    tools_here = TOOLS_HERE

    def __init__(
        self,
        paths: ProxyPaths,
        config: ProxyConfig,
        project: Project,
        link: Link,
        sealed: SealedCalls,
        files: Files,
    ) -> None:
        """`files`: those of the session; the daemon may not have all of them yet."""
        self._sealed_calls = sealed
        self.questions: Callable[[], PersonQuestions | None] = lambda: None
        """Returns the questions of the session, once its client can be asked."""
        self.decision_place: Callable[[], Awaitable[DecisionPlace]]
        """Returns where the decisions of this session are looked for."""
        self._approval: PersonApproval | None = None
        self._forget_calls: ForgetCalls | None = None
        self._is_for_keys = False
        self._paths = paths
        self._config = config
        self._project = project
        self._link = link
        self._files = files
        self.completion = Completion(paths, config, files, self._ready, link, project.name)
        self.queue_file = os.fspath(paths.journal / "queue")  # exists while calls of this device are queued
        shown = set(config.toolsets) - set(unknown_toolsets(config.toolsets)) or set(CORE)
        # Tools that the session lists. A call of any other tool did not come from its client.
        of_notes = not NOTE_SETS.isdisjoint(shown)
        self._offered = {IMPORT: of_notes, FORGET: of_notes, SECRET: of_notes or not shown.isdisjoint(CORE)}
        self._offline: Offline | None = None
        self._one_by_one = asyncio.Lock()
        self._importing = asyncio.Lock()
        self._replay: QueueReplay | None = None
        self._sending: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._forgetting: asyncio.TimerHandle | None = None

    @property
    def is_joined(self) -> bool:
        """Return True if this device has joined a daemon, and False if it starts its own, which
        takes longer.
        """
        return self._paths.link.exists()

    @property
    def has_queue(self) -> bool:
        """Return True if calls of this device are queued, so that new ones must be sent after them.
        Return False if the queued calls only wait for this device to get the space's keys. Costs
        one system call.
        """
        if self._is_for_keys and self._sealed_calls.sealing.keyring.keys is None:
            return False  # the approval by a user may take days
        return os.path.exists(self.queue_file)  # noqa: PTH110 - at each store; no path object is made

    async def answer(self, call: PendingCall, tool: Mapping[str, Any], trouble: Facts) -> ToolAnswer | None:
        """Answer a tool call on this device, or queue it. Return None if the client cancelled the
        call before anything was done.

        Args:
            tool: the tool's entry in the catalogue.
            trouble: why the daemon is unreachable.
        """
        from confide_proxy.offline.offline_calls import OfflineCall

        if call.is_settled:
            return None
        said = OfflineCall(tool, call.params.get("arguments"), call.operation, call.time_text, call.class_)
        try:
            async with (
                self._one_by_one if said.operation else nullcontext()
            ):  # stores are queued in the order in which they came
                answer = await self._ready().answer(said, Outage(*trouble))
        except Exception as error:
            # The client waits for an answer whatever the error is, and the call was not queued.
            log.error("a call could not be answered here: %s", type(error).__name__)
            answer = ToolAnswer("the daemon cannot be reached, and this device could not answer instead")
        return answer

    async def answer_here(self, call: PendingCall, progress: Callable[[int, int], None]) -> ToolAnswer | None:
        """Answer a call of a tool that runs on this device (`TOOLS_HERE`), with requests to the
        daemon. Return None if the client cancelled the call.

        Args:
            progress: reports to the client how much is done, and of how much.
        """
        if not self._offered[str(call.tool)]:
            return ToolAnswer("\nhint: ".join(switched_off(str(call.tool), self._config.toolsets) or ("unknown tool",)))
        if call.tool == FORGET:
            return await self._forget_for_good(call)
        return await (self._secret(call) if call.tool == SECRET else self._import(call, progress))

    async def answer_view(self, call: PendingCall, views: ResultViews) -> ToolAnswer:
        """Answer a call of a tool that only an add-on's page in the client calls, not the agent."""
        calls = await asyncio.to_thread(importlib.import_module, "confide_proxy.mcp.features.view_calls")
        place = await self.decision_place()
        answer: ToolAnswer = await calls.answer(views, str(call.tool), call.params.get("arguments"), place)
        return answer

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task for a call; errors of the task are logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def send_queue(self, sent: Callable[[], None]) -> None:
        """Start to send this device's queued calls in the background, for as long as the link is
        up.

        Args:
            sent: called once the queue is empty, or once its remaining calls wait for this device
                to get the space's keys.
        """
        if self._sending is None or self._sending.done():
            self._sending = self.spawn(self._send(sent))

    async def is_silent(self, seconds: float) -> bool:
        """Return True if the daemon does not answer a ping within so many seconds, although the
        link seems to be up.
        """
        try:
            await PING.ask(self._link, {}, timeout_s=seconds)
        except TimeoutError:
            return True
        except ConfideError:
            return False  # any answer, or a link that is known to be down
        return False

    def on_up(self) -> None:
        """Release the local search index after a while, since the link is up."""
        if self._offline is not None and self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().call_later(KEEP_S, self._forget)

    def on_down(self) -> None:
        self.completion.on_down()
        if self._sending is not None:
            self._sending.cancel()
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None

    async def _import(self, call: PendingCall, progress: Callable[[int, int], None]) -> ToolAnswer | None:
        try:
            # In a thread, since it loads the readers of all systems.
            answer_of = await asyncio.to_thread(addons.of_tool, IMPORT, "answered")
            if answer_of is None:
                return ToolAnswer("nothing can be imported: this device has confide without its add-on for that")
            # One at a time: an import occupies a thread while it reads, and the sync of files uses
            # the same threads.
            async with self._importing:
                if call.is_settled:
                    return None
                where = (self._project, self._config, self._link, self._sealed_calls.sealing)
                answer: ToolAnswer = await answer_of(
                    call.params.get("arguments"), *where, progress=progress, is_wanted=lambda: not call.is_settled
                )
        except ConfideError as error:
            answer = ToolAnswer(error.with_hint)
        except Exception as error:
            # The memory to import may be damaged in unexpected ways; the client still waits for an
            # answer.
            log.error("an import failed: %s", type(error).__name__)
            answer = ToolAnswer("the import failed on this device; what was stored before that is not stored twice")
        return answer

    async def _secret(self, call: PendingCall) -> ToolAnswer:
        try:
            tool = await asyncio.to_thread(importlib.import_module, "confide_proxy.sealing.open_secrets")
            secrets = await asyncio.to_thread(importlib.import_module, "confide_proxy.mcp.features.secret_approval")
            policy, person = self._config.secrets.secret_get, await self._person()
            answer: ToolAnswer = await tool.answer(
                call.params.get("arguments"),
                self._sealed_calls.sealing,
                self._link,
                refusal=lambda named: secrets.refusal(policy, self.questions(), person, call, named),
                uses=self._paths.secret_uses,
            )
        except Exception as error:
            log.error("a secret could not be opened: %s", type(error).__name__)
            answer = ToolAnswer("the secret could not be opened on this device")
        return answer

    async def _forget_for_good(self, call: PendingCall) -> ToolAnswer | None:
        try:
            if self._forget_calls is None:
                place = await asyncio.to_thread(
                    importlib.import_module, "confide_proxy.hooks.server.forgetting.forget_everywhere"
                )
                calls = await asyncio.to_thread(importlib.import_module, "confide_proxy.mcp.features.forget_call")
                here = place.ForgetPlace(self._paths, self._link, self._sealed_calls.sealing, self._files)
                self._forget_calls = calls.ForgetCalls(here, self._project, await self._person())
            answer: ToolAnswer | None = await self._forget_calls.answer(call, self.questions())
        except Exception as error:
            log.error("a text could not be forgotten: %s", type(error).__name__)
            answer = ToolAnswer("this device could not finish it; confide forget --dry-run shows what is still there")
        return answer

    async def _person(self) -> PersonApproval:
        if self._approval is None:
            approval = await asyncio.to_thread(importlib.import_module, "confide_proxy.mcp.features.person_approval")
            self._approval = self._approval or approval.PersonApproval()
        return self._approval

    async def _send(self, sent: Callable[[], None]) -> None:
        from confide_proxy.offline.queued_writes import QueueReplay

        self._replay = self._replay or QueueReplay(self._ready().journal, self._paths.seats, self._sealed_calls)
        pause_s, told = FIRST_PAUSE_S, ""
        while True:  # until `on_down` cancels it
            try:
                outcome = await self._replay.run(self._link)
            except ConnectionLost:
                return
            except (ConfideError, OSError) as error:
                raise_if_cancelled()
                problem = str(error) if isinstance(error, ConfideError) else type(error).__name__
                if problem != told:  # once, not every half minute
                    log.warning("what waits for the daemon could not be sent: %s", problem)
                told = problem
            else:
                self._is_for_keys = outcome.is_for_keys
                if outcome.refused:
                    log.warning(
                        "the daemon refused %d queued calls; they are kept: confide sync --queue", outcome.refused
                    )
                if outcome.why is None:
                    sent()
                    return
                if outcome.is_for_keys:
                    sent()
                log.info("what waits for the daemon could not all be sent")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _ready(self) -> Offline:
        if self._offline is None:
            from confide_proxy.offline.offline_calls import Offline

            self._offline = Offline(self._paths, self._config, self._project, self._sealed_calls)
        return self._offline

    def _forget(self) -> None:
        self._forgetting = None
        if self._offline is not None:
            self.spawn(asyncio.to_thread(_give_up, self._offline))

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            # A bug must be visible in the log, but must not end the session.
            log.error("a task of this session failed: %s", type(error).__name__)


def _give_up(offline: Offline) -> None:
    """Close the local search and return its memory to the system, which glibc would keep for this
    process.
    """
    if offline.close() and sys.platform == "linux":
        with suppress(AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)
