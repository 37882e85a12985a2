"""The client's side of one session: the last changes to a result before the client gets it.

Outdated notes in a result are marked (`freshness`). A result may be held back for a question of
this device (`questions`), or be kept until the client asks for it, if the client has a handle for
the call (`task_handles`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confide_memory.tools.call import ToolAnswer
from confide_memory.tools.result_views import ResultViews, shows_views
from confide_proxy.freshness.late_ties import MARKED, names_notes, warn_unchecked
from confide_proxy.mcp import incoming
from confide_proxy.mcp.catalogue import CAPABILITIES_KEY, VERSION_KEY
from confide_proxy.mcp.incoming import PROGRESS
from confide_proxy.mcp.jsonrpc import PendingCall, encode_message

if TYPE_CHECKING:
    from confide_proxy.mcp.features.task_handles import TaskHandles
    from confide_proxy.mcp.questions import Questions


class Responses:
    """Writes the responses and notifications for a session's client. Used in the event loop only."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` takes whole lines for the client."""
        self._write = write
        self.on_result: Callable[[PendingCall, dict[str, Any]], None] = lambda _call, _result: None
        """Called with the result of a tool call that the client gets."""
        self.mark: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
        """Returns a tool's result with marks at outdated notes; the same object without any. Blocks."""
        self.questions: Questions | None = None
        self._declaration: tuple[object, bool] = (None, False)
        """The capabilities that the client declared, and True if it is of the 2026-07-28 era."""
        self._handles: TaskHandles | None = None

    def open_questions(self) -> Questions:
        """Allow this device to ask the client's user from now on, and return the object that asks."""
        from confide_proxy.mcp.questions import Questions

        self.questions = Questions(self.send)
        self.questions.declare(*self._declaration)
        return self.questions

    def declare(self, params: dict[str, Any], *, is_modern: bool) -> None:
        """Record the client's capabilities from the parameters of a request.

        Args:
            is_modern: True for a request of MCP's 2026-07-28 version, each of which contains them;
                False for `initialize`.
        """
        meta = params.get("_meta")
        said = meta.get(CAPABILITIES_KEY) if isinstance(meta, dict) else None
        self._declaration = (said if is_modern else params.get("capabilities"), is_modern)
        if self.questions is not None:
            self.questions.declare(*self._declaration)

    def views(self, params: object) -> ResultViews | None:
        """Return the add-ons' pages if the client that sent these parameters can show pages beside
        results; otherwise None.
        """
        meta = params.get("_meta") if isinstance(params, dict) else None
        said, is_modern = self._declaration
        if isinstance(meta, dict) and VERSION_KEY in meta:
            said = meta.get(CAPABILITIES_KEY)
        elif is_modern:
            said = None
        if not shows_views(said):
            return None
        from confide_proxy.mcp.features import installed_views

        return installed_views.of_addons()

    # -- messages -------------------------------------------------------------------------------------------------

    def send(self, message: dict[str, object]) -> None:
        """Write any JSON-RPC message to the client."""
        self._write(encode_message(message) + b"\n")

    def answer(self, identifier: Any, result: dict[str, Any]) -> None:
        """Write the result of a request to the client, as it is."""
        self.send({"jsonrpc": "2.0", "id": identifier, "result": result})

    def fail(self, identifier: Any, code: int, why: str) -> None:
        """Write a JSON-RPC error in response to a request."""
        self.send({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": why}})

    def respond(self, call: PendingCall, outcome: Mapping[str, object], line: bytes | None = None) -> None:
        """Give the client the outcome of its call: at once, or, if it has a handle for the call,
        when it asks.

        Args:
            outcome: a JSON-RPC `result` or `error`, under that name.
            line: the encoded response, if there is one.
        """
        if call.task_id and self._handles is not None:
            self._handles.settle(call, outcome)
            return
        self._write((line or encode_message({"jsonrpc": "2.0", "id": call.identifier, **outcome})) + b"\n")

    # -- results of tools -----------------------------------------------------------------------------------------

    def needs_marks(self, call: PendingCall, result: dict[str, Any]) -> bool:
        """Return True if the result may show notes, so that outdated ones have to be marked."""
        return self.mark is not None and call.tool in MARKED and names_notes(result)

    async def with_marks(self, call: PendingCall, result: dict[str, object]) -> dict[str, object]:
        """Return a result in which outdated notes are marked, or that warns if they could not be
        checked; the same object if nothing changes.
        """
        if self.mark is None or not self.needs_marks(call, result):
            return result
        import asyncio

        try:
            return await asyncio.to_thread(self.mark, str(call.tool), result)
        except Exception as error:
            # The client waits for an answer. It may not pass for one about fresh notes.
            import logging

            logging.getLogger(__name__).error("notes could not be checked: %s", type(error).__name__)
            return warn_unchecked(result)

    def give(self, call: PendingCall, result: dict[str, Any], line: bytes | None = None) -> None:
        """Respond to a tool call with its result, or with a question to the user in place of it.

        Args:
            line: the encoded response, if the result is the daemon's own.
        """
        self.on_result(call, result)
        if not call.is_structured and incoming.as_text(result):
            line = None
        if self.questions is not None and not call.task_id:
            shown = self.questions.in_place_of(call, result)
            line = line if shown is result else None
            result = shown
        self.respond(call, {"result": result}, line)

    def has_given(self, message: dict[str, object]) -> bool:
        """Handle a call that the client repeats with the answer to a question. Return True if this
        was one whose result had been kept: the client has it now.
        """
        params = message.get("params")
        if self.questions is None or not isinstance(params, dict):
            return False
        kept = self.questions.taken_back(params)
        if kept is not None:
            self.answer(message["id"], kept)
        return kept is not None

    # -- handles of long calls ------------------------------------------------------------------------------------

    def give_handle(self, call: PendingCall) -> None:
        """Give the client a handle, by which it can ask for the result of a long call later. Does
        nothing if the client has too many handles.
        """
        handles = self._open_handles()
        if handles.has_room():
            self.answer(call.identifier, handles.create(call))

    def answer_task(self, asked: PendingCall) -> PendingCall | None:
        """Answer a request that concerns a handle, such as `tasks/get`. Return the tool call that
        the request cancels, or None.
        """
        outcome, cancelled = self._open_handles().answer(asked)
        self.send({"jsonrpc": "2.0", "id": asked.identifier, **outcome})
        return cancelled

    def report(self, call: PendingCall, done: object, total: object) -> None:
        """Report the progress of a call to the client: in the status of the call's handle, or else
        as MCP's progress notification.
        """
        if call.is_settled:
            return
        if call.task_id and self._handles is not None:
            self._handles.report(call, done, total)
        elif call.token is not None:
            about = {"progressToken": call.token, "progress": done, "total": total}
            self.send({"jsonrpc": "2.0", "method": PROGRESS, "params": about})

    def _open_handles(self) -> TaskHandles:
        from confide_proxy.mcp.features.task_handles import TaskHandles

        self._handles = self._handles or TaskHandles()
        return self._handles


def result_of(call: PendingCall, answer: ToolAnswer) -> dict[str, object]:
    """Return an answer of this device as a tool's result, in the form of the call's version of MCP."""
    return answer.as_result(is_modern=call.is_modern, is_structured=call.is_structured)
