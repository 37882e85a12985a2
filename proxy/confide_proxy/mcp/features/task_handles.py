"""Handles for tool calls that take long, by MCP's tasks extension (SEP-2663).

A client that declares the extension on a call may get a handle instead of the result, and asks for
the result with `tasks/get`. It gets one only for tools that may take minutes, and only once the
call has taken `HANDLE_AFTER_S`. Handles exist as long as their session, or as the process of their
HTTP gateway. The calls end with that process too.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confide_memory.documents import iso
from confide_proxy.mcp.catalogue import CAPABILITIES_KEY, TASKS_EXTENSION
from confide_proxy.mcp.jsonrpc import INVALID_PARAMS, PendingCall, encode_message

GET: Final = "tasks/get"
UPDATE: Final = "tasks/update"
CANCEL: Final = "tasks/cancel"
METHODS: Final = frozenset({GET, UPDATE, CANCEL})
HANDLE_AFTER_S: Final = 2.0
"""Seconds that a call may take before its client gets a handle for it."""
POLL_MS: Final = 2000
TTL_MS: Final = 2 * 3600 * 1000
"""Milliseconds after which a handle may be forgotten: a call ends within one hour."""
MAX_TASKS: Final = 16
"""Most handles of a session, or of one of a gateway's callers. When there are more, those that ended first are forgotten; while all
of them are at work, a call gets its result without a handle.
"""
MAX_RESULT_BYTES: Final = 1024 * 1024
INTERNAL_ERROR: Final = -32603
_MAX_STATUS: Final = 200
_UNKNOWN: Final = "there is no such task of yours: one ends with its session, and two hours after its start"


@dataclass(slots=True)
class _HeldCall:
    """A handle, and the outcome of its call once there is one: `result` or `error` under its name."""

    id: str
    call: PendingCall
    created_at: float
    updated_at: float
    status: str = "working"
    message: str = ""
    outcome: Mapping[str, Any] | None = None

    def to_task(self) -> dict[str, object]:
        """Return the `Task` of the extension."""
        found: dict[str, object] = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": iso(self.created_at),
            "lastUpdatedAt": iso(self.updated_at),
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_MS,
        }
        return found | ({"statusMessage": self.message} if self.message else {})


class TaskHandles:
    """The handles of one agent session, or of one client of an HTTP gateway, by their ids."""

    def __init__(self) -> None:
        self._tasks: dict[str, _HeldCall] = {}

    @property
    def is_at_work(self) -> bool:
        """Return True if a call with a handle still runs."""
        return any(task.status == "working" for task in self._tasks.values())

    def has_room(self) -> bool:
        """Return True if the client may get one more handle. Deletes expired handles first, and
        finished ones if there are too many.
        """
        now = time.time()
        for task in [task for task in self._tasks.values() if now - task.created_at > TTL_MS / 1000]:
            del self._tasks[task.id]
        ended = [task for task in self._tasks.values() if task.status != "working"]
        for task in ended[: max(0, len(self._tasks) - MAX_TASKS + 1)]:
            del self._tasks[task.id]
        return len(self._tasks) < MAX_TASKS

    def create(self, call: PendingCall) -> dict[str, Any]:
        """Create a handle for a call, and return the result that gives it to the client
        (`CreateTaskResult`).
        """
        now = time.time()
        call.task_id = secrets.token_urlsafe(24)
        task = self._tasks[call.task_id] = _HeldCall(call.task_id, call, now, now)
        return task.to_task() | {"resultType": "task"}

    def settle(self, call: PendingCall, outcome: Mapping[str, object]) -> None:
        """Store the outcome of a call until its client asks for it.

        Args:
            outcome: a JSON-RPC `result` or `error`, under that name.
        """
        task = self._tasks.get(call.task_id)
        if task is not None and task.status == "working":
            if len(encode_message(dict(outcome))) > MAX_RESULT_BYTES:
                outcome = {"error": {"code": INTERNAL_ERROR, "message": "the result is too large to be kept"}}
            self._update(task, "failed" if "error" in outcome else "completed", "")
            task.outcome = outcome

    def report(self, call: PendingCall, done: object, total: object) -> None:
        """Store the progress of a call, which its client sees in the handle's status."""
        task = self._tasks.get(call.task_id)
        if task is not None and task.status == "working":
            whole = f" of {total}" if isinstance(total, int | float) else ""
            self._update(task, "working", f"{done}{whole}" if isinstance(done, int | float) else "")

    def answer(self, asked: PendingCall) -> tuple[dict[str, Any], PendingCall | None]:
        """Answer a request that concerns a handle, such as `tasks/get`. Return the outcome, a
        JSON-RPC `result` or `error` under that name, and the tool call that the request cancels, or
        None.
        """
        named = asked.params.get("taskId")
        task = self._tasks.get(named) if isinstance(named, str) else None
        if task is None:
            return {"error": {"code": INVALID_PARAMS, "message": _UNKNOWN}}, None
        if asked.method == GET:
            return {"result": task.to_task() | dict(task.outcome or {}) | {"resultType": "complete"}}, None
        is_ended = asked.method == CANCEL and task.status == "working"
        if is_ended:
            self._update(task, "cancelled", "")
        # An update brings answers to questions, and a call of ours asks none.
        return {"result": {"resultType": "complete"}}, task.call if is_ended else None

    def _update(self, task: _HeldCall, status: str, message: str) -> None:
        task.status, task.message, task.updated_at = status, message[:_MAX_STATUS], time.time()


def is_understood(call: PendingCall) -> bool:
    """Return True if the client declared MCP's tasks extension on the call, so that it may get a
    handle.
    """
    capabilities = call.meta.get(CAPABILITIES_KEY)
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return call.is_modern and isinstance(extensions, dict) and isinstance(extensions.get(TASKS_EXTENSION), dict)
