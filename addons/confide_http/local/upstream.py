"""One session with the daemon, and the many requests of HTTP that share it.

`confide mcp` has a `Tunnel` for its one client. Here the gateway is that client: each request gets an id of the gateway's own on its way
in, and the answer is found by it. So offline answers, the journal, sealing, deadlines and streams are the tunnel's, to the last rule.
Everything is asked in the 2026-07-28 era, in which a request carries all that it needs; what came from an older client is put into that
form, and the answer taken out of it (`streamable`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NotRequired, TypedDict

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_http.door.refusals import RefusalError
from confide_http.local.daemon_failures import refusal_of
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.tools.call import WITHIN
from confide_proxy import VERSION
from confide_proxy.config import ProxyConfig
from confide_proxy.link.connection_terms import RELINK_DEADLINE_S, attach_body
from confide_proxy.link.daemon_link import Link
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp.agent_session import AgentSession
from confide_proxy.mcp.catalogue import VERSION_KEY, ToolCatalogue
from confide_proxy.mcp.incoming import CANCELLED, PROGRESS
from confide_proxy.mcp.jsonrpc import REPLAY_ID, encoded
from confide_proxy.mcp.tunnel import FIRST_LINK_DEADLINE_S, Tunnel
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project

log = logging.getLogger(__name__)

PROTOCOL: Final = "2026-07-28"
_META: Final = "io.modelcontextprotocol/"
ENVELOPE: Final[Mapping[str, object]] = {
    VERSION_KEY: PROTOCOL,
    f"{_META}clientInfo": {"name": "confide", "version": VERSION},
    f"{_META}clientCapabilities": {},
}
"""What a request of the 2026-07-28 era says of its client: ours, since what the other one can be asked for is no business of a daemon's."""
MOST_ATTACHED: Final = 8
"""Projects of one connection (PROTOCOL.md 9.2)."""
ATTACH_S: Final = 5.0

Params = Mapping[str, Any]
"""Of a request, as its client gave them: each method has its own."""
Message = dict[str, Any]
"""Of JSON-RPC: what stands in it follows from its method, and what it carries is checked by who answers."""


class Fault(TypedDict):
    """Why there is no result, as JSON-RPC says it."""

    code: int
    message: str
    data: NotRequired[object]


class ToolResponse(TypedDict, total=False):
    """An answer: one of the two."""

    result: Message
    error: Fault


News = Callable[[str, Message], None]
"""Is told of a notification: its method and its parameters."""


class _Tunnel(Tunnel):
    """One that says whether its link is up, for requests that are no calls and wait for it as calls do."""

    def __init__(self, write: Callable[[bytes], None], catalogue: ToolCatalogue) -> None:
        super().__init__(write, catalogue)
        self.is_there = asyncio.Event()
        self.was_there = False

    def on_up(self) -> None:
        super().on_up()
        self.was_there = True
        self.is_there.set()

    def on_down(self, reason: ConfideError) -> None:
        self.is_there.clear()
        super().on_down(reason)


