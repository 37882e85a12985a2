# ruff: noqa: E402 - the packages have to be in place before anything of them is imported
"""What a daemon takes of the MCP SDK: its loop for one connection, without the client and the web server that come with it.

The package's `__init__`, and that of its `server`, import all of it: an HTTP client, Starlette, OAuth. None of these has a part here, where
messages come over a channel of our own, and they take 10 MB of every daemon and a quarter of a second of its start. So the two are put in
place unrun, and run when somebody asks them for something else than a module. Whoever needs anything of the SDK takes it from here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import pydantic


def _unrun(name: str) -> None:
    """Puts a package in place whose `__init__` runs when something of it is asked for."""
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__dict__["__getattr__"] = partial(_run, package)
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def _run(package: ModuleType, wanted: str) -> Any:
    if wanted.startswith("__"):  # what the import system looks for
        raise AttributeError(wanted)
    del package.__dict__["__getattr__"]
    assert package.__spec__ is not None
    assert package.__spec__.loader is not None
    package.__spec__.loader.exec_module(package)
    return getattr(package, wanted)


_unrun("mcp")
_unrun("mcp.server")

# Of some three hundred models a connection uses a dozen. Each is put together when it is first used, not all of them at the start: 3 MB.
pydantic.BaseModel.model_config["defer_build"] = True

import mcp_types as types
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_dual_era_loop
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from confide_memory.tools.call import spelled_out

__all__ = [
    "Entry",
    "InMemorySubscriptionBus",
    "ListenHandler",
    "MCPError",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Server",
    "SessionMessage",
    "serve_dual_era_loop",
]

Handler = Callable[[Any, Any], Awaitable[Any]]
"""Gets the request's surroundings and its checked parameters; gives a result of the SDK's."""


class Entry(NamedTuple):
    """What answers a method, and what its parameters are checked against."""

    params_type: type[Any]
    handler: Handler


class CallParams(types.CallToolRequestParams):
    """The parameters of `tools/call`, where several clients send `arguments` as one string of JSON."""

    @pydantic.field_validator("arguments", mode="before")
    @classmethod
    def _spelled_out(cls, value: Any) -> Any:
        return spelled_out(value)


PARAMS: Mapping[str, type[Any]] = {
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
    "tools/call": CallParams,
}
"""The methods that are answered."""


class Server:
    """What the SDK's loop asks about the server that it serves, in the place of the SDK's own, which is a web server too.

    `middleware` stays empty: the SDK's spans would carry tool arguments to whatever exporter is installed.
    """

    def __init__(self, described: Mapping[str, Any], handlers: Mapping[str, Handler]) -> None:
        """
        Args:
            described: `serverInfo`, `instructions` and `capabilities`, as they are on the wire.
            handlers: by method, of `PARAMS`; `ping` and `server/discover` are answered here.
        """
        self.middleware: list[Any] = []
        self.cache_hints: dict[str, object] = {}
        self._info = dict(described["serverInfo"])
        self._instructions = described["instructions"]
        self._capabilities = types.ServerCapabilities.model_validate(described["capabilities"])
        own = {"ping": self._ping, "server/discover": self._discover}
        entries = {method: Entry(PARAMS[method], handler) for method, handler in {**own, **handlers}.items()}
        self.get_request_handler = entries.get
        """What answers a method; None: nothing here."""

    # Of the SDK's session manager, where it is used (the gateway).

    @asynccontextmanager
    async def lifespan(self, _server: Any) -> AsyncIterator[dict[str, object]]:
        yield {}

    def get_tool_input_schema(self, _name: str) -> None:
        """None of our tools has parameters that go into headers too; where this was missing, each call would list all of them."""

    def get_notification_handler(self, _method: str) -> Entry | None:
        return None

    @property
    def server_info_stamp(self) -> dict[str, object]:
        """For each result of the later era."""
        return dict(self._info)

    def create_initialization_options(self) -> InitializationOptions:
        """For `initialize`, in the older era."""
        return InitializationOptions(
            server_name=self._info["name"],
            server_version=self._info["version"],
            title=self._info["title"],
            capabilities=self._capabilities,
            instructions=self._instructions,
        )

    async def _ping(self, _context: Any, _params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    async def _discover(self, _context: Any, _params: Any) -> types.DiscoverResult:
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self._capabilities,
            instructions=self._instructions,
        )
