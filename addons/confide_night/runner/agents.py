"""Agents as the sandbox starts them: their arguments, their variables, and what their output says.

What is asked goes in by stdin, never by an argument: a list of processes is for everybody to read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confide_night.runner.sandbox.bubblewrap import HOME, PORT
from confide_night.runner.settings.recipes import Recipe
from confide_proxy.errors import RunnerError

PLACEHOLDER: Final = "placeholder"
"""What an agent has in a key's place."""
GATEWAY: Final = f"http://127.0.0.1:{PORT}"
MOST_TEXT: Final = 64 * 1024
"""Characters of a result."""
_MOST_LINE: Final = 4 * 2**20
_MODULES: Final = "node_modules"
_QUIET: Final = (
    *("DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_BUG_COMMAND"),
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
)


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """How an agent is started.

    Attributes:
        command: argv, in the sandbox.
        environment: variables; no secrets.
        readable: what of this machine it has to see, besides `/usr`.
        speaks: its output's form, of `agents`; "" for plain text.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    speaks: str = ""


def program_of(recipe: Recipe, api: str) -> AgentProgram:
    """How a recipe's agent is started. Raises RunnerError: it is not on this machine, or does not speak that API."""
    if recipe.kind == "command":
        asked = {"CONFIDE_MODEL": recipe.model, **_keys(api)} if recipe.model else {}
        return AgentProgram(recipe.command, {**asked, **_hosts(recipe)})
    found, readable = located(recipe)
    if (recipe.agent, api) not in (("claude", "anthropic"), ("codex", "openai")):
        raise RunnerError(f"{recipe.agent} does not speak the API {api}", hint="api in [model] of runner.toml")
    if recipe.agent == "claude":
        return _claude(recipe, found, readable, _keys(api))
    return _codex(recipe, found, readable, _keys(api))


def _claude(recipe: Recipe, found: str, readable: tuple[Path, ...], keys: dict[str, str]) -> AgentProgram:
    turns = ("--max-turns", str(recipe.max_turns)) if recipe.max_turns else ()
    # What it may do the sandbox decides: there is nobody to be asked.
    always = ("-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
    models = dict.fromkeys(("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"), recipe.model)
    environment = {**keys, **models, **dict.fromkeys(_QUIET, "1"), **_hosts(recipe)}
    return AgentProgram((found, *always, "--model", recipe.model, *turns), environment, readable, "claude")


def _codex(recipe: Recipe, found: str, readable: tuple[Path, ...], keys: dict[str, str]) -> AgentProgram:
    provider = f'{{name="confide",base_url="{GATEWAY}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
    settings = (f"model_providers.confide={provider}", 'model_provider="confide"', "analytics.enabled=false")
    options = tuple(each for setting in settings for each in ("-c", setting))
    always = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    environment = {**keys, "CODEX_HOME": HOME, **_hosts(recipe)}
    return AgentProgram((found, *always, *options, "-m", recipe.model, "-"), environment, readable, "codex")


def _keys(api: str) -> dict[str, str]:
    if api == "openai":
        return {"OPENAI_BASE_URL": f"{GATEWAY}/v1", "OPENAI_API_KEY": PLACEHOLDER}
    return {"ANTHROPIC_BASE_URL": GATEWAY, "ANTHROPIC_API_KEY": PLACEHOLDER}


def _hosts(recipe: Recipe) -> dict[str, str]:
    return {"CONFIDE_HOSTS": f"{GATEWAY}/hosts"} if recipe.hosts else {}


def located(recipe: Recipe) -> tuple[str, tuple[Path, ...]]:
    """The path of a recipe's agent, and what of this machine it has to see. Raises RunnerError: it is not here."""
    found = recipe.program or shutil.which(recipe.agent)
    if not found or not os.access(found, os.X_OK):
        hint = "install it, or name it: program in its recipe of runner.toml"
        raise RunnerError(f"the agent {recipe.agent} is not on this device", hint=hint)
    real = Path(os.path.realpath(found))
    if real.is_relative_to("/usr"):
        return str(real), ()
    parts = real.parts
    # A package of npm's needs those beside it; whatever else lies in a bin folder is nobody's business in there.
    top = Path(*parts[: parts.index(_MODULES) + 1]) if _MODULES in parts else real
    return str(real), (top,)


def prompt(recipe: Recipe, text: str, context: str) -> str:
    """What an agent is asked: what the recipe says, then the order's words."""
    told = recipe.instructions or _TOLD.get(recipe.kind, "")
    more = f"\n\nMore about it, as JSON:\n{context}" if context else ""
    return f"{told}\n\n{text}{more}\n".lstrip()


_TOLD: Final = {
    "review": "You work alone at night; nobody can answer a question. The repository in this folder cannot be changed. "
    "Do what is asked below, and end with a report in plain text: what you found, where, and how sure you are.",
    "fix": "You work alone at night; nobody can answer a question. Change the repository in this folder as asked below, commit what you "
    "change, and end with a report in plain text: what you changed and why, and what you could not do.",
}


class AgentOutput:
    """Follows what an agent prints. Plain text is its own result; of a stream of JSON it is what the last event says.

    Attributes:
        has_begun: whether anything has come.
        is_done: whether it has said its last word, though its process may still live.
        problem: what it says has gone wrong; "" for nothing.
        told_usd: what it believes to have cost; None: it does not say.
    """

    def __init__(self, speaks: str) -> None:
        self._speaks = speaks
        self.has_begun = False
        self.is_done = False
        self.problem = ""
        self.told_usd: float | None = None
        self._text = ""
        self._last: deque[bytes] = deque()
        self._last_size = 0
        self._line = b""

    @property
    def text(self) -> str:
        """The result, at most `MOST_TEXT` characters: the end of it, where it is longer."""
        if self._speaks:
            return self._text[-MOST_TEXT:]
        return b"".join(self._last).decode("utf-8", "replace")[-MOST_TEXT:]

    def feed(self, piece: bytes) -> None:
        """Read on; of stdout."""
        self.has_begun = True
        if not self._speaks:
            self._last.append(piece)
            self._last_size += len(piece)
            while self._last_size - len(self._last[0]) > 4 * MOST_TEXT:
                self._last_size -= len(self._last.popleft())
            return
        *lines, self._line = (self._line + piece).split(b"\n")
        if len(self._line) > _MOST_LINE:
            self._line = b""  # no event is so long; what is left of it is none either
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict):
                    self._take(event)

    def _take(self, event: dict[str, object]) -> None:
        kind = event.get("type")
        if self._speaks == "claude" and kind == "result":
            self.is_done = True
            self._text = str(event.get("result") or "")
            cost = event.get("total_cost_usd")
            self.told_usd = float(cost) if isinstance(cost, (int, float)) else None
            if event.get("is_error") or event.get("subtype") not in ("success", None):
                self.problem = f"the agent ended with an error: {str(event.get('subtype') or 'error')[:60]}"
        elif self._speaks == "codex":
            item = event.get("item")
            if kind == "item.completed" and isinstance(item, dict) and item.get("type") == "agent_message":
                self._text = str(item.get("text") or "")
            elif kind == "turn.completed":
                self.is_done, self.problem = True, ""
            elif kind == "turn.failed":
                self.is_done, self.problem = True, "the agent ended with an error: its turn failed"
