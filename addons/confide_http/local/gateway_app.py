"""Builds the ASGI application: groups of routes, each with its own authentication, behind the
request guard.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from confide_http.door.bearer_auth import Bearer
from confide_http.door.guard import LOOPBACK, GatewayNames, application
from confide_http.door.request_limits import MAX_STREAMS_EACH, Places
from confide_http.local.calls import Calls
from confide_http.local.daemon_failures import refusal_of
from confide_http.local.local_tokens import LocalTokens, TokenFile
from confide_http.local.request_identity import SCOPES, RequestIdentity, identity_of_token
from confide_http.local.upstream import UpstreamSession
from confide_proxy.config import ProxyConfig
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 64
PULSE_S: Final = 0.5
"""Interval of the check that the tokens of open streams are still valid."""
KEEP_USED_S: Final = 60.0
SSE: Final = "text/event-stream"
HTTP_PORT: Final = 80
"""The default port, which clients leave out."""
LINKS: Final = "/panel/in/"
"""The path prefix of the panel's one-time links, which are opened from a file."""

_HINT: Final = "confide http token new makes one; send it as Authorization: Bearer TOKEN"

Handler = Callable[[Request], Awaitable[Response]]
Admit = Callable[[Request], Awaitable[RequestIdentity]]
"""Authenticates a request. Raises RefusalError: not authenticated."""


@dataclass(eq=False)
class GatewayShared:
    """The state that all route groups share.

    Attributes:
        port: the port on which the gateway listens; 0 before that.
        by_token: authentication by bearer token.
        calls: calls the tools of the daemon.
        streams: limits the number of open streams.
        counts: counters of route groups, for `/health`.
        work: background work of route groups, by the name that reports of a problem use.
        is_ending: True once the process ends; all streams then end.
        imports: allows one import or sealing of all texts at a time.
        began: start of the process, in `time.monotonic`.
        used_at: last request or stream of an authenticated client, in `time.monotonic`.
    """

    paths: ProxyPaths
    config: ProxyConfig
    exchange: UpstreamSession
    port: int = 0
    began: float = field(default_factory=time.monotonic)
    used_at: float = field(default_factory=time.monotonic)
    is_ending: bool = False
    counts: dict[str, Callable[[], int]] = field(default_factory=dict)
    work: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = LocalTokens(TokenFile(self.paths.gateway))
        self.by_token = Bearer(self._find_identity, lambda: self.origin, SCOPES, hint=_HINT)
        self.calls = Calls(self.exchange)
        self.streams = Places("streams", most=MAX_STREAMS, each=MAX_STREAMS_EACH)
        self.imports = Places("imports or sealings", most=1, each=1)
        self._watchers: dict[Callable[[], object], RequestIdentity] = {}

    @property
    def origin(self) -> str:
        """The origin of the gateway's URLs, such as `http://127.0.0.1:8080`."""
        return f"http://127.0.0.1:{self.port}"

    def parameters(self, tool: str) -> Mapping[str, Mapping[str, object]]:
        """Return the schemas of a tool's parameters, by name."""
        found: Mapping[str, Mapping[str, Any]] = self.exchange.catalogue.tools[tool]["inputSchema"]["properties"]
        return found

    @contextmanager
    def streaming(self, identity: RequestIdentity, end: Callable[[], object]) -> Iterator[None]:
        """Count one open stream of the sender within the context.

        `end` is called once when the stream must end, which is within a second after the sender's
        access has expired, or when the gateway ends. Raises RefusalError with status 429 if too
        many streams are open.
        """
        with self.streams.place(identity.key):
            self._watchers[end] = identity
            if self.is_ending:
                end()
            try:
                yield
            finally:
                self._watchers.pop(end, None)

    def is_good(self, identity: RequestIdentity) -> bool:
        """Return True if the token of the sender is still valid, or if the sender was authenticated
        without a token: then the code that did so checks its expiry.
        """
        return not identity.is_of_token or self.tokens.good(identity.key) is not None

    def _find_identity(self, digest: bytes) -> RequestIdentity | None:
        token = self.tokens.find(digest)
        return None if token is None else identity_of_token(token)

    def note_used(self) -> None:
        """Record a request by an authenticated client."""
        self.used_at = time.monotonic()

    async def idle(self, after_s: float) -> None:
        """Return when no authenticated request has come for `after_s` seconds and no stream is
        open.
        """
        while True:
            if self.streams.uses:
                self.note_used()
            left_s = self.used_at + after_s - time.monotonic()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, KEEP_USED_S))

    async def watch(self) -> None:
        """End the streams of tokens that were removed or have expired; runs until cancelled."""
        kept_at, told = time.monotonic(), ""
        while True:
            await asyncio.sleep(PULSE_S)
            for end, identity in list(self._watchers.items()):
                if not self.is_good(identity):
                    del self._watchers[end]
                    end()
            if (problem := self.tokens.problem or "") != told:
                told = problem
                if problem:
                    log.warning("no client is let in: %s", problem)
            if time.monotonic() - kept_at > KEEP_USED_S:
                kept_at = time.monotonic()
                await asyncio.to_thread(self.tokens.save_uses)

    def end(self) -> None:
        """End all streams and waiting requests, since the process ends."""
        self.is_ending = True
        for end in list(self._watchers):
            end()
        self.exchange.close()


