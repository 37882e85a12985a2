"""The session with the daemon that all HTTP requests share.

`confide mcp` has a `Tunnel` for its one client. Here the gateway is that client. It gives each
request an id of its own and matches the response by it. So offline answers, the journal, sealing,
deadlines and streams work exactly as in the tunnel. All requests use protocol version 2026-07-28,
in which a request is self-contained. Requests of older clients are converted to that form, and the
responses back (`streamable`).
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
from confide_proxy.mcp.jsonrpc import REPLAY_ID, encode_message
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
"""The client information of a request in the 2026-07-28 era: the gateway's own, since the daemon
has no use for the HTTP client's.
"""
MOST_ATTACHED: Final = 8
"""Most projects of one connection (PROTOCOL.md 9.2)."""
ATTACH_S: Final = 5.0

Params = Mapping[str, Any]
"""The parameters of a request as its client sent them; their form depends on the method."""
Message = dict[str, Any]
"""A JSON-RPC message; its form depends on the method, and its handler validates it."""


class Fault(TypedDict):
    """A JSON-RPC error."""

    code: int
    message: str
    data: NotRequired[object]


class ToolResponse(TypedDict, total=False):
    """The response to a tool call: a result or an error."""

    result: Message
    error: Fault


News = Callable[[str, Message], None]
"""Called with a notification's method and parameters."""


class _Tunnel(Tunnel):
    """A tunnel that reports the state of its link, for requests other than calls, which wait for
    the link as calls do.
    """

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
    """The gateway's session with the daemon. It runs until cancelled, in one event loop."""

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, project: Project) -> None:
        self.project = project
        self.config = config
        # Programs of the user may use every tool; `streamable` decides what an agent sees.
        self._session_config = replace(config, toolsets=("all",))
        self.tunnel = _Tunnel(self._take, catalogues.packaged_catalogue())
        self.session = AgentSession(paths, self._session_config, project, self.tunnel)
        self.on_news: News = lambda _method, _params: None
        """Called with notifications that belong to no request: resources and lists."""
        self._count = 0
        self._answers: dict[str, asyncio.Future[ToolResponse]] = {}
        self._progress: dict[str, News] = {}
        self._attached_projects = {project.name, GLOBAL_PROJECT}
        self._attaching = asyncio.Lock()

    @property
    def link(self) -> Link:
        return self.session.link

    @property
    def catalogue(self) -> ToolCatalogue:
        """Return the tools that both this version of Confide and the daemon know."""
        return self.tunnel.catalogue

    @property
    def waiting(self) -> int:
        """The number of requests that have no response yet."""
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
        """Send a request and return its response. If the calling task is cancelled, so is the
        request.

        Args:
            params: the parameters that the client sent, with its `_meta`.
            claims: fields that this device adds to `_meta` of a tool call.
            on_progress: called with each `notifications/progress`.

        Raises RefusalError if the daemon is too old to enforce the limits in the claims.
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
            self.tunnel.receive(encode_message(message), claims)
            return await answer  # the tunnel has a deadline for each
        except asyncio.CancelledError:
            self.cancel(identifier)
            raise
        finally:
            self._answers.pop(identifier, None)
            self._progress.pop(identifier, None)

    def new_id(self) -> str:
        """Return an id that differs from those of all requests, replayed ones included."""
        self._count += 1
        return f"http-{self._count}"

    def message(self, identifier: str, method: str, params: Params, *, follows: bool = False) -> Message:
        """Build a request in the form of protocol version 2026-07-28. With `follows`, it asks for
        notifications of its progress.
        """
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
        """Cancel the request with this id."""
        fields = {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": identifier}}
        self.tunnel.receive(encode_message(fields))

    async def request(self, op: str, body: Message, *, timeout_s: float, bulk: bool = False) -> Message:
        """Send a request as soon as the connection to the daemon is up, and return the answer.

        Raises ConnectionLost, or the error of the connection, if it does not come up soon.
        """
        await self._there()
        return await self.link.request(op, body, timeout_s=timeout_s, bulk=bulk)

    async def upload(self, op: str, body: Message, data: bytes, *, timeout_s: float) -> Message:
        """Send a request with a body as soon as the connection to the daemon is up, and return the
        answer.

        Raises ConnectionLost, or the error of the connection, if it does not come up soon.
        """
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
        """Attach a project to the session, so that notes can be stored in it. Raises RefusalError
        if it cannot be attached.
        """
        if project in self._attached_projects:
            return
        async with self._attaching:
            if project in self._attached_projects:
                return
            if len(self._attached_projects) >= MOST_ATTACHED:
                hint = "serve another project: confide http serve --project FOLDER; or restart this one"
                raise RefusalError(503, "busy", f"this gateway writes to {MOST_ATTACHED} projects already", hint=hint)
            try:
                await self._there()
                async with asyncio.timeout(ATTACH_S):
                    await self.link.also_attach(attach_body(project, self._session_config))
            except (ConfideError, TimeoutError) as error:
                raise refusal_of(error) from error
            self._attached_projects.add(project)

    def close(self) -> None:
        """Fail all waiting requests, because the gateway ends."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(RefusalError(503, "unavailable", "the gateway is ending"))

    def _take(self, line: bytes) -> None:
        """Handle a line from the tunnel."""
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
