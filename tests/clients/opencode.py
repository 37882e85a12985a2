"""OpenCode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clients.models import Step, playing
from tests.clients.trial import FACT, NOTICE, PROMPT, STATES, Trial, ready_ms

from confide_daemon.embedding.token_counts import count_tokens

PACKAGE = "opencode-ai@1.18.33"
PROGRAM = "node_modules/.bin/opencode"
QUIET = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
ROUNDS = 3


def settings(port: int) -> dict[str, Any]:
    """OpenCode's, with the scripted model as its only one."""
    limits = {"name": "fake", "tool_call": True, "limit": {"context": 100_000, "output": 4_000}}
    options = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "x"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "fake", "options": options, "models": {"fake": limits}}
    quiet = {"autoupdate": False, "share": "disabled", "model": "fake/fake", "small_model": "fake/fake"}
    return {**quiet, "provider": {"fake": provider}}


class Session:
    """One `opencode run`. `out`: what it printed; `read`: what the model reads of the tools' results."""

    def __init__(self, trial: Trial, *steps: Step, state: str = "up", log: Path | None = None) -> None:
        folder = trial.root / "opencode/.config/opencode"
        folder.mkdir(parents=True, exist_ok=True)
        server = trial.server(state, log)
        entry = {"type": "local", "command": [server["command"], *server["args"]], "environment": server["env"]}
        with playing(*steps) as model:
            more = {"mcp": {"confide": {**entry, "enabled": True}}, "permission": {"confide_*": "allow"}}
            (folder / "opencode.json").write_text(json.dumps(settings(model.port) | more), encoding="utf-8")
            environment = trial.environment("opencode", state, **{f"OPENCODE_DISABLE_{name}": "1" for name in QUIET})
            done = trial.run([str(trial.clients / PROGRAM), "run", "--format", "json", PROMPT], environment)
            requests = model.requests
        self.out = done.stdout
        said = requests[-1]["messages"] if requests else []
        self.read = [json.dumps(message["content"]) for message in said if message.get("role") == "tool"]


def tools(trial: Trial) -> None:
    """Both tools are called, and the model reads text."""
    steps = (Step("memory_search", {"query": PROMPT}), Step("memory_store", {"content": "OpenCode was here."}), Step())
    session = Session(trial, *steps)
    read = session.read[0] if session.read else ""
    trial.check("opencode: search and store answered", len(session.read) == 2 and FACT in read)
    trial.check("opencode: the model is told that it is stored data", NOTICE in read)
    trial.check("opencode: the model reads text", "startLine" not in read, f"{count_tokens(read)} tokens")


def connecting(trial: Trial) -> None:
    """What it asks its server at the start is answered at once, whatever the daemon does."""
    took: dict[str, list[float]] = {state: [] for state in STATES}
    for number in range(ROUNDS):
        for state in STATES:
            log = trial.root / f"opencode-{state}-{number}.tap"
            Session(trial, Step(), state=state, log=log)
            took[state] += [ms] if (ms := ready_ms(log)) is not None else []
    trial.connected("opencode", took)


CHECKS = (tools, connecting)
