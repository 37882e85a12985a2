"""The MCP server of one agent, or of all sessions of one HTTP token: it answers requests and sends
notifications.

`mcp_protocol` or the SDK implements the protocol; the answers come from `tools`, `resources` and
`prompts`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.transport.task_group import TaskGroup, raise_if_cancelled
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.server.mcp import prompts, resources, tool_calls
from confide_daemon.server.mcp.mcp_protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    SUBSCRIPTION,
    Conversation,
    Handler,
    McpRequest,
    Message,
    ProtocolError,
    Send,
    stream_filter,
)
from confide_daemon.server.mcp.tool_calls import CallOrigin, catalogue
from confide_daemon.spaces.space import Space
from confide_daemon.tools.tool_context import ToolContext
from confide_memory.documents import is_note
from confide_memory.tools.call import STRUCTURED

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

MAX_SUBSCRIBED = 256
"""Limit on the resources that a client of the older era, or a stream of the later one, may
subscribe to.
"""
MAX_STREAMS = 8
MAX_URI = 8192
# Changes within this time make one notification, such as a first sync of a thousand files.
GATHERED_S = 0.25
# Notifications buffered for one stream: more than it can subscribe to.
MAX_BUFFERED = 1024

MAX_OLDER = 32
"""Limit on the HTTP sessions of the older era that get notifications; beyond it, those idle longest
lose theirs.
"""
RESOURCES_CHANGED = "notifications/resources/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"


@dataclass
class _Older:
    """A client of the older era, which gets notifications unasked, and its subscriptions."""

    last_request: McpRequest  # what it asked last
    subscriptions: set[str] = field(default_factory=set)


class _Stream:
    """A stream of notifications that a client of the later era has opened."""

    def __init__(self, wanted: Message) -> None:
        self.uris: list[str] = wanted.get("resourceSubscriptions", [])
        self.has_lists = bool(wanted.get("resourcesListChanged"))
        self.is_over = False
        self._news: deque[tuple[str, Message]] = deque()
        self._has_news = asyncio.Event()

    def add(self, method: str, params: Message) -> None:
        """Queue a notification. A client that stopped reading loses its stream: it opens a new one
        and reads the current state.
        """
        if not self.is_over:
            self._news.append((method, params))
            self._has_news.set()
            if len(self._news) > MAX_BUFFERED:
                self.end()

    def end(self) -> None:
        self.is_over = True
        self._has_news.set()

    async def news(self) -> AsyncIterator[tuple[str, Message]]:
        """Yield the queued notifications, until the stream has ended and the queue is empty."""
        while self._news or not self.is_over:
            if self._news:
                yield self._news.popleft()
            else:
                self._has_news.clear()
                await self._has_news.wait()


class AgentHost(Protocol):
    """The methods of an agent's connection that its MCP server uses."""

    @property
    def toolsets(self) -> Sequence[str]:
        """The names of the tool groups that the agent sees."""

    @property
    def withheld(self) -> Collection[str]:
        """The names of tools in these groups that the agent must not see."""

    def hold(self) -> AbstractAsyncContextManager[Space]:
        """Keep the space open while the context is active. Raises RequestError if the space cannot
        be opened.
        """

    def refusal(self) -> RequestError | None:
        """Return why requests are refused now, or None if they are accepted. Call it within `hold`."""

    def surroundings(self, report: Callable[..., Any]) -> ToolContext:
        """Return the context of a tool call. `report` receives the call's progress."""

    async def track(self, work: Awaitable[_Result]) -> _Result:
        """Await `work`, and make a shutdown of the daemon wait for it too."""

    def origin(self, meta: Mapping[str, object] | None) -> CallOrigin:
        """Return the facts about a call from its `_meta`, as far as its sender is trusted. Raises
        RequestError if they are malformed.
        """


