"""Questions to the person in front of an agent's client, by MCP's elicitation.

Only this device asks: questions of a daemon are refused (`incoming`). A client of MCP's versions
with `initialize` gets `elicitation/create` at any time. In the 2026-07-28 version a server may ask
only in place of a result. So a question waits for the agent's next call of a tool that reads: the
client gets `input_required`, the call's result is kept here, and the client gets it when it repeats
the call with the answer. A call that needs the answer itself (`person_approval`) has no result yet;
it is carried out when it is repeated with the answer.

No call waits for a question beyond that. Each question has a deadline, and an answer that is late
or invalid counts as "not now".
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confide_proxy.hooks.server.question_form import FIELD, Choice, Question

if TYPE_CHECKING:
    from confide_proxy.mcp.jsonrpc import PendingCall

__all__ = ["Choice", "Question", "Questions"]

CREATE: Final = "elicitation/create"
CAPABILITY: Final = "elicitation"
ASK_ID: Final = "confide-question-"
"""Prefix of the ids of questions."""
MOST_WAITING: Final = 4
"""Questions that wait for their turn; further ones are not asked."""
MOST_HELD: Final = 256 * 1024
"""Bytes of a result that may be kept until its call is repeated."""


@dataclass(slots=True)
class _AskedQuestion:
    """The question that is being asked."""

    identifier: str
    question: Question
    answer: asyncio.Future[str | None]
    is_shown: bool = False


class Questions:
    """The questions of one session to its user, one at a time. Used in the session's event loop."""

    def __init__(self, send: Callable[[dict[str, object]], None]) -> None:
        """`send` sends a message to the client."""
        self._send = send
        self.is_able = asyncio.Event()
        """Set once the client has said that it can ask."""
        self.has_answered = asyncio.Event()
        """Set when a call of the client has got its result."""
        self._is_able = self._has_failed = self._is_modern = False
        self._open: _AskedQuestion | None = None
        self._held_declaration: tuple[str, dict[str, Any] | None] | None = None
        """The `requestState` and the result of the call that is to be repeated with an answer; None
        for a result that depends on the answer.
        """
        self._turn = asyncio.Lock()
        self._waiting = 0

    @property
    def can_ask(self) -> bool:
        """Return True if the client can ask its user now. It must have declared so and not have
        failed to, and must not still have to repeat the call of an earlier question that has ended.
        """
        return self._is_able and (self._held_declaration is None or self._open is not None)

    @property
    def can_ask_now(self) -> bool:
        """Return True if the client shows a question at once, and False if it does so only with its
        next call.
        """
        return self._is_able and not self._is_modern

    def declare(self, capabilities: object, is_modern: bool) -> None:
        """Record whether a client can ask its user, by the capabilities that it declares: at
        `initialize`, or with each request of MCP's 2026-07-28 version.
        """
        said = capabilities.get(CAPABILITY) if isinstance(capabilities, Mapping) else None
        self._is_modern = is_modern
        # An empty object means forms, as before there were other modes.
        self._is_able = not self._has_failed and isinstance(said, Mapping) and (not said or "form" in said)
        if self._is_able:
            self.is_able.set()

    async def ask(self, question: Question, *, timeout_s: float) -> str | None:
        """Ask the person in front of the client, and return the name of the choice.

        Returns None if the person chose "not now", declined, or did not answer in time, or if the
        client cannot ask.
        """
        if not self.can_ask or self._waiting >= MOST_WAITING:
            return None
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                return await self._send_question(question) if self.can_ask else None
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1

    async def _send_question(self, question: Question) -> str | None:
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        asked = self._open = _AskedQuestion(ASK_ID + secrets.token_hex(16), question, answer)
        try:
            if not self._is_modern:
                asked.is_shown = True
                self._send({"jsonrpc": "2.0", "id": asked.identifier, "method": CREATE, "params": question.params})
            return await answer
        finally:
            self._open = None
            if asked.is_shown and not self._is_modern and not (answer.done() and not answer.cancelled()):
                about = {"requestId": asked.identifier, "reason": "it was not answered in time"}
                self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": about})

    def receive(self, message: Mapping[str, Any]) -> None:
        """Handle a response of the client. Only the first response to the open question counts."""
        asked = self._open
        if asked is None or self._is_modern or message.get("id") != asked.identifier or asked.answer.done():
            return
        if "error" in message:
            self._is_able, self._has_failed = False, True  # it says that it can ask, and cannot
        asked.answer.set_result(asked.question.choice_in(message.get("result")))

    # -- the 2026-07-28 era ---------------------------------------------------------------------------------------

    def in_place_of(self, call: PendingCall, result: dict[str, object]) -> dict[str, object]:
        """Return the result to send for a call: its own, or the open question if it may take the
        result's place.
        """
        self.has_answered.set()
        if not call.is_modern or not self._is_modern:
            return result
        asked = self._open
        if asked is None or asked.is_shown or self._held_declaration is not None or not self._is_able:
            return result
        may_wait = call.is_read_only and not result.get("isError") and len(json.dumps(result)) <= MOST_HELD
        if not (may_wait or call.is_asking):
            return result
        asked.is_shown = True
        self._held_declaration = (asked.identifier, None if call.is_asking else result)
        request = {"method": CREATE, "params": {"mode": "form", **asked.question.params}}
        return {"resultType": "input_required", "inputRequests": {FIELD: request}, "requestState": asked.identifier}

    def taken_back(self, params: Mapping[str, object]) -> dict[str, object] | None:
        """Read the user's answer from a repeated call, and return the result that was kept for that
        call.

        Returns None if the call contains no answer to the waiting question, or if the call's result
        depends on the answer; such a call is carried out now.
        """
        if self._held_declaration is None or params.get("requestState") != self._held_declaration[0]:
            return None
        (identifier, result), self._held_declaration = self._held_declaration, None
        asked = self._open
        if asked is not None and asked.identifier == identifier and not asked.answer.done():
            responses = params.get("inputResponses")
            said = responses.get(FIELD) if isinstance(responses, Mapping) else None
            asked.answer.set_result(asked.question.choice_in(said))
        return result
