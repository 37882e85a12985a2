"""The endpoint `/mcp`, where each HTTP request carries one MCP message."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from confide_http.door.bearer_auth import PATH
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import body_of
from confide_http.local.calls import CALL, NOT_SERVED
from confide_http.local.gateway_app import SSE, EventStreamResponse, GatewayShared, RouteGroup, identity_of
from confide_http.local.request_identity import WRITE, RequestIdentity
from confide_http.local.streamable import event_streams, framing
from confide_http.local.streamable.framing import JSON, Problem
from confide_http.local.streamable.notifications import Notifications, NotificationStream
from confide_http.local.streamable.sessions import HttpSession, Sessions
from confide_http.local.streamable.task_calls import TaskCalls
from confide_http.local.upstream import PROTOCOL, Message, Params, ToolResponse
from confide_http.local.upstream import News as Follower
from confide_memory.classes import UNTRUSTED
from confide_memory.tools.call import STRUCTURED
from confide_memory.tools.result_views import NONE, ResultViews, shows_views
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp import jsonrpc
from confide_proxy.mcp.catalogue import ToolCatalogue
from confide_proxy.mcp.features import installed_views, task_handles, view_calls
from confide_proxy.mcp.features.subscriptions import (
    CHANGED,
    LISTEN,
    RESOURCES,
    STREAM_KEY,
    acknowledgement_of,
    refusal_of,
    uris_of,
)
from confide_proxy.mcp.incoming import CANCELLED
from confide_proxy.mcp.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PendingCall, key

_PASSED: Final = frozenset({"prompts/get", "resources/read", "completion/complete", catalogues.LIST_RESOURCES})
"""Methods other than tool calls that the daemon answers. They name projects in their own ways, so
they need a token for all projects.
"""
_SUBSCRIBE: Final = "resources/subscribe"
_UNSUBSCRIBE: Final = "resources/unsubscribe"
_UNKNOWN: Final[ToolResponse] = {"error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}}


def routes(gateway: GatewayShared) -> RouteGroup:
    """Return the routes that need a token."""
    endpoint = StreamableEndpoint(gateway)
    routes = [
        Route(PATH, endpoint.post, methods=["POST"]),
        Route(PATH, endpoint.get, methods=["GET"]),
        Route(PATH, endpoint.delete, methods=["DELETE"]),
    ]
    return RouteGroup(routes, gateway.by_token)


class StreamableEndpoint:
    """Passes requests of all protocol versions to the daemon, and streams its notifications."""

    def __init__(self, gateway: GatewayShared) -> None:
        self._gateway = gateway
        self._exchange = gateway.exchange
        self._calls = gateway.calls
        self._news = Notifications(gateway.exchange)
        self._sessions = Sessions(self._news)
        self._tasks = TaskCalls(gateway)
        # In the form that this device's toolsets have for an agent.
        self._toolsets = gateway.config.toolsets
        self._catalogue = catalogues.packaged_catalogue(self._toolsets)
        # Their tools decide with the rights of this device, which only a trusted token has.
        self._views = installed_views.of_addons()
        self._views_of_limited = self._views.without_tools()
        gateway.counts["sessions"] = lambda: len(self._sessions)

    # -- requests of HTTP -----------------------------------------------------------------------------------------

    async def post(self, request: Request) -> Response:
        """Answer the MCP message in a request's body."""
        identity, headers = identity_of(request), request.headers
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise RefusalError(415, "invalid", "the body must be application/json")
        if not framing.accepts(headers, JSON):
            raise RefusalError(406, "invalid", "the answer is application/json or text/event-stream")
        body = await body_of(request)
        if (name := framing.twice(headers)) is not None:
            problem = Problem(framing.HEADER_MISMATCH, f"{name} stands there more than once")
            return framing.json_response(framing.error_message(None, problem))
        try:
            message, _ = jsonrpc.parse_line(body)
        except jsonrpc.MalformedError as error:
            problem = Problem(error.code, str(error))
            return framing.json_response(framing.error_message(error.identifier, problem), status=400)
        try:
            if framing.is_later(message, headers):
                return await self._later(request, identity, message)
            return await self._older(request, identity, message)
        except RefusalError as error:
            return event_streams.refusal_response(message.get("id"), error)

    async def get(self, request: Request) -> Response:
        """Open the stream of a session (protocol versions before 2026-07-28)."""
        identity = identity_of(request)
        if request.headers.get(framing.VERSION_HEADER) == PROTOCOL:
            raise RefusalError(405, "invalid", "this version has no GET", headers={"Allow": "POST"})
        if not framing.accepts(request.headers, SSE):
            raise RefusalError(406, "invalid", "a stream is text/event-stream")
        session = self._sessions.find(request.headers.get(framing.SESSION_HEADER), identity)
        if session.has_stream:
            raise RefusalError(409, "conflict", "this session has a stream already")

        def over() -> None:
            session.has_stream = False

        session.has_stream = True
        listener = session.listener
        return EventStreamResponse(
            self._gateway, identity, event_streams.listening(listener), end=listener.end, over=over
        )

    async def delete(self, request: Request) -> Response:
        """End a session (protocol versions before 2026-07-28)."""
        session = self._sessions.find(request.headers.get(framing.SESSION_HEADER), identity_of(request))
        self._sessions.close(session)
        return Response(status_code=204)

    # -- the 2026-07-28 era ---------------------------------------------------------------------------------------

    async def _later(self, request: Request, identity: RequestIdentity, message: Message) -> Response:
        method, identifier = message.get("method"), message.get("id")
        if method is None:
            return framing.json_response(
                framing.error_message(None, Problem(INVALID_REQUEST, "there is no request in it"))
            )
        if identifier is None:
            # Client notifications have no meaning here: closing the response cancels a request.
            version = request.headers.get(framing.VERSION_HEADER, "")
            if version != PROTOCOL:
                return framing.json_response(framing.error_message(None, framing.unsupported_version(version)))
            return Response(status_code=202)
        if (problem := framing.problem_of_later(message, request.headers)) is not None:
            return framing.json_response(framing.error_message(identifier, problem))
        if method == LISTEN:
            return self._listen(request, identity, message)

        call = PendingCall(message, b"", None, is_repeatable=False)
        if method in task_handles.METHODS:
            return framing.json_response(framing.response_message(identifier, self._tasks.answer(identity, call)))

        async def ask(follower: Follower | None) -> ToolResponse:
            params = message["params"]
            views = self._views_for(identity, params["_meta"].get(catalogues.CAPABILITIES_KEY))
            return await self._outcome(identity, method, params, follower, views)

        async def work(follower: Follower | None) -> ToolResponse:
            takes_long = method == CALL and _tool_of(message["params"]) in self._catalogue.long_jobs
            if takes_long and task_handles.is_understood(call):
                return await self._tasks.outcome(identity, call, ask, follower)
            return await ask(follower)

        return await event_streams.respond(request, message, work, None)

    def _listen(self, request: Request, identity: RequestIdentity, message: Message) -> Response:
        if not framing.accepts(request.headers, SSE):
            raise RefusalError(406, "invalid", "news are text/event-stream")
        stream = PendingCall(message, b"", None, is_repeatable=False, is_stream=True)
        if (refusal := refusal_of(stream)) is not None:
            return framing.json_response(framing.error_message(stream.identifier, Problem(INVALID_PARAMS, refusal)))
        wanted = dict(stream.params["notifications"])
        if identity.is_limited:  # only a client that may access all projects is notified of resources
            wanted = {name: value for name, value in wanted.items() if name not in (RESOURCES, "resourceSubscriptions")}
            stream.message = {**message, "params": {**message["params"], "notifications": wanted}}
        listener = NotificationStream([name for name in CHANGED if wanted.get(name) is True], uris_of(stream))
        self._news.add(listener)
        first, more = framing.event(acknowledgement_of(stream)), {"_meta": {STREAM_KEY: stream.identifier}}
        return EventStreamResponse(
            self._gateway,
            identity,
            event_streams.listening(listener, first=first, more=more),
            end=listener.end,
            over=lambda: self._news.remove(listener),
        )

    # -- the older era --------------------------------------------------------------------------------------------

    async def _older(self, request: Request, identity: RequestIdentity, message: Message) -> Response:
        version = request.headers.get(framing.VERSION_HEADER)
        if version is not None and version not in self._catalogue.data["protocolVersions"]:
            return framing.json_response(framing.error_message(message.get("id"), framing.unsupported_version(version)))
        method, identifier = message.get("method"), message.get("id")
        if method == catalogues.INITIALIZE and identifier is not None:
            params = message.get("params")
            given = params if isinstance(params, dict) else {}
            capabilities = given.get("capabilities")
            result = self._catalogue_for(identity).answer(method, given) or {}
            result = self._views_for(identity, capabilities).extend(method, result)
            session = self._sessions.open(identity, capabilities)
            fields = {framing.SESSION_HEADER: session.identifier}
            return framing.json_response(
                framing.response_message(identifier, {"result": result}), is_later=False, headers=fields
            )
        session = self._sessions.find(request.headers.get(framing.SESSION_HEADER), identity)
        if method is None:
            return Response(status_code=202)  # a response without a request
        if identifier is None:
            self._notice(session, message)
            return Response(status_code=202)

        async def work(follower: Follower | None) -> ToolResponse:
            params = message.get("params")
            given = params if isinstance(params, dict) else {}
            if method in (_SUBSCRIBE, _UNSUBSCRIBE):
                return self._subscribe(session, method, given)
            views = self._views_for(identity, session.capabilities)
            outcome = await self._outcome(identity, method, given, follower, views)
            return {"result": framing.to_older(outcome["result"])} if "result" in outcome else outcome

        return await event_streams.respond(request, message, work, session)

    def _notice(self, session: HttpSession, message: Message) -> None:
        params = message.get("params")
        if message["method"] == CANCELLED and isinstance(params, dict):
            task = session.calls.get(key(params.get("requestId")))
            if task is not None:
                task.cancel()

    def _subscribe(self, session: HttpSession, method: str, params: Params) -> ToolResponse:
        uri = params.get("uri")
        if not isinstance(uri, str):
            return {"error": {"code": INVALID_PARAMS, "message": "'uri' is missing"}}
        if session.identity.is_limited:
            return {"error": {"code": METHOD_NOT_FOUND, "message": "a token of some projects has no resources"}}
        if method == _SUBSCRIBE:
            self._news.subscribe(session.listener, uri)
        else:
            self._news.unsubscribe(session.listener, uri)
        return {"result": {}}

    # -- both -----------------------------------------------------------------------------------------------------

    async def _outcome(
        self,
        identity: RequestIdentity,
        method: str,
        params: Params,
        follower: Follower | None,
        views: ResultViews,
    ) -> ToolResponse:
        """Return the response to a request. Raises RefusalError."""
        if method == catalogues.READ_RESOURCE and (page := views.resource(params.get("uri"))) is not None:
            return {"result": self._catalogue.add_cache_fields(page)}
        if method == CALL:
            name = _tool_of(params)
            if views.has(name):
                return await self._answer_view(identity, views, params)
            if views.concerns(name):
                params = {**params, "_meta": {**(params.get("_meta") or {}), STRUCTURED: True}}
            if name not in self._catalogue.tools or name in NOT_SERVED:
                off = None if name in NOT_SERVED else catalogues.switched_off(name, self._toolsets)
                message = f"{off[0]}; {off[1]}" if off else "unknown tool"
                return {"error": {"code": INVALID_PARAMS, "message": message}}
            return await self._calls.outcome(identity, params, on_progress=follower)
        if method == catalogues.LIST_RESOURCES and identity.is_limited:
            return {"result": {"resources": [], "resultType": "complete"}}
        if method in _PASSED and not identity.is_limited:
            with self._calls.places.place(identity.key):
                return await self._exchange.ask(method, params)
        shown = self._catalogue_for(identity).answer(method, params) if method in catalogues.LOCAL_METHODS else None
        if method == catalogues.DISCOVER and shown is not None:
            shown["capabilities"] = catalogues.with_tasks(shown["capabilities"])
        return {"result": views.extend(method, shown)} if shown is not None else _UNKNOWN

    async def _answer_view(self, identity: RequestIdentity, views: ResultViews, params: Params) -> ToolResponse:
        """Answer a call of a tool that only a page in the client calls. Raises RefusalError."""
        with self._calls.places.place(identity.key):
            place = await self._exchange.session.decision_place()
            answer = await view_calls.answer(views, _tool_of(params), params.get("arguments"), place)
        return {"result": answer.as_result(is_modern=True, is_structured=True)}

    def _views_for(self, identity: RequestIdentity, capabilities: object) -> ResultViews:
        """Return the pages for a client with these capabilities."""
        if not shows_views(capabilities):
            return NONE
        is_trusted = identity.has(WRITE) and not identity.is_limited and identity.class_ != UNTRUSTED
        return self._views if is_trusted else self._views_of_limited

    def _catalogue_for(self, identity: RequestIdentity) -> ToolCatalogue:
        """Return the tools, prompts and resources that this identity sees."""
        may = set(self._calls.tools(identity))
        data = {
            **self._catalogue.data,
            "tools": [tool for tool in self._catalogue.data["tools"] if tool["name"] in may],
        }
        if identity.is_limited:
            data |= {"resources": [], "resourceTemplates": [], "prompts": []}
        return ToolCatalogue(data)


def _tool_of(params: Params) -> str:
    """Return the name of the tool that a call names; "" for one that is no string."""
    name = params.get("name")
    return name if isinstance(name, str) else ""
