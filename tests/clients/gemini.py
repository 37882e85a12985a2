"""Gemini CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clients.models import Step, playing
from tests.clients.trial import FACT, NOTICE, PROMPT, STATES, Trial, ready_ms

from confide_daemon.embedding.token_counts import count_tokens

PACKAGE = "@google/gemini-cli@0.61.0"
PROGRAM = "node_modules/@google/gemini-cli/bundle/gemini.js"
SETTINGS: dict[str, Any] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True},
}
ROUNDS = 3


class Session:
    """One `gemini -p`. `out`, `err`: what it printed; `read`: what the model reads of the tools' results."""

    def __init__(self, trial: Trial, *steps: Step, state: str = "up", log: Path | None = None) -> None:
        folder = trial.root / "gemini/.gemini"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**SETTINGS, "mcpServers": {"confide": trial.server(state, log)}}
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        with playing(*steps) as model:
            surroundings = {"GEMINI_API_KEY": "made-up", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}"}
            environment = trial.environment("gemini", state, GEMINI_CLI_TRUST_WORKSPACE="true", **surroundings)
            command = [
                "node",
                str(trial.clients / PROGRAM),
                "-m",
                "gemini-2.5-flash",
                "-p",
                PROMPT,
                "-o",
                "stream-json",
            ]
            done = trial.run([*command, "--approval-mode", "yolo", "--skip-trust"], environment)
            requests = model.requests
        self.out, self.err = done.stdout, done.stderr
        said = [part for turn in requests[-1]["contents"] for part in turn["parts"]] if requests else []
        self.read = [json.dumps(part["functionResponse"]) for part in said if "functionResponse" in part]


def tools(trial: Trial) -> None:
    """Both tools are called, the model reads text, and the user is warned of nothing of ours."""
    steps = (Step("memory_search", {"query": PROMPT}), Step("memory_store", {"content": "Gemini was here."}), Step())
    session = Session(trial, *steps)
    read = session.read[0] if session.read else ""
    is_done = session.out.count('"status":"success"') >= 2
    trial.check("gemini: search and store answered", is_done and FACT in read)
    trial.check("gemini: the model is told that it is stored data", NOTICE in read)
    trial.check("gemini: the model reads text", "startLine" not in read, f"{count_tokens(read)} tokens")
    trial.check("gemini: our schemas raise no warning", "strict mode" not in session.err + session.out)


def connecting(trial: Trial) -> None:
    """What it asks its server at the start is answered at once, whatever the daemon does."""
    took: dict[str, list[float]] = {state: [] for state in STATES}
    for number in range(ROUNDS):
        for state in STATES:
            log = trial.root / f"gemini-{state}-{number}.tap"
            Session(trial, Step(), state=state, log=log)
            took[state] += [ms] if (ms := ready_ms(log)) is not None else []
    trial.connected("gemini", took)


CHECKS = (tools, connecting)
