"""Notes at tool calls, read from the requests that a real client's model got: before a command, and after a failure that a note covers.

A session makes the calls twice: what a busy machine is too late for at the first comes at the second. `ACTIONS` has the checks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from tests.clients import claude, codex, gemini, opencode
from tests.clients.installed import FIRED_S
from tests.clients.models import Model, Step, playing
from tests.clients.trial import BIN, PROMPT, Trial
from tests.clients.unasked import Memory, remembering

WARNING: Final = "Never run `echo reset-staging`: it drops the data of heron."
FIX: Final = "fixed `ERR_HERON_PORT_TAKEN: the gate is busy`: stop the old gate first."
COMMAND: Final = "echo reset-staging"
FAILS: Final = "echo 'ERR_HERON_PORT_TAKEN: the gate is busy' >&2; exit 3"
FETCHES: Final = "curl -s --max-time 1 https://herons.invalid/; true"
"""Counts as text from elsewhere; there is no such host."""
PAUSE: Final = "sleep 2"
STORED: Final = ("before", "after")
ROUNDS: Final = 2


def _stored(memory: Memory) -> None:
    for text in (WARNING, FIX):
        memory.store(text)


def _steps(tool: str, arguments: Callable[[str], dict[str, Any]]) -> list[Step]:
    calls = [Step(tool, arguments(command)) for _ in range(ROUNDS) for command in (COMMAND, FAILS)]
    return [*calls, Step(text=f"I followed memory/{time.strftime('%Y-%m-%d')}.md.")]


def _judged(memory: Memory, requests: list[dict[str, Any]], *, tells_answers: bool = True) -> None:
    """Both notes reached the model at their calls, each once, and that is counted. The first prompt may have had them too."""
    first, last = (json.dumps(requests[at]) if requests else "" for at in (0, -1))
    for what, words in (("a command", "drops the data of heron"), ("a failure", "stop the old gate first")):
        count = last.count(words) - first.count(words)
        memory.check(f"the note for {what} reaches the model once", count == 1, f"{count} times")
    shown, used = _counted(memory)
    end = time.monotonic() + FIRED_S
    while tells_answers and not used and time.monotonic() < end:  # the client doesn't wait for the last hook
        time.sleep(0.2)
        shown, used = _counted(memory)
    memory.check("confide stats has counted both", min(shown.values()) > 0, json.dumps(shown))
    if tells_answers:
        memory.check("the note that the answer names counts as used", used > 0, f"{used} times")


def _counted(memory: Memory) -> tuple[dict[str, int], int]:
    events = memory.json("stats")["events"]
    return {event: events[event]["shown"] for event in ("action", "failure")}, sum(
        one["used"] for one in events.values()
    )


def claude_actions(trial: Trial) -> None:
    """Claude Code, set up with hooks."""
    with remembering(trial, "claude-actions") as memory:
        _stored(memory)
        memory.set_up("claude-code", "--user")
        steps = _steps("Bash", lambda command: {"command": command, "description": "x"})
        with playing(*steps) as model:
            _claude(trial, memory, model, "--allowedTools", "Bash(echo *)", "Bash(exit *)")
        _judged(memory, model.requests)


def _claude(trial: Trial, memory: Memory, model: Model, *options: str) -> None:
    there = {"ANTHROPIC_API_KEY": "made-up", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}"}
    command = [trial.clients / claude.PROGRAM, "-p", PROMPT, "--output-format", "stream-json", "--verbose", *options]
    memory.home.run(command, memory.environment(**there, **dict.fromkeys(claude.QUIET, "1")))


def claude_foreign(trial: Trial) -> None:
    """Claude Code: what its agent stores is an agent's, and untrusted once it has read a file from elsewhere."""
    page = trial.root / "page.txt"
    page.write_text("Herons fish at noon.", encoding="utf-8")
    with remembering(trial, "claude-foreign") as memory:
        memory.set_up("claude-code", "--user")
        read = Step("Read", {"file_path": str(page)})
        with playing(*_reading(read, Step("Bash", {"command": PAUSE, "description": "x"}))) as model:
            _claude(trial, memory, model, "--allowedTools", claude.TOOLS, "Bash(sleep *)", "Read")
        _marked(memory)


def _reading(read: Step, pause: Step) -> list[Step]:
    """Store, read text of third parties, and store again: clients do not wait for all hooks, hence the pause."""
    before, after = (
        Step("memory_store", {"content": f"Herons, {name}.", "path": f"memory/{name}.md"}) for name in STORED
    )
    return [before, read, pause, after, Step()]


def _marked(memory: Memory) -> None:
    found = {name: _class(memory, f"memory/{name}.md") for name in STORED}
    is_right = list(found.values()) == ["agent", "untrusted"]
    memory.check("what is stored after text from elsewhere is untrusted", is_right, str(found))


def _class(memory: Memory, path: str) -> str:
    done = memory.home.run([BIN / "confide", "read", path, "--json"], memory.environment())
    return str(json.loads(done.stdout)["class"]) if done.returncode == 0 else done.stderr


