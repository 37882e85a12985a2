"""Complete the daemon's results with local files that the daemon does not have yet, for one
session.

The first search in a new space is made before the space's files have been sent. It is repeated a
moment later, when they have arrived; otherwise its result is completed from this device's files.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from confide_crypto.errors import ConfideError
from confide_memory.tools.call import CLASSES, UNASKED, WITHIN
from confide_memory.wire.revisions import PROJECTS
from confide_proxy.config import ProxyConfig
from confide_proxy.link.daemon_link import Link
from confide_proxy.offline import behind, unindexed
from confide_proxy.offline.behind import Behind
from confide_proxy.paths import ProxyPaths, memory_notices
from confide_proxy.sync.workspace import Files

if TYPE_CHECKING:
    from confide_proxy.offline.offline_calls import Offline

ABOUT_FILES: Final = frozenset(
    {"memory_search", "memory_read", "memory_get", "memory_list", "memory_history", "entity_list", "entity_search"}
)
"""Tools whose results depend on which of this device's files the daemon has."""
_STATUS: Final = "memory_status"
_LISTS: Final = frozenset({"memory_search", "memory_list", "entity_list", "entity_search"})
"""Tools whose results may lack a part."""
WAIT_S: Final = 1.2
"""Seconds that an empty result waits for files that are being sent; including the following steps,
the response takes at most two seconds.
"""
HERE_S: Final = 0.6
"""Seconds for the search of local files after that."""
LINKED_S: Final = 0.5
IN_VAIN_S: Final = 30.0
"""Seconds after a wait that timed out in which no call waits again: sending thousands of files
takes minutes.
"""
_PAUSES_S: Final = (0.03, 0.06, 0.12, 0.2)


class ClientCall(Protocol):
    """The client's call that a result answers, with the fields of the tunnel's `PendingCall`."""

    tool: str | None
    is_bound: bool
    is_settled: bool
    is_level: bool
    is_asked_again: bool
    lacking: Behind | None

    @property
    def params(self) -> dict[str, Any]: ...

    @property
    def meta(self) -> dict[str, Any]: ...

    @property
    def is_modern(self) -> bool: ...

    @property
    def is_structured(self) -> bool: ...


