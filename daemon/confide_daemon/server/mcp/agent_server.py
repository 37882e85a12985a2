"""The MCP server of one agent: its tools, resources and prompts over in-memory streams, for both protocol eras.

The SDK's loop pairs requests and speaks the protocol; what is answered comes from `tools`, `resources` and `prompts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.documents.changes import Change
from confide_daemon.server.mcp import prompts, resources, tool_calls
from confide_daemon.server.mcp.sdk import (
    InMemorySubscriptionBus,
    ListenHandler,
    MCPError,
    ResourcesListChanged,
    ResourceUpdated,
    Server,
    SessionMessage,
    serve_dual_era_loop,
)
from confide_daemon.server.mcp.tool_calls import MODERN_VERSIONS, Origin, catalogue
from confide_daemon.spaces.space import Space
from confide_daemon.tools.context import ToolContext
from confide_memory.documents import is_note
from confide_memory.tools.call import STRUCTURED

log = logging.getLogger(__name__)

MAX_SUBSCRIBED = 256
"""Resources that a client of the older era is told of, and each stream of one of the newer."""
MAX_STREAMS = 8
MAX_URI = 8192
# Changes that come within this time are told together: a first sync of a thousand files is one.
GATHERED_S = 0.25
# Of one stream: more than can be subscribed to.
MAX_BUFFERED = 1024

MAX_OLDER = 32
"""Sessions of the older era over HTTP that are told of news; none has more of them."""
SESSION_HEADER = "mcp-session-id"

Incoming = SessionMessage | Exception


@dataclass
class _Older:
    """A client that is told unasked, and of which resources."""

    session: Any  # the SDK's, as it asked last
    subscribed: set[str] = field(default_factory=set)


class AgentServer:
    def __init__(
        self,
        held: Callable[[], AbstractAsyncContextManager[Space]],
        refusal: Callable[[], RequestError | None],
        tracked: Callable[[Awaitable[Any]], Awaitable[Any]],
        surroundings: Callable[[Callable[..., Any]], ToolContext],
        toolsets: Callable[[], Sequence[str]],
        *,
        withheld: Callable[[], Collection[str]] = tuple,
        origin: Callable[[Mapping[str, object] | None], Origin] = Origin.of_meta,
        streams: int = MAX_STREAMS,
    ) -> None:
        """What it needs of its connection.

        Args:
            held: has the space open within this; raises RequestError.
            refusal: asked within that, why nothing more is taken now; None: it is.
            tracked: runs something that a shutdown waits for.
            surroundings: of a call that reports its progress so.
            toolsets: what the agent is shown.
            withheld: tools of these that there are none of for this agent.
            origin: what is believed of the `_meta` of a call; raises RequestError.
            streams: of news, at once.
        """
        self._held = held
        self._refusal = refusal
        self._tracked = tracked
        self._surroundings = surroundings
        self._toolsets = toolsets
        self._withheld = withheld
        self._origin = origin
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus, max_subscriptions=streams, max_buffered_events=MAX_BUFFERED)
        self._streams: dict[Any, list[str]] = {}
        self._spellings: dict[str, set[str]] = {}  # of what is subscribed to: our address, the client's
        self._older: dict[str, _Older] = {}
        """Clients of the older era, which are told unasked, by their sessions' ids; a channel's only one has none."""
        self._changed: set[str] = set()
        self._has_moved = False  # a resource has come or gone
        self._news = asyncio.Event()

    async def run(self, server_in: Any, server_out: Any) -> None:
        """Serve one connection until nothing more can be read."""
        telling = asyncio.create_task(self.tell())
        try:
            served: Any = self.served()  # what the SDK asks of a server, without the rest of one
            await serve_dual_era_loop(served, server_in, server_out, lifespan_state={})
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    def served(self) -> Server:
        """What the SDK's loops ask."""
        return Server(
            catalogue(self._toolsets()),
            {
                "tools/list": self._list_tools,
                "tools/call": self._call_tool,
                "resources/list": self._list_resources,
                "resources/templates/list": self._list_templates,
                "resources/read": self._read_resource,
                "resources/subscribe": self._subscribe,
                "resources/unsubscribe": self._unsubscribe,
                "subscriptions/listen": self._listen,
                "prompts/list": self._list_prompts,
                "prompts/get": self._get_prompt,
            },
        )

    def close(self) -> None:
        """Ends the streams of news, so that their clients know that none will come."""
        self._listening.close()

    def changed(self, change: Change) -> None:
        """A document has a new revision; who has subscribed hears of it soon."""
        has_moved = change.before is None or change.text is None
        if not has_moved and not self._spellings:
            return  # an edit, and nobody listens to any resource
        if not self._surroundings(nobody).grants.reaches(change.project, change.path):
            return
        if self._spellings:
            uris = [resources.file_uri(change.project, change.path), resources.project_uri(change.project)]
            if is_note(change.path):
                uris += [resources.CORE, resources.HIGH]
            for uri in uris:
                self._changed |= self._spellings.get(uri, frozenset())
        self._has_moved = self._has_moved or has_moved
        self._news.set()

    async def tell(self) -> None:
        """Tell who listens of what changes, until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHERED_S)
            self._news.clear()
            try:
                await self._tell_once()
            except Exception as error:
                raise_if_cancelled()
                # A bug must not keep a client from all news that follow; its text may quote anything.
                log.error("telling of changed resources broke: %s", type(error).__name__)

    async def _tell_once(self) -> None:
        changed, self._changed = sorted(self._changed), set()
        has_moved, self._has_moved = self._has_moved, False
        for uri in changed:
            await self._bus.publish(ResourceUpdated(uri=uri))
            for older in list(self._older.values()):
                if uri in older.subscribed:
                    await self._send(older.session.send_resource_updated(uri))
        if has_moved:
            await self._bus.publish(ResourcesListChanged())
            for older in list(self._older.values()):
                await self._send(older.session.send_resource_list_changed())

    async def _send(self, sending: Awaitable[None]) -> None:
        # A client that has just left hears nothing any more.
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await sending

    def _saw(self, context: Any) -> _Older:
        """The client that asks, as it is told of news; one of the later era has opened a stream for them."""
        if context.session.protocol_version in MODERN_VERSIONS:
            return _Older(context.session)
        name = "" if context.request is None else context.request.headers.get(SESSION_HEADER, "")
        older = self._older.pop(name, None) or _Older(context.session)
        older.session = context.session
        self._older[name] = older
        while len(self._older) > MAX_OLDER:  # those that have asked nothing for the longest time
            del self._older[next(iter(self._older))]
            self._spell()
        return older

    # tools

    async def _list_tools(self, context: Any, _params: Any) -> mcp_types.ListToolsResult:
        self._saw(context)
        withheld = self._withheld()
        tools = [tool for tool in catalogue(self._toolsets())["tools"] if tool["name"] not in withheld]
        return mcp_types.ListToolsResult.model_validate({"tools": tools})

    async def _call_tool(self, context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        self._saw(context)
        try:
            async with self._held():
                return await self._called(context, params)
        except RequestError as error:
            return tool_calls.refused(error)

    async def _called(self, context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        if (refusal := self._refusal()) is not None:
            return tool_calls.refused(refusal)
        try:
            origin = self._origin(params.meta)
        except RequestError as error:
            return tool_calls.refused(error)
        surroundings = origin.within(self._surroundings(context.session.report_progress))
        is_structured = params.meta is not None and params.meta.get(STRUCTURED) is True
        work = tool_calls.run(
            params.name,
            params.arguments,
            surroundings,
            self._toolsets(),
            is_structured=is_structured,
            withheld=self._withheld(),
        )
        result = await self._tracked(work)
        assert isinstance(result, mcp_types.CallToolResult)
        return result

    # resources

    async def _list_resources(self, context: Any, params: Any) -> mcp_types.ListResourcesResult:
        self._saw(context)
        cursor = params.cursor if params is not None else None
        found, following = await self._asked(lambda context: resources.listed(context, cursor))
        return mcp_types.ListResourcesResult.model_validate({"resources": found, "nextCursor": following})

    async def _list_templates(self, context: Any, _params: Any) -> mcp_types.ListResourceTemplatesResult:
        self._saw(context)
        return mcp_types.ListResourceTemplatesResult.model_validate({"resourceTemplates": list(resources.TEMPLATES)})

    async def _read_resource(self, context: Any, params: Any) -> mcp_types.ReadResourceResult:
        self._saw(context)
        uri = str(params.uri)
        text, meta = await self._asked(lambda context: resources.read(context, uri))
        content = {"uri": uri, "mimeType": resources.MARKDOWN, "text": text, "_meta": meta or None}
        return mcp_types.ReadResourceResult.model_validate({"contents": [content]})

    async def _subscribe(self, context: Any, params: Any) -> mcp_types.EmptyResult:
        subscribed = self._saw(context).subscribed
        uri = str(params.uri)
        if not uri.startswith("memory://") or len(uri) > MAX_URI:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message="no such resource; they begin with memory://")
        if len(subscribed) >= MAX_SUBSCRIBED and uri not in subscribed:
            raise MCPError(
                code=mcp_types.INVALID_PARAMS, message=f"{MAX_SUBSCRIBED} resources are subscribed to already"
            )
        subscribed.add(uri)
        self._spell()
        return mcp_types.EmptyResult()

    async def _unsubscribe(self, context: Any, params: Any) -> mcp_types.EmptyResult:
        self._saw(context).subscribed.discard(str(params.uri))
        self._spell()
        return mcp_types.EmptyResult()

    async def _listen(self, context: Any, params: Any) -> mcp_types.SubscriptionsListenResult:
        uris = [str(uri) for uri in params.notifications.resource_subscriptions or ()]
        if len(uris) > MAX_SUBSCRIBED or any(len(uri) > MAX_URI for uri in uris):
            said = f"a stream is told of at most {MAX_SUBSCRIBED} resources, each of at most {MAX_URI} letters"
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=said)
        token = object()
        self._streams[token] = uris
        self._spell()
        try:
            return await self._listening(context, params)
        finally:
            del self._streams[token]
            self._spell()

    def _spell(self) -> None:
        self._spellings = {}
        for said in set().union(*(older.subscribed for older in self._older.values()), *self._streams.values()):
            for uri in resources.addressed(said):
                self._spellings.setdefault(uri, set()).add(said)

    # prompts

    async def _list_prompts(self, context: Any, _params: Any) -> mcp_types.ListPromptsResult:
        self._saw(context)
        return mcp_types.ListPromptsResult.model_validate({"prompts": prompts.listed()})

    async def _get_prompt(self, context: Any, params: Any) -> mcp_types.GetPromptResult:
        self._saw(context)
        says, text = await self._asked(lambda context: prompts.get(context, params.name, params.arguments))
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return mcp_types.GetPromptResult.model_validate({"description": says, "messages": [message]})

    async def _asked(self, work: Callable[[ToolContext], Awaitable[Any]]) -> Any:
        """What the work comes to, within the deadline of a call; what goes wrong as an error of the protocol."""

        async def timed() -> Any:
            async with asyncio.timeout(tool_calls.CALL_DEADLINE_S):
                return await work(self._surroundings(nobody))

        try:
            async with self._held():
                refusal = self._refusal()
                if refusal is None:
                    return await self._tracked(timed())
        except ConfideError as error:
            raise MCPError(code=tool_calls.protocol_code(error), message=error.in_one_line) from None
        except TimeoutError:
            raise MCPError(code=mcp_types.INTERNAL_ERROR, message="it did not finish in time; try again") from None
        except Exception as error:
            # Neither the peer nor the log gets its text: it may quote what was stored or asked.
            log.error("a resource or prompt failed: %s", type(error).__name__)
            raise MCPError(code=mcp_types.INTERNAL_ERROR, message="it failed inside the daemon") from None
        raise MCPError(code=mcp_types.INTERNAL_ERROR, message=refusal.in_one_line)


async def nobody(_done: float, _total: float | None, _message: str) -> None:
    """Who follows the progress of a call that no client waits for."""