def codex_actions(trial: Trial) -> None:
    """Codex, set up with hooks."""
    with remembering(trial, "codex-actions") as memory:
        _stored(memory)
        requests = _codex(trial, memory, _steps("exec_command", lambda command: {"cmd": command}))
        _judged(memory, requests)


def codex_foreign(trial: Trial) -> None:
    """Codex: the same after a command that fetches."""
    with remembering(trial, "codex-foreign") as memory:
        read, pause = (Step("exec_command", {"cmd": command}) for command in (FETCHES, PAUSE))
        _codex(trial, memory, _reading(read, pause), "--allow")
        _marked(memory)


def _codex(trial: Trial, memory: Memory, steps: list[Step], *options: str) -> list[dict[str, Any]]:
    folder = memory.home.folder / ".codex"
    folder.mkdir()
    memory.set_up("codex", *options, CODEX_HOME=str(folder))
    settings = (folder / "config.toml").read_text(encoding="utf-8")
    with playing(*steps) as model:
        provider = f'[model_providers.fake]\nname = "fake"\nbase_url = "http://127.0.0.1:{model.port}/v1"\n'
        provider += 'wire_api = "responses"\nenv_key = "MADE_UP"\n'
        chosen = (
            'model = "fake"\nmodel_provider = "fake"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"'
        )
        (folder / "config.toml").write_text(f"{chosen}\n{settings}\n{provider}", encoding="utf-8")
        command = [trial.clients / codex.PROGRAM, "exec", "--json", "--skip-git-repo-check"]
        command += ["--dangerously-bypass-hook-trust", PROMPT]
        memory.home.run(command, memory.environment(CODEX_HOME=str(folder), MADE_UP="x"))
    return model.requests


def gemini_actions(trial: Trial) -> None:
    """Gemini CLI with the extension's hooks in its settings; its notes come after the calls."""
    with remembering(trial, "gemini-actions") as memory:
        _stored(memory)
        steps = _steps("run_shell_command", lambda command: {"command": command, "description": "x"})
        _judged(memory, _gemini(trial, memory, steps))


def gemini_foreign(trial: Trial) -> None:
    """Gemini CLI: the same after a command that fetches."""
    with remembering(trial, "gemini-foreign") as memory:
        read, pause = (
            Step("run_shell_command", {"command": command, "description": "x"}) for command in (FETCHES, PAUSE)
        )
        _gemini(trial, memory, _reading(read, pause))
        _marked(memory)


def _gemini(trial: Trial, memory: Memory, steps: list[Step]) -> list[dict[str, Any]]:
    (memory.home.folder / ".gemini").mkdir()
    settings = memory.home.folder / ".gemini/settings.json"
    settings.write_text(json.dumps(gemini.SETTINGS), encoding="utf-8")
    memory.set_up("gemini", "--user")
    with playing(*steps) as model:
        there = {"GEMINI_API_KEY": "made-up", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        there["GOOGLE_GEMINI_BASE_URL"] = f"http://127.0.0.1:{model.port}"
        command = ["node", str(trial.clients / gemini.PROGRAM), "-m", "gemini-2.5-flash", "-p", PROMPT]
        command += ["-o", "stream-json", "--approval-mode", "yolo", "--skip-trust"]
        memory.home.run(command, memory.environment(**there))
    return model.requests


def opencode_actions(trial: Trial) -> None:
    """OpenCode with our script, which asks the socket itself and adds the note to what a tool returned."""
    with remembering(trial, "opencode-actions") as memory:
        _stored(memory)
        steps = _steps("bash", lambda command: {"command": command, "description": "x"})
        _judged(memory, _opencode(trial, memory, steps), tells_answers=False)


def opencode_foreign(trial: Trial) -> None:
    """OpenCode: the same after a command that fetches."""
    with remembering(trial, "opencode-foreign") as memory:
        read, pause = (Step("bash", {"command": command, "description": "x"}) for command in (FETCHES, PAUSE))
        _opencode(trial, memory, _reading(read, pause))
        _marked(memory)


def _opencode(trial: Trial, memory: Memory, steps: list[Step]) -> list[dict[str, Any]]:
    folder = memory.home.folder / ".config/opencode"
    folder.mkdir(parents=True)
    program = next(trial.clients.glob("node_modules/opencode-linux-x64/bin/opencode"), None)
    with playing(*steps) as model:
        settings = opencode.settings(model.port)
        (folder / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
        memory.set_up("opencode", "--user")
        environment = memory.environment(**{f"OPENCODE_DISABLE_{name}": "1" for name in opencode.QUIET})
        command = [program or trial.clients / opencode.PROGRAM, "run", "--format", "json", PROMPT]
        memory.home.run(command, environment)
    return model.requests


ACTIONS: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {
    "claude": (claude_actions, claude_foreign),
    "codex": (codex_actions, codex_foreign),
    "gemini": (gemini_actions, gemini_foreign),
    "opencode": (opencode_actions, opencode_foreign),
}
