"""Restrict what an agent's shell may show, since the agent's transcript contains all that it
prints. A secret's value is shown only with the user's approval, and links and tokens that lead to
one are refused.

The shell is recognized by environment variables that agents set. A program that removes them gets
the value, as another program of the same user can in other ways (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confide_crypto.errors import printable
from confide_proxy.errors import RunRefusedError
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.hooks.server.session_asks import ask_session
from confide_proxy.paths import ProxyPaths

AGENT_MARKS: Final = (
    "AI_AGENT",
    "CLAUDECODE",
    "CODEX_SANDBOX",
    "CODEX_THREAD_ID",
    "COPILOT_CLI",
    "CURSOR_AGENT",
    "GEMINI_CLI",
    "GOOSE_TERMINAL",
    "OPENCODE",
)
"""Variables that agents set for the commands that they start."""
_ANSWER_S: Final = 100.0
"""Time for an answer, as an agent's shell does not wait for much longer."""
_YES: Final = "yes"
_HINT: Final = (
    "`confide run --env NAME=secret:ID -- command` gives the value to a command without showing it; to see it yourself, open a "
    "terminal of your own"
)


def is_of_agent(environment: Mapping[str, str]) -> bool:
    """Return True if these environment variables show that an agent has started the process."""
    return any(environment.get(name) for name in AGENT_MARKS)


def refuse_in_agent_shell(environment: Mapping[str, str], what: str) -> None:
    """Raise RunRefusedError if the environment variables show that an agent has started this
    process.

    `what` completes the sentence "an agent's shell may not …".
    """
    if is_of_agent(environment):
        raise RunRefusedError(f"an agent's shell may not {what}", hint="run the command in a terminal of your own")


def approve_showing(paths: ProxyPaths, policy: str, named: str) -> str:
    """Ask the user, through the agent's client, whether the agent may see a secret's value. Blocks.

    Args:
        policy: `secret_get` of the user's configuration, one of `config.OPENED`.
        named: the name or placeholder by which the user knows the secret.

    Returns:
        who approved it, for `confide secrets audit`.

    Raises RunRefusedError if the user or the configuration does not allow it.
    """
    if policy == "allow":
        return "proxy.toml"
    if policy == "never":
        raise RunRefusedError("your policy lets no agent see a secret", hint=_HINT)
    text = f"Your agent's shell is about to show the value of {printable(named)}. It then stands in the transcript."
    question = Question(text, (Choice(_YES, "Show it, once"),))
    answer = ask_session(paths, question, program="confide secrets show", timeout_s=_ANSWER_S)
    if answer.choice == _YES:
        return "agent's client"
    if answer.is_later:
        raise RunRefusedError(
            "the question whether this value may be shown comes with the next search of your memory",
            hint="search, answer it, then run the command again",
        )
    raise RunRefusedError("an agent's shell needs a person's approval to show a secret, and there was none", hint=_HINT)
