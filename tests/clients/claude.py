"""Claude Code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clients.models import Step, playing
from tests.clients.trial import FACT, NOTICE, PROMPT, STATES, Trial, heard, number_in

from confide_daemon.embedding.token_counts import count_tokens

PACKAGE = "@anthropic-ai/claude-code@2.1.330"
PROGRAM = "node_modules/.bin/claude"
QUIET = (
    *("DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING"),
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
)
TOOLS = "mcp__confide__memory_search,mcp__confide__memory_store"
ROUNDS = 3


class Session:
    """One `claude -p`, from its start to its end.

    Attributes:
        events: what it printed.
        debug: what it wrote for whoever looks for a fault.
        requests: what its model was asked.
    """

    def __init__(
        self,
        trial: Trial,
        name: str,
        *steps: Step,
        state: str = "up",
        log: Path | None = None,
        server: dict[str, Any] | None = None,
        home: str = "claude",
    ) -> None:
        """`server`: the entry, where it is not the one that starts `confide mcp`; `home`: where it keeps what it was signed in with."""
        debug = trial.root / f"claude-{name}.debug"
        with playing(*steps) as model:
            surroundings = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}", "ANTHROPIC_API_KEY": "made-up"}
            environment = trial.environment(home, state, **surroundings, **dict.fromkeys(QUIET, "1"))
            command = [str(trial.clients / PROGRAM), "-p", PROMPT, "--output-format", "stream-json", "--verbose"]
            command += ["--debug-file", str(debug), "--allowedTools", TOOLS, "--strict-mcp-config", "--mcp-config"]
            command.append(json.dumps({"mcpServers": {"confide": server or trial.server(state, log)}}))
            done = trial.run(command, environment)
            self.events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
            self.requests = model.requests
        self.debug = debug.read_text(encoding="utf-8") if debug.exists() else ""

    @property
    def connected_ms(self) -> float | None:
        return number_in(r"connected \(transport: stdio\) in (\d+)ms", self.debug)

    @property
    def results(self) -> list[str]:
        """What the model reads of each tool's result."""
        parts = [part for event in self.events if event["type"] == "user" for part in event["message"]["content"]]
        found = [part["content"] for part in parts if part.get("type") == "tool_result"]
        return [each if isinstance(each, str) else "\n".join(one.get("text", "") for one in each) for each in found]


def tools(trial: Trial) -> None:
    """Its model has the two tools from the first request, calls them without a search for them, and reads text."""
    log = trial.root / "claude.tap"
    search = Step("memory_search", {"query": PROMPT})
    session = Session(trial, "tools", search, Step("memory_store", {"content": "Claude was here."}), Step(), log=log)
    offered = {tool["name"].rpartition("__")[2] for tool in session.requests[0]["tools"]}
    trial.check("claude: search and store are there from the start", {"memory_search", "memory_store"} <= offered)
    read = session.results
    trial.check(
        "claude: search and store answered", len(read) == 2 and FACT in read[0] and read[1].startswith("Stored in")
    )
    trial.check("claude: the model is told that it is stored data", bool(read) and NOTICE in read[0])
    is_text = bool(read) and '"results"' not in read[0] and "structuredContent" not in read[0]
    trial.check("claude: the model reads text", is_text, f"{count_tokens(read[0]) if read else '?'} tokens")
    methods = [one["message"].get("method") for one in heard(log) if one["way"] == "to server"]
    trial.check("claude: what it asks first", "server/discover" in methods, " ".join(filter(None, methods)))


def connecting(trial: Trial) -> None:
    """It counts its server as connected at once, whatever the daemon does; each state in turn, so that a busy moment meets all."""
    took: dict[str, list[float]] = {state: [] for state in STATES}
    for number in range(ROUNDS):
        for state in STATES:
            session = Session(trial, f"{state}-{number}", Step(), state=state)
            took[state] += [session.connected_ms] if session.connected_ms is not None else []
    trial.connected("claude", took)


CHECKS = (tools, connecting)
