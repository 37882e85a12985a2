"""Presents the MCP server of a token to the SDK's session manager; `AgentServer` answers the
requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import anyio
import mcp_types as types
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

from confide_daemon.server.mcp import mcp_protocol
from confide_daemon.server.mcp.agent_server import RESOURCE_UPDATED, RESOURCES_CHANGED
from confide_daemon.server.mcp.mcp_protocol import Handler, Message, ProtocolError
from confide_http.server.answering.offered_views import OfferedViews

SESSION_HEADER: Final = "mcp-session-id"
PARAMS: Final[Mapping[str, type[Any]]] = {
    "ping": types.RequestParams,
    "server/discover": types.RequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
    "subscriptions/listen": types.SubscriptionsListenRequestParams,
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
}
"""The SDK's parameter model of each method."""
_NEWS: Final[Mapping[str, type[Any]]] = {
    "notifications/subscriptions/acknowledged": types.SubscriptionsAcknowledgedNotification,
    RESOURCES_CHANGED: types.ResourceListChangedNotification,
    RESOURCE_UPDATED: types.ResourceUpdatedNotification,
}


class MethodHandler(NamedTuple):
    """A function that answers a method, and the SDK's model of the method's parameters."""

    params_type: type[Any]
    handler: Callable[[Any, Any], Awaitable[Message]]


class Served:
    """Has the methods and attributes that the SDK's session manager uses of an MCP server. It
    replaces the SDK's `Server`, which would also be a web server.

    `middleware` lacks the SDK's own tracing, whose spans would send tool arguments to any installed
    exporter.
    """

    def __init__(self, described: Message, handlers: Mapping[str, Handler]) -> None:
        """Args:
        described: `serverInfo`, `instructions` and `capabilities`, as on the wire.
        handlers: by method of `PARAMS`; `ping` and `server/discover` are answered here.
        """
        self.middleware: list[Any] = [OfferedViews(described["serverInfo"])]
        self.cache_hints: dict[str, object] = {}
        self._metadata_routes = described
        own = {"ping": mcp_protocol.pong, "server/discover": mcp_protocol.discovering(described)}
        entries = {
            method: MethodHandler(PARAMS[method], _answering(method, one))
            for method, one in {**own, **handlers}.items()
        }
        self.get_request_handler = entries.get
        """Returns the handler of a method, or None."""

    @asynccontextmanager
    async def lifespan(self, _server: Any) -> AsyncIterator[dict[str, object]]:
        yield {}

    def get_tool_input_schema(self, _name: str) -> None:
        """Return None, since none of our tools has parameters in headers. Without this method the
        SDK would list all tools for each call.
        """

    def get_notification_handler(self, _method: str) -> MethodHandler | None:
        return None

    @property
    def server_info_stamp(self) -> dict[str, object]:
        """The name and version of the server, which each result of protocol version 2026-07-28
        contains.
        """
        return dict(self._metadata_routes["serverInfo"])

    def create_initialization_options(self) -> InitializationOptions:
        """Return the options for `initialize`, which older protocol versions use."""
        info = self._metadata_routes["serverInfo"]
        return InitializationOptions(
            server_name=info["name"],
            server_version=info["version"],
            title=info["title"],
            capabilities=types.ServerCapabilities.model_validate(self._metadata_routes["capabilities"]),
            instructions=self._metadata_routes["instructions"],
        )


def _answering(method: str, handler: Handler) -> Callable[[Any, Any], Awaitable[Message]]:
    async def answer(context: Any, _params: Any) -> Message:
        asked = _SdkRequest(context)
        try:
            result = await handler(asked)
        except ProtocolError as error:
            raise MCPError(code=error.code, message=error.message, data=error.data) from None
        return mcp_protocol.complete(method, result) if asked.is_modern else result

    return answer


@dataclass(frozen=True, slots=True)
class _SdkRequest:
    """A request of the SDK's in the form that handlers take (`mcp_protocol.Asked`)."""

    context: Any

    @property
    def id(self) -> str | int:
        found: str | int = self.context.request_id
        return found

    @property
    def params(self) -> Mapping[str, Any]:
        return self.context.params or {}

    @property
    def is_modern(self) -> bool:
        return self.context.session.protocol_version in mcp_protocol.MODERN_VERSIONS

    @property
    def session(self) -> str:
        request = self.context.request
        return "" if request is None else request.headers.get(SESSION_HEADER, "")

    async def notify(self, method: str, params: Message) -> None:
        await self.context.session.send_notification(_notification(method, params), related_request_id=self.id)

    async def notify_session(self, method: str, params: Message | None = None) -> None:
        # The client may have just left.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.context.session.send_notification(_notification(method, params))

    async def report(self, done: float, total: float | None, message: str) -> None:
        await self.context.session.report_progress(done, total, message)


def _notification(method: str, params: Message | None) -> Any:
    return _NEWS[method].model_validate({"method": method, **({} if params is None else {"params": params})})
