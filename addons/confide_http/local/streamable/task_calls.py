"""Long tool calls as tasks (MCP's tasks extension): the client gets a task id instead of waiting
for the result, and asks for the result later.

A task belongs to the token that made the call; with any other token it is not found. The call ends
with the token or the gateway, not with a connection. A server's gateway needs no tasks, since the
tools that take long read files of a device or are in toolsets that it lacks.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from typing import Final

from confide_http.door.refusals import RefusalError
from confide_http.local.daemon_failures import refusal_of
from confide_http.local.gateway_app import GatewayShared
from confide_http.local.request_identity import RequestIdentity
from confide_http.local.streamable.event_streams import Work
from confide_http.local.upstream import Message, ToolResponse
from confide_http.local.upstream import News as Follower
from confide_proxy.mcp.features.task_handles import HANDLE_AFTER_S, TaskHandles
from confide_proxy.mcp.jsonrpc import UNAVAILABLE, PendingCall

MAX_CALLERS: Final = 32
"""Most callers whose handles are kept. When there are more, those without work are forgotten, the
oldest first; while all have work, a call of another one gets its result without a handle.
"""


class TaskCalls:
    """The long tool calls that run as tasks, of all callers of one gateway."""

    def __init__(self, gateway: GatewayShared) -> None:
        self._gateway = gateway
        self._callers: dict[str, TaskHandles] = {}
        self._working: dict[str, asyncio.Task[ToolResponse]] = {}

    async def outcome(
        self, identity: RequestIdentity, call: PendingCall, work: Work, follower: Follower | None
    ) -> ToolResponse:
        """Return the result of a tool call, or a task id for it if it takes longer than
        `HANDLE_AFTER_S`.

        Raises RefusalError if the call fails before it has become a task.
        """

        def follow(method: str, params: Message) -> None:
            handles = self._callers.get(identity.key) if call.task_id else None
            if handles is not None:
                handles.report(call, params.get("progress"), params.get("total"))
            elif follower is not None:
                follower(method, params)

        task = asyncio.ensure_future(work(follow))
        try:
            await asyncio.wait({task}, timeout=HANDLE_AFTER_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done() and (handles := self._room(identity)) is not None:
            with suppress(RefusalError):  # it has too many streams, among which such a call counts
                return {"result": self._hand_over(identity, call, handles, task)}
        return await task

    def answer(self, identity: RequestIdentity, asked: PendingCall) -> ToolResponse:
        """Answer a client's request about one of its tasks: for its status or result, or to cancel
        it.
        """
        handles = self._callers.get(identity.key) or TaskHandles()
        outcome, cancelled = handles.answer(asked)
        if cancelled is not None and (task := self._working.get(cancelled.task_id)) is not None:
            task.cancel()
        return {"error": outcome["error"]} if "error" in outcome else {"result": outcome["result"]}

    def _room(self, identity: RequestIdentity) -> TaskHandles | None:
        """Return the caller's handles if there is room for one more."""
        handles = self._callers.get(identity.key)
        if handles is None:
            idle = [key for key, other in self._callers.items() if not other.is_at_work]
            for key in idle[: max(0, len(self._callers) - MAX_CALLERS + 1)]:
                del self._callers[key]
            if len(self._callers) >= MAX_CALLERS:
                return None
            handles = self._callers[identity.key] = TaskHandles()
        return handles if handles.has_room() else None

    def _hand_over(
        self, identity: RequestIdentity, call: PendingCall, handles: TaskHandles, task: asyncio.Task[ToolResponse]
    ) -> Message:
        """Return the handle of a call, which goes on without its request. Raises RefusalError."""
        with ExitStack() as held:
            held.enter_context(self._gateway.streaming(identity, task.cancel))
            until_done = held.pop_all()
        result = handles.create(call)
        self._working[call.task_id] = task

        def on_done(task: asyncio.Task[ToolResponse]) -> None:
            until_done.close()
            self._working.pop(call.task_id, None)
            handles.settle(call, _outcome(task))

        task.add_done_callback(on_done)
        return result


def _outcome(task: asyncio.Task[ToolResponse]) -> ToolResponse:
    if task.cancelled():
        return {"error": {"code": UNAVAILABLE, "message": "the call was ended, with its token or the gateway"}}
    error = task.exception()
    if error is None:
        return task.result()
    return {"error": {"code": UNAVAILABLE, "message": refusal_of(error).in_one_line}}
