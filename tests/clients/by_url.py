"""Claude Code and Codex with the URL of `confide http serve` and a token: what a program that speaks HTTP alone gets."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from tests.clients import claude, codex
from tests.clients.models import Step
from tests.clients.trial import BIN, FACT, NOTICE, PROMPT, Trial

from confide_daemon.embedding.token_counts import count_tokens

STEPS: Final = (
    Step("memory_search", {"query": PROMPT}),
    Step("memory_store", {"content": "Somebody was here."}),
    Step(),
)


class Gateway(NamedTuple):
    """One that runs in the trial's project."""

    url: str
    token: str


@contextmanager
def gateway(trial: Trial, name: str) -> Iterator[Gateway]:
    """With the daemon that is up, and a token of that name."""
    environment = trial.environment("nobody") | {"CONFIDE_HOME": str(trial.memory("up"))}
    made = trial.run([str(BIN / "confide"), "token", "new", name, "--scope", "write", "--json"], environment)
    command = [str(BIN / "confide"), "serve", "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=trial.project, env=environment, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found is not None
            yield Gateway(f"{found.group()}/mcp", json.loads(made.stdout)["token"])
        finally:
            process.terminate()


def claude_by_url(trial: Trial) -> None:
    """It connects, calls both tools, and its model reads text."""
    with gateway(trial, "claude") as here:
        server = {"type": "http", "url": here.url, "headers": {"Authorization": f"Bearer {here.token}"}}
        session = claude.Session(trial, "url", *STEPS, server=server)
    told = re.search(r"connected \(transport: http\) in (\d+)ms", session.debug)
    trial.check("claude, by URL: connected", told is not None, f"{told[1]} ms" if told else "")
    judged(trial, "claude, by URL", session.results)


def codex_by_url(trial: Trial) -> None:
    """The same, with the token in its environment."""
    with gateway(trial, "codex") as here:
        server = {"url": here.url, "bearer_token_env_var": "CONFIDE_TOKEN"}
        session = codex.Session(trial, *STEPS, server=server, CONFIDE_TOKEN=here.token)
    is_done = len(session.calls) == 2 and all(call["status"] == "completed" for call in session.calls)
    trial.check("codex, by URL: both tools answered", is_done)
    judged(trial, "codex, by URL", session.read)


def judged(trial: Trial, client: str, read: list[Any]) -> None:
    """Both tools have answered with text, and the model is told what that is."""
    first = str(read[0]) if read else ""
    trial.check(
        f"{client}: search and store answered", len(read) == 2 and FACT in first and "Stored in" in str(read[1])
    )
    trial.check(f"{client}: the model is told that it is stored data", NOTICE in first)
    trial.check(f"{client}: the model reads text", "startLine" not in first, f"{count_tokens(first)} tokens")


BY_URL: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {"claude": (claude_by_url,), "codex": (codex_by_url,)}