class EventStreamResponse(StreamingResponse):
    """An endless response of events, which counts as one of the gateway's streams.

    Args:
        end: called to end the events, when the sender's access has expired or the gateway ends.
        over: called once the response has ended, even if it never began.

    Raises RefusalError with status 429 if too many streams are open.
    """

    def __init__(
        self,
        gateway: GatewayShared,
        identity: RequestIdentity,
        events: AsyncIterator[bytes],
        *,
        end: Callable[[], object],
        over: Callable[[], object] = lambda: None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        with ExitStack() as held:
            held.callback(over)
            held.enter_context(gateway.streaming(identity, end))
            self._resources = held.pop_all()
        super().__init__(events, media_type=SSE, headers={"X-Accel-Buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources:
            await super().__call__(scope, receive, send)


@dataclass(frozen=True)
class RouteGroup:
    """Routes with the same authentication.

    Attributes:
        routes: routes of starlette; their endpoints get the sender from `identity_of`.
        admit: authenticates a request; None if the routes need no authentication, which is only for
            public content.
    """

    routes: Sequence[Route]
    admit: Admit | None


def create(gateway: GatewayShared, rooms: Sequence[Callable[[GatewayShared], RouteGroup]]) -> ASGIApp:
    """Return the ASGI application that serves these route groups."""
    routes: list[Route] = []
    for each in rooms:
        room = each(gateway)
        for route in room.routes:
            endpoint = _admit(route.endpoint, room.admit, gateway.note_used)
            routes.append(Route(route.path, endpoint, methods=sorted(route.methods or {"GET"})))
    return application(routes, names(gateway.port), hint="its log has the place", told=refusal_of)


def names(port: int) -> GatewayNames:
    """Return the host names under which a gateway on this port of this device accepts requests."""
    hosts = [f"{name}:{port}" for name in LOOPBACK]
    return GatewayNames(hosts if port != HTTP_PORT else [*hosts, *LOOPBACK], ("http",), (LINKS,), in_frames=True)


def identity_of(request: Request) -> RequestIdentity:
    """Return the authenticated sender of a request."""
    identity = request.state.identity
    assert isinstance(identity, RequestIdentity)
    return identity


def _admit(endpoint: Handler, admit: Admit | None, used: Callable[[], None]) -> Handler:
    @wraps(endpoint)
    async def handle(request: Request) -> Response:
        if admit is not None:
            request.state.identity = await admit(request)
            used()
        return await endpoint(request)

    return handle
