"""Answer tool calls without the daemon (docs/history.md).

The tool catalogue says for each tool what happens to its calls: `queue` (kept in the journal, sent
once the link is back), `local` (answered from the files on this device), or `fail`. This module is
imported at the first call that needs it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from confide_crypto.errors import ConfideError
from confide_memory.tools.arguments import Parameters, check
from confide_memory.tools.call import OFFLINE, ToolAnswer
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import ToolError
from confide_proxy.offline import local_tools, queued_writes
from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.offline.local_corpus import LocalMemory
from confide_proxy.offline.operations import is_empty, new_id
from confide_proxy.offline.outage import Outage, queue_sentence
from confide_proxy.offline.unindexed import READ, Reason
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.sealed_calls import SealedCalls, ToolCall
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import folders_of

ANSWER_DEADLINE_S: Final = 7.5
"""Seconds to answer: with the two seconds after which the link counts as down, within the ten of a
call.
"""


@dataclass(frozen=True, slots=True)
class OfflineCall:
    """A tool call from an agent.

    `tool` is its entry in the tool catalogue and `said` the time of the call, as ISO 8601 with the
    time zone. A call that is to be queued has an `operation` id. `class_` is the class of its text,
    if this device sets one (docs/agents.md); None lets the daemon decide.
    """

    tool: Mapping[str, Any]
    arguments: Any
    operation: str | None = None
    said: str | None = None
    class_: str | None = None


class Offline:
    """Answers the tool calls of one project of this device without the daemon. Calls are queued
    with credentials in clear, and shown with the credentials sealed, as they will be sent.
    """

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, project: Project, sealed: SealedCalls) -> None:
        folders = folders_of(paths, config, project, sealing=sealed.sealing)
        self._project = project.name
        self.journal = Journal(paths.journal)
        self._sealed_calls = sealed
        self._memory = LocalMemory(folders, self._waiting)
        self._queued_calls: dict[str, QueuedCall] = {}

    async def ask(self, call: OfflineCall, trouble: Outage) -> ToolAnswer:
        """Answer a tool call without the daemon. `trouble` is the reason why the daemon is not
        used.

        Raises:
            ToolError, OfflineError, FolderError, JournalError, StateError, KeyFileError: the call
                cannot be answered or queued.
            TimeoutError: the answer takes too long.
        """
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            await self._recall(call)
            return await asyncio.to_thread(self._answer, call, trouble)

    async def answer(self, call: OfflineCall, trouble: Outage) -> ToolAnswer:
        """Answer a tool call as `ask` does, but return an error as the answer's text instead of
        raising it.
        """
        try:
            return await self.ask(call, trouble)
        except TimeoutError:
            return ToolAnswer(f"{trouble.sentence}; and this device could not answer in time itself: try again")
        except ConfideError as error:
            return ToolAnswer(error.with_hint)

    async def answer_from(
        self,
        tool: Mapping[str, Any],
        arguments: Any,
        names: frozenset[tuple[str, str]],
        reason: Reason,
        *,
        within_s: float,
    ) -> ToolAnswer:
        """Search or read only the files `names`, which the daemon lacks, to complete its result.

        Args:
            tool: the called tool's entry in the tool catalogue.
            names: project and path of each file.
            reason: the reason for the result's warnings.
            within_s: seconds that reading the files may take.

        Raises ToolError, OfflineError, FolderError or JournalError if the files cannot be searched
        or read.
        """
        checked = check(Parameters.of_catalogue(tool), arguments)
        await self._recall(OfflineCall(tool, arguments))
        return await asyncio.to_thread(self._answer_from, tool["name"], checked, names, reason, within_s)

    def _answer_from(
        self, tool: str, checked: dict[str, object], names: frozenset[tuple[str, str]], reason: Reason, within_s: float
    ) -> ToolAnswer:
        memory = LocalMemory(self._memory.folders.values(), self._waiting, only=names, budget_s=within_s)
        try:
            if tool == READ:
                return local_tools.read(memory, self._project, checked, reason)
            return local_tools.search(memory, self._project, self._as_kept(checked), reason)
        finally:
            memory.close()

    def waiting_places(self) -> list[tuple[str, str]]:
        """Return the project and path of each document that a queued call will change. Blocks
        briefly. Raises JournalError if the queue cannot be read.
        """
        if is_empty(self.journal.folder):
            return []
        return [(entry.target, entry.path) for entry in self.journal.waiting(frozenset(self._memory.folders))]

    def close(self) -> bool:
        """Release the memory of the search index; return True if there was an index. Blocks while a
        search runs.
        """
        return self._memory.close()

    async def _recall(self, call: OfflineCall) -> None:
        """Load the keys if a text has to be shown as it will be sealed."""
        if is_empty(self.journal.folder):
            given = call.arguments if isinstance(call.arguments, dict) else {}
            await self._sealed_calls.recall(ToolCall(call.tool["name"], given, self._project))
        else:
            await self._sealed_calls.sealing.keyring.recall()

    def _answer(self, call: OfflineCall, trouble: Outage) -> ToolAnswer:
        name, kind = call.tool["name"], call.tool.get("_meta", {}).get(OFFLINE)
        if trouble.is_told:
            return self._refuse(name, trouble)
        if kind == "queue":
            return self._queue(call, trouble)
        if kind == "local" and name == "memory_search":
            arguments = self._as_kept(check(Parameters.of_catalogue(call.tool), call.arguments))
            return local_tools.search(self._memory, self._project, arguments, trouble)
        if kind == "local" and name == "memory_read":
            arguments = check(Parameters.of_catalogue(call.tool), call.arguments)
            return local_tools.read(self._memory, self._project, arguments, trouble)
        return self._refuse(name, trouble)

    def _refuse(self, name: str, trouble: Outage) -> ToolAnswer:
        try:
            waiting = queue_sentence(self.journal.counts())
        except ConfideError as error:
            waiting = str(error)  # reported in addition to the outage
        lines = [trouble.sentence]
        if not trouble.is_final:
            lines[0] += "; Confide keeps trying, and this tool needs the daemon"
        if name == "secret_get":
            lines.append("the sealed records are with the daemon; this device has only the keys to them")
        if trouble.hint:
            lines.append(f"hint: {trouble.hint}")
        if waiting:
            lines.append(waiting)
        return ToolAnswer("\n".join(lines))

    def _seal_arguments(self, entry: QueuedCall) -> Mapping[str, object]:
        return self._sealed_calls.seal_for_display(ToolCall(entry.tool, entry.arguments, entry.project, entry.said))

    def _waiting(self, targets: frozenset[str]) -> list[QueuedCall]:
        """Return the queued calls with their arguments as they will be sealed, so that an answer
        reveals no more than the daemon's would.
        """
        waiting = self.journal.waiting(targets)
        self._queued_calls = {each.id: self._queued_calls.get(each.id) or self._as_shown(each) for each in waiting}
        return list(self._queued_calls.values())

    def _as_shown(self, entry: QueuedCall) -> QueuedCall:
        try:
            return replace(entry, arguments=dict(self._seal_arguments(entry)))
        except ConfideError as error:
            # The policy has changed since the call, and blocks its text now.
            return replace(entry, arguments={**entry.arguments, "content": f"({error})"})

    def _as_kept(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Seal the arguments of a search, since the searched texts are sealed: a search for a
        credential finds its placeholder.
        """
        try:
            return dict(self._sealed_calls.seal(arguments, is_lookup=True)[0])
        except ConfideError:
            return arguments  # a blocked text may be searched for here, since it is not sent

    def _queue(self, call: OfflineCall, trouble: Outage) -> ToolAnswer:
        arguments = check(Parameters.of_catalogue(call.tool), call.arguments)
        if trouble.is_final:
            raise ToolError(f"not stored: {trouble.sentence}", hint=trouble.hint)
        said = call.said or datetime.now().astimezone().isoformat(timespec="seconds")
        name, project = call.tool["name"], self._project
        wish = QueuedCall(call.operation or new_id(), time.time(), said, project, name, "", project, arguments)
        # As the files are now: they may have changed when the call is sent.
        seen = self._sealed_calls.seen_here(ToolCall(name, arguments, project))
        wish = replace(wish, class_=call.class_ or "", seen=None if seen is None else dict(seen))
        # A text that the policy blocks is refused now; the name of a note follows from the sealed
        # arguments.
        shown = self._seal_arguments(wish)
        entry = queued_writes.place_call(wish, shown)
        return queued_writes.answer(entry, shown, self.journal.append(entry), trouble)