class UpstreamSession:
    """Runs until cancelled. All of it in one event loop."""

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, project: Project) -> None:
        self.project = project
        self.config = config
        # A person's programs may use every tool; what an agent is shown `streamable` decides.
        self._session_config = replace(config, toolsets=("all",))
        self.tunnel = _Tunnel(self._take, catalogues.packaged())
        self.session = AgentSession(paths, self._session_config, project, self.tunnel)
        self.on_news: News = lambda _method, _params: None
        """Is told of news that are of no request: resources and lists."""
        self._count = 0
        self._answers: dict[str, asyncio.Future[ToolResponse]] = {}
        self._progress: dict[str, News] = {}
        self._attached = {project.name, GLOBAL_PROJECT}
        self._attaching = asyncio.Lock()

    @property
    def link(self) -> Link:
        return self.session.link

    @property
    def catalogue(self) -> ToolCatalogue:
        """All tools that both this version and the daemon know."""
        return self.tunnel.catalogue

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._answers)

    async def run(self) -> None:
        await self.session.run()

    async def ask(
        self,
        method: str,
        params: Params,
        *,
        claims: Params | None = None,
        on_progress: News | None = None,
    ) -> ToolResponse:
        """The answer to a request. To cancel the task cancels the request.

        Args:
            params: as its client gave them, with its `_meta`.
            claims: what this machine says of a tool call in `_meta`.
            on_progress: is told of `notifications/progress`.

        Raises RefusalError: the daemon cannot keep the call to what its claims say.
        """
        claims = claims or {}
        if WITHIN in claims and self.link.is_up and not (self.link.attached and self.link.attached["bounds"]):
            raise RefusalError(
                503,
                "unavailable",
                "the daemon is of a version that cannot keep a token to its projects",
                hint="upgrade the daemon, or use a token of all projects",
            )
        identifier = self.new_id()
        message = self.message(identifier, method, params, follows=on_progress is not None)
        answer: asyncio.Future[ToolResponse] = asyncio.get_running_loop().create_future()
        self._answers[identifier] = answer
        if on_progress is not None:
            self._progress[identifier] = on_progress
        try:
            self.tunnel.receive(encoded(message), claims)
            return await answer  # the tunnel has a deadline for each
        except asyncio.CancelledError:
            self.cancel(identifier)
            raise
        finally:
            self._answers.pop(identifier, None)
            self._progress.pop(identifier, None)

    def new_id(self) -> str:
        """An id that no other request has, nor what is replayed."""
        self._count += 1
        return f"http-{self._count}"

    def message(self, identifier: str, method: str, params: Params, *, follows: bool = False) -> Message:
        """A request in the later era's form. `follows`: its progress is told."""
        meta = params.get("_meta")
        said = (
            {name: value for name, value in meta.items() if name != "progressToken"} if isinstance(meta, dict) else {}
        )
        token = {"progressToken": identifier} if follows else {}
        return {
            "jsonrpc": "2.0",
            "id": identifier,
            "method": method,
            "params": {**params, "_meta": {**said, **ENVELOPE, **token}},
        }

    def cancel(self, identifier: str) -> None:
        """Nobody waits for that request any more."""
        told = {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": identifier}}
        self.tunnel.receive(encoded(told))

    async def request(self, op: str, body: Message, *, timeout_s: float, bulk: bool = False) -> Message:
        """As `Link.request`, once the link is up; a link that is not soon is a ConnectionLost, or the reason that it has."""
        await self._there()
        return await self.link.request(op, body, timeout_s=timeout_s, bulk=bulk)

    async def upload(self, op: str, body: Message, data: bytes, *, timeout_s: float) -> Message:
        """The same with a body."""
        await self._there()
        return await self.link.upload(op, body, data, timeout_s=timeout_s)

    async def _there(self) -> None:
        if self.tunnel.is_there.is_set():
            return
        self.link.poke()
        try:
            async with asyncio.timeout(RELINK_DEADLINE_S if self.tunnel.was_there else FIRST_LINK_DEADLINE_S):
                await self.tunnel.is_there.wait()
        except TimeoutError:
            raise self.link.reason or ConnectionLost(truncated=False) from None

    async def reach(self, project: str) -> None:
        """Have a project attached, so that something can be stored there. Raises RefusalError: it cannot be."""
        if project in self._attached:
            return
        async with self._attaching:
            if project in self._attached:
                return
            if len(self._attached) >= MOST_ATTACHED:
                hint = "serve another project: confide http serve --project FOLDER; or restart this one"
                raise RefusalError(503, "busy", f"this gateway writes to {MOST_ATTACHED} projects already", hint=hint)
            try:
                await self._there()
                async with asyncio.timeout(ATTACH_S):
                    await self.link.also_attach(attach_body(project, self._session_config))
            except (ConfideError, TimeoutError) as error:
                raise refusal_of(error) from error
            self._attached.add(project)

    def close(self) -> None:
        """Whoever waits is told that nothing comes."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(RefusalError(503, "unavailable", "the gateway is ending"))

    def _take(self, line: bytes) -> None:
        """A line of the tunnel's for its client."""
        message = json.loads(line)
        method, identifier = message.get("method"), message.get("id")
        if method is None:
            answer = self._answers.get(str(identifier))
            if answer is not None and not answer.done():
                is_error = "error" in message
                answer.set_result({"error": message["error"]} if is_error else {"result": message.get("result", {})})
            elif isinstance(identifier, str) and not identifier.startswith(REPLAY_ID):
                self.on_news("", message)
            return
        params = message.get("params") or {}
        if method == PROGRESS:
            if (follower := self._progress.get(str(params.get("progressToken")))) is not None:
                follower(method, params)
            return
        self.on_news(method, params)
