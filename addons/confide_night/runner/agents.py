"""Starts agents in the sandbox: their command lines, their environment, and the interpretation of
their output.

The prompt goes to stdin, never into an argument, since every process can read the list of
processes.
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

from confide_night.errors import RunnerError
from confide_night.runner.sandbox.bubblewrap import HOME, PORT
from confide_night.runner.settings.recipes import Recipe

PLACEHOLDER: Final = "placeholder"
"""The value that an agent gets in place of an API key."""
GATEWAY: Final = f"http://127.0.0.1:{PORT}"
MOST_TEXT: Final = 64 * 1024
"""Most characters of a result."""
_MOST_LINE: Final = 4 * 2**20
_MODULES: Final = "node_modules"
_QUIET: Final = (
    *("DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_BUG_COMMAND"),
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
)


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """The command line and environment of an agent.

    Attributes:
        command: argv, in the sandbox.
        environment: variables; no secrets.
        readable: paths of this device that it must read, besides `/usr`.
        speaks: format of its output, of `agents`; "" for plain text.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    speaks: str = ""


def program_of(recipe: Recipe, api: str) -> AgentProgram:
    """Return the command line and environment of a recipe's agent. Raises RunnerError if it is not
    installed or does not support that API.
    """
    if recipe.kind == "command":
        asked = {"CONFIDE_MODEL": recipe.model, **_keys(api)} if recipe.model else {}
        return AgentProgram(recipe.command, {**asked, **_hosts(recipe)})
    found, readable = locate(recipe)
    if (recipe.agent, api) not in (("claude", "anthropic"), ("codex", "openai")):
        raise RunnerError(f"{recipe.agent} does not speak the API {api}", hint="api in [model] of runner.toml")
    if recipe.agent == "claude":
        return _claude(recipe, found, readable, _keys(api))
    return _codex(recipe, found, readable, _keys(api))


def _claude(recipe: Recipe, found: str, readable: tuple[Path, ...], keys: dict[str, str]) -> AgentProgram:
    turns = ("--max-turns", str(recipe.max_turns)) if recipe.max_turns else ()
    # The sandbox limits the agent, and no user is there to confirm its actions.
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


def locate(recipe: Recipe) -> tuple[str, tuple[Path, ...]]:
    """Return the path of a recipe's agent, and the paths of this device that it must read. Raises
    RunnerError if it is not installed.
    """
    found = recipe.program or shutil.which(recipe.agent)
    if not found or not os.access(found, os.X_OK):
        hint = "install it, or name it: program in its recipe of runner.toml"
        raise RunnerError(f"the agent {recipe.agent} is not on this device", hint=hint)
    real = Path(os.path.realpath(found))
    if real.is_relative_to("/usr"):
        return str(real), ()
    parts = real.parts
    # An npm package needs the packages beside it; the sandbox must not see other files of a bin
    # folder.
    top = Path(*parts[: parts.index(_MODULES) + 1]) if _MODULES in parts else real
    return str(real), (top,)


def prompt(recipe: Recipe, text: str, context: str) -> str:
    """Build the prompt of an agent: the recipe's instructions, then the order's text and context."""
    told = recipe.instructions or _TOLD.get(recipe.kind, "")
    more = f"\n\nMore about it, as JSON:\n{context}" if context else ""
    return f"{told}\n\n{text}{more}\n".lstrip()


_TOLD: Final = {
    "review": "You work alone at night; no user can answer a question. The repository in this folder cannot be changed. "
    "Do what is asked below, and end with a report in plain text: what you found, where, and how sure you are.",
    "fix": "You work alone at night; no user can answer a question. Change the repository in this folder as asked below, commit what you "
    "change, and end with a report in plain text: what you changed and why, and what you could not do.",
}


class AgentOutput:
    """Parses an agent's output. Plain text is itself the result; in a JSON stream, the last event
    contains the result.

    Attributes:
        has_begun: True once anything has arrived.
        is_done: True once the final event has arrived; the process may still run.
        problem: the error that the agent reports; "" without one.
        reported_usd: the cost that the agent reports; None without a report.
    """

    def __init__(self, speaks: str) -> None:
        self._speaks = speaks
        self.has_begun = False
        self.is_done = False
        self.problem = ""
        self.reported_usd: float | None = None
        self._text = ""
        self._last: deque[bytes] = deque()
        self._last_size = 0
        self._line = b""

    @property
    def text(self) -> str:
        """Return the result; if it is longer than `MOST_TEXT` characters, only its end."""
        if self._speaks:
            return self._text[-MOST_TEXT:]
        return b"".join(self._last).decode("utf-8", "replace")[-MOST_TEXT:]

    def feed(self, piece: bytes) -> None:
        """Parse the next piece of stdout."""
        self.has_begun = True
        if not self._speaks:
            self._last.append(piece)
            self._last_size += len(piece)
            while self._last_size - len(self._last[0]) > 4 * MOST_TEXT:
                self._last_size -= len(self._last.popleft())
            return
        *lines, self._line = (self._line + piece).split(b"\n")
        if len(self._line) > _MOST_LINE:
            self._line = b""  # too long for an event; its rest will not parse either
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
            self.reported_usd = float(cost) if isinstance(cost, (int, float)) else None
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
