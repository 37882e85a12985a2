"""Approval of an agent's call by the user in front of its client.

A client of MCP's versions with `initialize` shows the question while the call waits. In the
2026-07-28 version, the question replaces the call's result, and the client repeats the call with
the answer. If another question already waits there, the user is asked when the agent next calls a
tool that reads, and the agent has to repeat its own call.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from confide_proxy.hooks.server.question_form import Question
from confide_proxy.hooks.server.session_asks import PersonQuestions
from confide_proxy.mcp.jsonrpc import PendingCall

ANSWER_S: Final = 120.0
LATER_S: Final = 900.0
"""Time for which a question waits for a call of the client, and its answer for the repeated call."""
MOST_LATER: Final = 4


class CallApproval(NamedTuple):
    """The outcome of a question whether a call may go on.

    Attributes:
        choice: the name of the user's choice; None if the user chose "not now", gave another
            answer, or did not answer.
        is_later: True if the user has not answered yet: the answer comes with the repeated call.
    """

    choice: str | None
    is_later: bool = False


class _LaterAnswer(NamedTuple):
    asking: asyncio.Task[str | None]
    end: float


class PersonApproval:
    """Asks the user of one session for approvals, and keeps the answers that arrive later."""

    def __init__(self) -> None:
        self._later: dict[str, _LaterAnswer] = {}

    async def ask(self, questions: PersonQuestions, call: PendingCall, key: str, question: Question) -> CallApproval:
        """Ask the user whether a call may go on. Each answer is valid for one call.

        Args:
            key: identifies what the answer would allow. A repeated call uses an answer only if it
                has the same key.
        """
        if questions.can_ask_now:
            return CallApproval(await questions.ask(question, timeout_s=ANSWER_S))
        now = time.monotonic()
        self._later = {each: one for each, one in self._later.items() if now < one.end}
        later = self._later.get(key)
        if later is not None and later.asking.done():
            del self._later[key]
            return CallApproval(None if later.asking.cancelled() else later.asking.result())
        if later is None:
            if len(self._later) >= MOST_LATER:
                return CallApproval(None)
            asking = asyncio.ensure_future(questions.ask(question, timeout_s=LATER_S))
            self._later[key] = _LaterAnswer(asking, now + 2 * LATER_S)
            await asyncio.sleep(0)  # it is open then, and takes the place of this call's result
        call.is_asking = True
        return CallApproval(None, is_later=True)
