"""Approval of the tool `secret_get`: an agent reads a secret only if the user's policy or the
user's answer allows it.
"""

from __future__ import annotations

from typing import Final

from confide_crypto.errors import printable
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.hooks.server.session_asks import PersonQuestions
from confide_proxy.mcp.features.person_approval import PersonApproval
from confide_proxy.mcp.jsonrpc import PendingCall

_YES: Final = "yes"
HINT: Final = (
    "`confide run --env NAME=secret:ID -- command` gives the value to a command without showing it; "
    '`confide secrets show ID` shows it to the user; [secrets] secret_get = "allow" in proxy.toml allows this tool'
)


async def refusal(
    policy: str, questions: PersonQuestions | None, approval: PersonApproval, call: PendingCall, named: str
) -> str | None:
    """Return why the agent may not read a secret, as a sentence for it; None if it may. Each yes of
    the user is valid for one call.

    Args:
        policy: the configured policy, one of `config.OPENED`.
        questions: asks the user; None if the user has approved before, as with a token of `confide
            http` that has the right to open secrets.
        named: the secret's placeholder or id.
    """
    if policy == "never":
        return f"your policy lets no agent read a secret\nhint: {HINT}"
    if policy == "allow" or questions is None:
        return None
    if not questions.can_ask:
        return f"a secret is read only after a question to the user, and this client cannot ask one\nhint: {HINT}"
    answer = await approval.ask(questions, call, f"secret {named}", _question(named))
    if answer.is_later:
        return "the user is asked with your next memory_search; call secret_get again after that"
    return None if answer.choice == _YES else f"the user has not allowed it\nhint: {HINT}"


def _question(named: str) -> Question:
    text = f"Your agent asks to read the value of {printable(named)}. It then stands in the session's transcript."
    return Question(text, (Choice(_YES, "Show it to the agent, once"),))
