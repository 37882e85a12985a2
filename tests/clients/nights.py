"""The real agents as tasks of the night: in a sandbox without a network, with a placeholder for a key, asking through the listener that the
sandbox hands out."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from tests.clients.models import Step, playing
from tests.clients.trial import Trial
from tests.support.runs import KEY, repository

from confide_proxy.runner.mirrors import Mirror
from confide_proxy.runner.run import Job, Result, Run
from confide_proxy.runner.settings.recipes import read
from confide_proxy.runner.trial import sandbox_works

_FORMS = {"claude": ("anthropic", "claude-sonnet-5"), "codex": ("openai", "gpt-5.4")}
_WRITES = "echo two >> a.txt"
_STEPS = {
    "claude": Step("Bash", {"command": _WRITES, "description": "write"}),
    "codex": Step("exec_command", {"cmd": _WRITES}),
}


def _fix(trial: Trial, client: str) -> None:
    """A fix from a clone to a patch, through the gateway; and what its model was asked with."""
    folder = Path(tempfile.mkdtemp(prefix="night-", dir=trial.root))
    if problem := asyncio.run(sandbox_works(folder)):
        print(f"skip {client}: as a task: {problem}")
        return
    with playing(_STEPS[client], Step(text="I added a line")) as model:
        result, log = asyncio.run(_run(trial, client, folder, model.port))
        requests = model.requests
    patch = result.patch.read_text() if result.patch else ""
    trial.check(f"{client}: a fix as a task", result.state == "succeeded" and "+two" in patch, result.reason)
    trial.check(f"{client}: its result is what it said", result.text == "I added a line")
    said = f"{result.tokens_in} tokens in, ${result.usd:.4f}, {result.took_s:.1f} s"
    trial.check(f"{client}: what it cost is counted", result.usd > 0 and result.tokens_in == 200, said)
    trial.check(f"{client}: its model was asked twice", len(requests) == 2)
    trial.check(f"{client}: the key is in nothing that it printed", KEY not in log)


async def _run(trial: Trial, client: str, folder: Path, port: int) -> tuple[Result, str]:
    api, model = _FORMS[client]
    program = trial.clients / "node_modules/.bin" / client
    origin = repository(folder / "repository")
    path = folder / "runner.toml"
    recipe = f'agent = "{client}"\nprogram = {json.dumps(str(program))}\nmodel = "{model}"\n'
    place = f'[model]\napi = "{api}"\nurl = "http://127.0.0.1:{port}"\n[repositories]\napp = "{origin}"\n'
    path.write_text(f'{place}[recipes.fix]\n{recipe}check = ["grep", "-q", "two", "a.txt"]\n')
    path.chmod(0o600)
    settings = read(path)
    mirror = Mirror(folder / "mirrors", "app", str(origin), settings.limits)
    run = Run(
        Job("0-1", settings.recipes["fix"], "add a line", "", mirror, 1.0, 120.0), settings, KEY, {}, folder / "work"
    )
    return await run.go(), run.log.redacted()


def claude_as_a_task(trial: Trial) -> None:
    """Claude Code in the sandbox."""
    _fix(trial, "claude")


def codex_as_a_task(trial: Trial) -> None:
    """Codex in the sandbox."""
    _fix(trial, "codex")


NIGHTS = {"claude": (claude_as_a_task,), "codex": (codex_as_a_task,)}
