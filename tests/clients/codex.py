"""Codex."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clients.models import Step, playing
from tests.clients.trial import FACT, NOTICE, PROMPT, STATES, Trial, ready_ms

from confide_daemon.embedding.token_counts import count_tokens

PACKAGE = "@openai/codex@0.169.0"
PROGRAM = "node_modules/.bin/codex"
ROUNDS = 3


class Session:
    """One `codex exec`. `calls`: of tools of ours, as it printed them; `read`: what the model reads of their results."""

    def __init__(
        self,
        trial: Trial,
        *steps: Step,
        state: str = "up",
        log: Path | None = None,
        server: dict[str, Any] | None = None,
        **more: str,
    ) -> None:
        """`server`: the entry, where it is not the one that starts `confide mcp`; `more`: variables of its own."""
        folder = trial.root / "codex/.codex"
        folder.mkdir(parents=True, exist_ok=True)
        with playing(*steps) as model:
            environment = trial.environment("codex", state, CODEX_HOME=str(folder), MADE_UP="x", **more)
            (folder / "config.toml").write_text(
                _settings(model.port, server or trial.server(state, log)), encoding="utf-8"
            )
            command = [str(trial.clients / PROGRAM), "exec", "--json", "--skip-git-repo-check", PROMPT]
            done = trial.run(command, environment)
            requests = model.requests
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        ended = [line["item"] for line in lines if line.get("type") == "item.completed"]
        self.calls: list[dict[str, Any]] = [item for item in ended if item["type"] == "mcp_tool_call"]
        said = requests[-1]["input"] if requests else []
        self.read = [json.dumps(item["output"]) for item in said if item.get("type") == "function_call_output"]


def _settings(port: int, server: dict[str, Any]) -> str:
    return (
        'model = "fake"\nmodel_provider = "fake"\napproval_policy = "on-request"\n'
        f'[model_providers.fake]\nname = "fake"\nbase_url = "http://127.0.0.1:{port}/v1"\nwire_api = "responses"\n'
        'env_key = "MADE_UP"\n'
        '[mcp_servers.confide]\ndefault_tools_approval_mode = "approve"\nrequired = true\n'
        + "".join(f"{name} = {_toml(value)}\n" for name, value in server.items())
    )


def _toml(value: Any) -> str:
    """JSON's strings and lists are TOML's; a table goes in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value)


def tools(trial: Trial) -> None:
    """Both tools are called, and the model reads text."""
    steps = (Step("memory_search", {"query": PROMPT}), Step("memory_store", {"content": "Codex was here."}), Step())
    session = Session(trial, *steps)
    is_done = len(session.calls) == 2 and all(call["status"] == "completed" for call in session.calls)
    read = session.read[0] if session.read else ""
    trial.check("codex: search and store answered", is_done and FACT in read)
    trial.check("codex: the model is told that it is stored data", NOTICE in read)
    trial.check("codex: the model reads text", "startLine" not in read, f"{count_tokens(read)} tokens")


def connecting(trial: Trial) -> None:
    """What it asks its server at the start is answered at once, whatever the daemon does."""
    took: dict[str, list[float]] = {state: [] for state in STATES}
    for number in range(ROUNDS):
        for state in STATES:
            log = trial.root / f"codex-{state}-{number}.tap"
            Session(trial, Step(), state=state, log=log)
            took[state] += [ms] if (ms := ready_ms(log)) is not None else []
    trial.connected("codex", took)


CHECKS = (tools, connecting)