class Completion:
    """Completes the daemon's results, in the session's event loop. `offline` returns the search
    over local files.
    """

    def __init__(
        self, paths: ProxyPaths, config: ProxyConfig, files: Files, offline: Callable[[], Offline], link: Link, own: str
    ) -> None:
        """`own`: the session's project."""
        self._paths = paths
        self._config = config
        self._files = files
        self._offline = offline
        self._link = link
        self._own = own
        self._queue_file = os.fspath(paths.journal / "queue")
        self._in_vain_until = float("-inf")
        self._is_level = False

    @property
    def is_level(self) -> bool:
        """Return True if the last check found that the daemon has all files of this session."""
        return self._is_level

    def on_down(self) -> None:
        """Assume that the daemon may lack files, since they may change while the link is down."""
        self._is_level = False

    def may_lack(self, tool: str, result: Mapping[str, object]) -> bool:
        """Return True if a tool's result must be checked with `complete`: it is empty, or the
        daemon may lack files. Costs next to nothing.
        """
        if tool == _STATUS:
            return bool(memory_notices())
        return tool in ABOUT_FILES and (not self._is_level or unindexed.is_nothing(result))

    async def complete(
        self, call: ClientCall, tool: Mapping[str, object], result: dict[str, object]
    ) -> dict[str, Any] | None:
        """Return the result to give to the client, completed with local files if the daemon lacks
        some. None means that the call must be sent to the daemon again, since the files may have
        arrived.

        `tool` is the called tool's entry in the tool catalogue. Raises ConfideError or OSError if
        the local files cannot be checked.
        """
        if call.tool == _STATUS:
            return unindexed.add_local_hits(result, [], memory_notices(), own=self._own)
        is_nothing = unindexed.is_nothing(result)
        lacking = await asyncio.to_thread(self._lacking, call)
        if not is_nothing and call.tool not in _LISTS:
            return result
        if is_nothing and not call.is_asked_again and (lacking.pending or not call.is_level):
            # Also if none is pending now: they may have arrived between the daemon's result and
            # this check.
            call.lacking = await self._wait_for_files(call, lacking)
            return None
        if is_nothing and call.lacking is not None:
            # As of the second call: files that have arrived since are not in its result either.
            lacking = call.lacking
        others = await self._missing_folders(call) if is_nothing and call.tool == unindexed.SEARCH else []
        if is_nothing and call.tool == unindexed.SEARCH:
            others = [*others, *memory_notices()]
        # Files that cannot be sent are reported with empty results only, not with each search.
        said = unindexed.notes(lacking if is_nothing else lacking._replace(unsent={}), self._own, others)
        if not said or call.is_settled:
            return result
        # Local hits have no class, and may be of projects that the caller may not read.
        is_plain = not call.is_bound and call.meta.keys().isdisjoint((CLASSES, UNASKED))
        if is_plain and lacking.pending:
            reason = unindexed.Reason(unindexed.sentence(lacking, self._own))
            here = await self._from_local_files(
                call, tool, frozenset(lacking.pending[: unindexed.MOST_SEARCHED]), reason
            )
            if call.tool == unindexed.READ and here is not None:
                return here
            if here is not None:
                return unindexed.add_local_hits(result, here["results"], said, own=self._own)
        return unindexed.add_local_hits(result, [], said, own=self._own)

    def _lacking(self, call: ClientCall) -> Behind:
        """Return the files that the call is about and the daemon lacks, and the documents of queued
        stores. Blocks.
        """
        replicas = self._files.replicas
        found = behind.behind(replicas)
        self._is_level = bool(replicas) and not found.pending
        if os.path.exists(self._queue_file):  # noqa: PTH110 - most sessions never have one
            found = found._replace(pending=tuple(dict.fromkeys((*found.pending, *self._offline().waiting_places()))))
        found = found.of(unindexed.projects_of(call.params.get("arguments"), self._own))
        within = call.meta.get(WITHIN)
        projects = within.get("projects") if isinstance(within, dict) else None
        return found if projects is None else found.of(projects)

    async def _wait_for_files(self, call: ClientCall, lacking: Behind) -> Behind:
        """Wait until the daemon has the files or `WAIT_S` are over; return those that it still
        lacks.
        """
        end = time.monotonic() + WAIT_S
        pauses = iter(_PAUSES_S)
        pause_s = _PAUSES_S[-1]
        while lacking.pending and not call.is_settled and self._in_vain_until <= time.monotonic() < end:
            await asyncio.sleep(pause_s := next(pauses, pause_s))
            lacking = await asyncio.to_thread(self._lacking, call)
        if lacking.pending and time.monotonic() >= end:
            self._in_vain_until = time.monotonic() + IN_VAIN_S
        return lacking

    async def _from_local_files(
        self, call: ClientCall, tool: Mapping[str, object], names: frozenset[tuple[str, str]], reason: Any
    ) -> dict[str, Any] | None:
        """Search or read these local files: hits of a search as `results`, a read as a tool's
        result; None without a result in time.
        """
        if call.tool not in (unindexed.READ, unindexed.SEARCH):
            return None
        work = self._offline().answer_from(tool, call.params.get("arguments"), names, reason, within_s=HERE_S)
        try:
            async with asyncio.timeout(HERE_S):
                answer = await work
        except (ConfideError, TimeoutError):
            return None
        if answer.structured is None or (call.tool == unindexed.SEARCH and not answer.structured["results"]):
            return None
        if call.tool == unindexed.READ:
            return answer.as_result(is_modern=call.is_modern, is_structured=call.is_structured)
        return answer.structured

    async def _missing_folders(self, call: ClientCall) -> list[str]:
        """Return the notes about other searched projects whose folder on this device was not
        compared.
        """
        arguments = call.params.get("arguments")
        asked = arguments.get("project") if isinstance(arguments, dict) else None
        if call.is_bound or (isinstance(asked, str) and asked == self._own):
            return []
        known = await asyncio.to_thread(behind.other_folders, self._paths, self._own)
        if isinstance(asked, str) and asked.strip():
            wanted = known.keys() if asked == "*" else {asked}
        else:
            wanted = set(await self._linked_projects()) if known else set()
        folders = {name: root for name, root in known.items() if name in wanted}
        found = await asyncio.to_thread(behind.count_unsent, self._paths, self._config, self._link.space, folders)
        return [unindexed.unsent_elsewhere(name, count) for name, count in list(found.items())[: unindexed.MOST_NAMED]]

    async def _linked_projects(self) -> list[str]:
        """Return the projects that are searched together with this one."""
        try:
            answer = await PROJECTS.ask(self._link, {"project": self._own}, timeout_s=LINKED_S)
        except (ConfideError, TimeoutError):
            return []
        return [each["name"] for each in answer["projects"] if each["linked"]]