class AgentServer:
    """Answers the MCP requests of one agent and notifies it of changes."""

    def __init__(self, host: AgentHost, *, streams: int = MAX_STREAMS) -> None:
        """Create the server. `streams` limits the streams of notifications open at once."""
        self._host = host
        self._most_streams = streams
        self._streams: list[_Stream] = []
        self._spellings: dict[str, set[str]] = {}  # of what is subscribed to: our address, the client's
        self._older: dict[str, _Older] = {}
        """Clients of the older era by session id; the single client of a channel has an empty one.
        """
        self._changed_uris: set[str] = set()
        self._has_moved = False  # a resource has come or gone
        self._news = asyncio.Event()

    def conversation(self, send: Send) -> Conversation:
        """Return the conversation with the only client of a channel. `send` transmits a message to
        it.
        """
        return Conversation(catalogue(self._host.toolsets), self.handlers(), send)

    async def run(self, conversation: Conversation) -> None:
        """Answer the conversation's requests and send notifications, until cancelled."""
        async with TaskGroup() as group:
            group.create_task(self.run_notifications())
            await conversation.run()

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of requests by their method."""
        return {
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
        }

    def close(self) -> None:
        """End all streams of notifications, so that clients know that no more will come."""
        for stream in self._streams:
            stream.end()

    def on_change(self, change: DocumentChange) -> None:
        """Record that a document has a new revision; clients that subscribed to it are notified
        soon.
        """
        has_moved = change.before is None or change.text is None
        if not has_moved and not self._spellings:
            return  # an edit, and no client is subscribed
        if not self._host.surroundings(nobody).grants.reaches(change.project, change.path):
            return
        if self._spellings:
            uris = [resources.file_uri(change.project, change.path), resources.project_uri(change.project)]
            if is_note(change.path):
                uris += [resources.CORE, resources.HIGH]
            for uri in uris:
                self._changed_uris |= self._spellings.get(uri, frozenset())
        self._has_moved = self._has_moved or has_moved
        self._news.set()

    async def run_notifications(self) -> None:
        """Send notifications of changes to subscribed clients, until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHERED_S)
            self._news.clear()
            try:
                await self._send_notifications()
            except Exception as error:
                raise_if_cancelled()
                # A bug must not stop all later notifications. Its text may quote anything, so log
                # the class only.
                log.error("notifying of changed resources failed: %s", type(error).__name__)

    async def _send_notifications(self) -> None:
        changed, self._changed_uris = sorted(self._changed_uris), set()
        has_moved, self._has_moved = self._has_moved, False
        for uri in changed:
            for stream in self._streams:
                if uri in stream.uris:
                    stream.add(RESOURCE_UPDATED, {"uri": uri})
            for older in list(self._older.values()):
                if uri in older.subscriptions:
                    await older.last_request.notify_session(RESOURCE_UPDATED, {"uri": uri})
            await asyncio.sleep(0)  # lets streams send their notifications
        if has_moved:
            for stream in self._streams:
                if stream.has_lists:
                    stream.add(RESOURCES_CHANGED, {})
            for older in list(self._older.values()):
                await older.last_request.notify_session(RESOURCES_CHANGED)

    def _saw(self, asked: McpRequest) -> _Older:
        """Return the record of the client that sent a request; a client of the later era has none
        that is kept, only streams.
        """
        if asked.is_modern:
            return _Older(asked)
        older = self._older.pop(asked.session, None) or _Older(asked)
        older.last_request = asked
        self._older[asked.session] = older
        while len(self._older) > MAX_OLDER:  # those that have asked nothing for the longest time
            del self._older[next(iter(self._older))]
            self._spell()
        return older

    async def _list_tools(self, asked: McpRequest) -> Message:
        self._saw(asked)
        withheld = self._host.withheld
        tools = [tool for tool in catalogue(self._host.toolsets)["tools"] if tool["name"] not in withheld]
        return {"tools": tools}

    async def _call_tool(self, asked: McpRequest) -> Message:
        self._saw(asked)
        try:
            async with self._host.hold():
                return await self._answer_call(asked)
        except RequestError as error:
            return tool_calls.refusal_message(error)

    async def _answer_call(self, asked: McpRequest) -> Message:
        if (refusal := self._host.refusal()) is not None:
            return tool_calls.refusal_message(refusal)
        try:
            meta = asked.params.get("_meta")
            origin = self._host.origin(meta)
        except RequestError as error:
            return tool_calls.refusal_message(error)
        surroundings = origin.within(self._host.surroundings(asked.report))
        is_structured = meta is not None and meta.get(STRUCTURED) is True
        work = tool_calls.run(
            asked.params["name"],
            asked.params.get("arguments"),
            surroundings,
            self._host.toolsets,
            is_structured=is_structured,
            withheld=self._host.withheld,
        )
        result: Message = await self._host.track(work)
        return result

    async def _list_resources(self, asked: McpRequest) -> Message:
        self._saw(asked)
        cursor = asked.params.get("cursor")
        found, following = await self._run(lambda context: resources.list_resources(context, cursor))
        return {"resources": found, **({} if following is None else {"nextCursor": following})}

    async def _list_templates(self, asked: McpRequest) -> Message:
        self._saw(asked)
        return {"resourceTemplates": list(resources.TEMPLATES)}

    async def _read_resource(self, asked: McpRequest) -> Message:
        self._saw(asked)
        uri = asked.params["uri"]
        text, meta = await self._run(lambda context: resources.read(context, uri))
        content = {"uri": uri, "mimeType": resources.MARKDOWN, "text": text, **({"_meta": meta} if meta else {})}
        return {"contents": [content]}

    async def _subscribe(self, asked: McpRequest) -> Message:
        subscribed = self._saw(asked).subscriptions
        uri = asked.params["uri"]
        if not uri.startswith("memory://") or len(uri) > MAX_URI:
            raise ProtocolError(INVALID_PARAMS, "no such resource; they begin with memory://")
        if len(subscribed) >= MAX_SUBSCRIBED and uri not in subscribed:
            raise ProtocolError(INVALID_PARAMS, f"{MAX_SUBSCRIBED} resources are subscribed to already")
        subscribed.add(uri)
        self._spell()
        return {}

    async def _unsubscribe(self, asked: McpRequest) -> Message:
        self._saw(asked).subscriptions.discard(asked.params["uri"])
        self._spell()
        return {}

    async def _listen(self, asked: McpRequest) -> Message:
        said = stream_filter(asked.params)
        stream = _Stream(said)
        if len(stream.uris) > MAX_SUBSCRIBED or any(len(uri) > MAX_URI for uri in stream.uris):
            bounds = f"a stream is notified of at most {MAX_SUBSCRIBED} resources, each of at most {MAX_URI} letters"
            raise ProtocolError(INVALID_PARAMS, bounds)
        if sum(not each.is_over for each in self._streams) >= self._most_streams:
            raise ProtocolError(INTERNAL_ERROR, "Subscription limit reached")
        meta = {SUBSCRIPTION: asked.id}
        self._streams.append(stream)
        self._spell()
        try:
            await asked.notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": said})
            async for method, params in stream.news():
                await asked.notify(method, {**params, "_meta": meta})
        finally:
            self._streams.remove(stream)
            self._spell()
        return {"_meta": meta}

    def _spell(self) -> None:
        self._spellings = {}
        for said in set().union(
            *(older.subscriptions for older in self._older.values()), *(stream.uris for stream in self._streams)
        ):
            for uri in resources.uris_meant_by(said):
                self._spellings.setdefault(uri, set()).add(said)

    async def _list_prompts(self, asked: McpRequest) -> Message:
        self._saw(asked)
        return {"prompts": prompts.list_prompts()}

    async def _get_prompt(self, asked: McpRequest) -> Message:
        self._saw(asked)
        says, text = await self._run(
            lambda context: prompts.get(context, asked.params["name"], asked.params.get("arguments"))
        )
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": says, "messages": [message]}

    async def _run(self, work: Callable[[ToolContext], Awaitable[Any]]) -> Any:
        """Return the result of `work` within the deadline of a call; turn its errors into errors of
        the protocol.
        """

        async def run_within_deadline() -> Any:
            async with asyncio.timeout(tool_calls.CALL_DEADLINE_S):
                return await work(self._host.surroundings(nobody))

        try:
            async with self._host.hold():
                refusal = self._host.refusal()
                if refusal is None:
                    return await self._host.track(run_within_deadline())
        except ConfideError as error:
            raise ProtocolError(tool_calls.protocol_code(error), error.in_one_line) from None
        except TimeoutError:
            raise ProtocolError(INTERNAL_ERROR, "it did not finish in time; try again") from None
        except Exception as error:
            # Neither the peer nor the log gets the error's text: it may quote stored or requested
            # contents.
            log.error("a resource or prompt failed: %s", type(error).__name__)
            raise ProtocolError(INTERNAL_ERROR, "it failed inside the daemon") from None
        raise ProtocolError(INTERNAL_ERROR, refusal.in_one_line)


async def nobody(_done: float, _total: float | None, _message: str) -> None:
    """Discard the progress of a call that no client waits for."""
