"""Whether what the daemon found is all that this machine's files could have brought, for one session.

A search of a new space comes before its files: it is asked again once they are there, within a moment, and else completed from this disk.
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
"""Tools whose answers hang on what of this machine's files the daemon has."""
_STATUS: Final = "memory_status"
_LISTS: Final = frozenset({"memory_search", "memory_list", "entity_list", "entity_search"})
"""Those of which a part may be missing."""
WAIT_S: Final = 1.2
"""How long an answer of nothing waits for files that are on their way; with what follows it is answered within two seconds."""
HERE_S: Final = 0.6
"""How long files are then searched here."""
LINKED_S: Final = 0.5
IN_VAIN_S: Final = 30.0
"""After one has waited in vain, none waits for so long: thousands of files take minutes."""
_PAUSES_S: Final = (0.03, 0.06, 0.12, 0.2)


class ClientCall(Protocol):
    """The call of a client's that an answer is to, as the tunnel keeps it."""

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
    """Runs in the session's event loop. `offline` gives the search over local files."""

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
        """Whether all files of this session were seen to be with the daemon, over this connection."""
        return self._is_level

    def on_down(self) -> None:
        """The link is down: nobody knows what becomes of the files meanwhile."""
        self._is_level = False

    def may_lack(self, tool: str, result: Mapping[str, object]) -> bool:
        """Whether to look closer at a result: it found nothing, or the files were not seen to be with the daemon. Costs next to nothing."""
        if tool == _STATUS:
            return bool(memory_notices())
        return tool in ABOUT_FILES and (not self._is_level or unindexed.is_nothing(result))

    async def complete(
        self, call: ClientCall, tool: Mapping[str, object], result: dict[str, object]
    ) -> dict[str, Any] | None:
        """The result as its client gets it: as it is, where nothing is missing; None: it is to be asked again, since all is there now.

        `tool`: as the catalogue lists it. Raises ConfideError, OSError: the files cannot be looked at.
        """
        if call.tool == _STATUS:
            return unindexed.completed(result, [], memory_notices(), own=self._own)
        is_nothing = unindexed.is_nothing(result)
        lacking = await asyncio.to_thread(self._lacking, call)
        if not is_nothing and call.tool not in _LISTS:
            return result
        if is_nothing and not call.is_asked_again and (lacking.pending or not call.is_level):
            # Also where none is pending now: they may have come between the daemon's answer and this look.
            call.lacking = await self._waited(call, lacking)
            return None
        if is_nothing and call.lacking is not None:
            # As it was when it was asked again: what has come since then is not in that answer either.
            lacking = call.lacking
        others = await self._elsewhere(call) if is_nothing and call.tool == unindexed.SEARCH else []
        if is_nothing and call.tool == unindexed.SEARCH:
            others = [*others, *memory_notices()]
        # What cannot be sent at all is told where nothing was found, and not at each search.
        said = unindexed.notes(lacking if is_nothing else lacking._replace(unsent={}), self._own, others)
        if not said or call.is_settled:
            return result
        # What is found here has no class, and may be of projects that who asks does not reach.
        is_plain = not call.is_bound and call.meta.keys().isdisjoint((CLASSES, UNASKED))
        if is_plain and lacking.pending:
            reason = unindexed.Reason(unindexed.sentence(lacking, self._own))
            here = await self._here(call, tool, frozenset(lacking.pending[: unindexed.MOST_SEARCHED]), reason)
            if call.tool == unindexed.READ and here is not None:
                return here
            if here is not None:
                return unindexed.completed(result, here["results"], said, own=self._own)
        return unindexed.completed(result, [], said, own=self._own)

    def _lacking(self, call: ClientCall) -> Behind:
        """What of the files that the call is about is not with the daemon, and what waits in the queue. Blocks."""
        replicas = self._files.replicas
        found = behind.behind(replicas)
        self._is_level = bool(replicas) and not found.pending
        if os.path.exists(self._queue_file):  # noqa: PTH110 - most sessions never have one
            found = found._replace(pending=tuple(dict.fromkeys((*found.pending, *self._offline().waiting_places()))))
        found = found.of(unindexed.projects_of(call.params.get("arguments"), self._own))
        within = call.meta.get(WITHIN)
        projects = within.get("projects") if isinstance(within, dict) else None
        return found if projects is None else found.of(projects)

    async def _waited(self, call: ClientCall, lacking: Behind) -> Behind:
        """What is missing still, once all is with the daemon or a moment is over."""
        end = time.monotonic() + WAIT_S
        pauses = iter(_PAUSES_S)
        pause_s = _PAUSES_S[-1]
        while lacking.pending and not call.is_settled and self._in_vain_until <= time.monotonic() < end:
            await asyncio.sleep(pause_s := next(pauses, pause_s))
            lacking = await asyncio.to_thread(self._lacking, call)
        if lacking.pending and time.monotonic() >= end:
            self._in_vain_until = time.monotonic() + IN_VAIN_S
        return lacking

    async def _here(
        self, call: ClientCall, tool: Mapping[str, object], names: frozenset[tuple[str, str]], reason: Any
    ) -> dict[str, Any] | None:
        """What these files hold of it: hits of a search as `results`, a read as a tool's result; None: nothing, or not in time."""
        if call.tool not in (unindexed.READ, unindexed.SEARCH):
            return None
        work = self._offline().among(tool, call.params.get("arguments"), names, reason, within_s=HERE_S)
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

    async def _elsewhere(self, call: ClientCall) -> list[str]:
        """What is to be said of other projects that were searched, and have a folder on this machine that was not compared."""
        arguments = call.params.get("arguments")
        asked = arguments.get("project") if isinstance(arguments, dict) else None
        if call.is_bound or (isinstance(asked, str) and asked == self._own):
            return []
        known = await asyncio.to_thread(behind.other_folders, self._paths, self._own)
        if isinstance(asked, str) and asked.strip():
            wanted = known.keys() if asked == "*" else {asked}
        else:
            wanted = set(await self._linked()) if known else set()
        folders = {name: root for name, root in known.items() if name in wanted}
        found = await asyncio.to_thread(behind.uncompared, self._paths, self._config, self._link.space, folders)
        return [unindexed.elsewhere(name, count) for name, count in list(found.items())[: unindexed.MOST_NAMED]]

    async def _linked(self) -> list[str]:
        """The projects that are searched with this one."""
        try:
            answer = await PROJECTS.ask(self._link, {"project": self._own}, timeout_s=LINKED_S)
        except (ConfideError, TimeoutError):
            return []
        return [each["name"] for each in answer["projects"] if each["linked"]]
