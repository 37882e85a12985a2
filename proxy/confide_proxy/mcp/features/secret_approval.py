"""The approval of `secret_get`: an agent reads a secret only if the user's policy or answer allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from confide_crypto.errors import printable
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.hooks.server.session_asks import PersonQuestions

ANSWER_S: Final = 120.0
LATER_S: Final = 900.0
_YES: Final = "yes"
_MOST_WAITING: Final = 4
HINT: Final = (
    "`confide run --env NAME=secret:ID -- command` gives the value to a command without showing it; "
    '`confide secrets show ID` shows it to the user; [secrets] secret_get = "allow" in proxy.toml allows this tool'
)


class SecretApproval:
    """The approvals of one session."""

    def __init__(self, policy: str, questions: Callable[[], PersonQuestions | None]) -> None:
        """Args:
        policy: one of `config.OPENED`.
        questions: returns those of the session; None where the user has approved before, as for a
            token of `confide http` with the right to open secrets.
        """
        self._policy = policy
        self._questions = questions
        self._later: dict[str, asyncio.Task[str | None]] = {}

    async def refusal(self, named: str) -> str | None:
        """Return why the agent may not have a secret, given its placeholder or id; None if it may.

        Each yes of the user is for one call.
        """
        questions = self._questions()
        if self._policy == "never":
            return f"your policy lets no agent read a secret\nhint: {HINT}"
        if self._policy == "allow" or questions is None:
            return None
        later = self._later.get(named)
        if later is not None and later.done():
            del self._later[named]
            chosen = later.result()
        elif not questions.can_ask:
            return f"a secret is read only after a question to the user, and this client cannot ask one\nhint: {HINT}"
        elif questions.can_ask_now:
            chosen = await questions.ask(_question(named), timeout_s=ANSWER_S)
        else:
            if later is None and len(self._later) < _MOST_WAITING:
                self._later[named] = asyncio.create_task(questions.ask(_question(named), timeout_s=LATER_S))
            return "the user is asked with your next memory_search; call secret_get again after that"
        return None if chosen == _YES else f"the user has not allowed it\nhint: {HINT}"


def _question(named: str) -> Question:
    text = f"Your agent asks to read the value of {printable(named)}. It then stands in the session's transcript."
    return Question(text, (Choice(_YES, "Show it to the agent, once"),))
