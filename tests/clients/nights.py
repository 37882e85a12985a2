"""The real agents as tasks of the night: in a sandbox without a network, with a placeholder for a key, asking through the listener that the
sandbox hands out."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.clients.models import Model, Step, playing
from tests.clients.trial import Trial, is_busy
from tests.support.runs import KEY, repository

from confide_night.runner.agents import program_of, prompt
from confide_night.runner.mirrors import Mirror
from confide_night.runner.run import Result, Run, RunJob
from confide_night.runner.sandbox.bubblewrap import PORT
from confide_night.runner.settings.recipes import RunnerSettings, read
from confide_night.runner.trial import sandbox_works

ROUNDS = 3
MOST_OVER_S = 1.5
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
    settings, mirror = _at(trial, client, folder, port, "fix", 'check = ["grep", "-q", "two", "a.txt"]')
    return await _go(RunJob("0-1", settings.recipes["fix"], "add a line", "", mirror, 1.0, 120.0), settings, folder)


async def _go(job: RunJob, settings: RunnerSettings, folder: Path) -> tuple[Result, str]:
    run = Run(replace(job, key=KEY), settings, folder / "work")
    return await run.go(), run.log.redact()


def _first_request(trial: Trial, client: str) -> None:
    """How much later its model is asked first: from the start of a run, clone and gateway and all, to that of the bare command."""
    folder = Path(tempfile.mkdtemp(prefix="first-", dir=trial.root))
    if asyncio.run(sandbox_works(folder)):
        return
    took: dict[str, list[float]] = {"bare": [], "task": []}
    for number in range(ROUNDS):
        for kind, seconds in took.items():
            place = folder / f"{number}-{kind}"
            place.mkdir()
            with _asked(Step(text="done")) as (model, asked):
                settings, mirror = _at(trial, client, place, model.port, "review")
                job = RunJob("0-1", settings.recipes["review"], "look at it", "", mirror, 1.0, 120.0)
                began = time.monotonic()
                if kind == "task":
                    asyncio.run(_go(job, settings, place))
                else:
                    _bare(trial, job, settings, place, model.port)
                seconds.append(asked[0] - began if asked else float("inf"))
    # On a busy machine each waits for others, as it comes.
    of = min if is_busy() else statistics.median
    over = of(took["task"]) - of(took["bare"])
    told = f"{of(took['task']):.2f} s, {over:+.2f} s over the bare command"
    trial.check(f"{client}: as a task it asks within {MOST_OVER_S} s of the bare command", over <= MOST_OVER_S, told)


@contextmanager
def _asked(*steps: Step) -> Iterator[tuple[Model, list[float]]]:
    """A model, and when it was asked for the agent's own work."""
    with playing(*steps) as model:
        times: list[float] = []
        given = model.next

        def noted(body: dict[str, Any], offered: Sequence[str]) -> tuple[int, Step]:
            if offered:
                times.append(time.monotonic())
            return given(body, offered)

        model.next = noted  # type: ignore[method-assign]
        yield model, times


def _bare(trial: Trial, job: RunJob, settings: RunnerSettings, place: Path, port: int) -> None:
    program = program_of(job.recipe, settings.model.api)
    command = [word.replace(f":{PORT}", f":{port}") for word in program.command]
    given = {name: value.replace(f":{PORT}", f":{port}") for name, value in program.environment.items()}
    environment = trial.environment(place.name, **{**given, "CODEX_HOME": str(place), "IS_SANDBOX": "1"})
    words = prompt(job.recipe, job.text, "").encode()
    subprocess.run(command, input=words, cwd=place / "repository", env=environment, capture_output=True, timeout=120)


def _at(trial: Trial, client: str, folder: Path, port: int, kind: str, more: str = "") -> tuple[RunnerSettings, Mirror]:
    """A runner's settings with one recipe, and the mirror of a repository of one file."""
    api, model = _FORMS[client]
    program = trial.clients / "node_modules/.bin" / client
    origin = repository(folder / "repository")
    path = folder / "runner.toml"
    recipe = f'agent = "{client}"\nprogram = {json.dumps(str(program))}\nmodel = "{model}"\n{more}'
    place = f'[model]\napi = "{api}"\nurl = "http://127.0.0.1:{port}"\n[repositories]\napp = "{origin}"\n'
    path.write_text(f"{place}[recipes.{kind}]\n{recipe}\n")
    path.chmod(0o600)
    settings = read(path)
    return settings, Mirror(folder / "mirrors", "app", str(origin), settings.limits)


def claude_as_a_task(trial: Trial) -> None:
    """Claude Code in the sandbox."""
    _fix(trial, "claude")
    _first_request(trial, "claude")


def codex_as_a_task(trial: Trial) -> None:
    """Codex in the sandbox."""
    _fix(trial, "codex")
    _first_request(trial, "codex")


NIGHTS = {"claude": (claude_as_a_task,), "codex": (codex_as_a_task,)}
