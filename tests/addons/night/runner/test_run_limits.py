"""What a run may take of its machine, by control groups: little enough that this test does no harm where they do not hold."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runs import Runs, model_api

from confide_night.runner.budget.apis import APIS
from confide_night.runner.sandbox import bubblewrap, groups
from confide_night.runner.settings.recipes import RunnerSettings
from confide_night.runner.trial import findings


@pytest.mark.parametrize(
    ("way", "is_good", "told"),
    [("", None, "no control group: a run is bounded by its time and its disk"), ("v1", True, "control groups (v1)")],
)
async def test_what_bounds_a_run_here_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, is_good: bool | None, told: str
) -> None:
    """`confide task runner --check` names the way that this machine gives, or says that there is none, and what would help."""
    monkeypatch.setattr(groups, "available", lambda: way)
    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    found = {each.name: each async for each in findings(RunnerSettings(tmp_path, ""), tmp_path)}
    assert found["limits"].is_good is is_good
    assert told in found["limits"].text
    assert ("Delegate=yes" in found["limits"].hint) is not bool(way)


def test_what_a_run_may_take_of_the_machine_is_bounded() -> None:
    """Processes and memory, where this machine has control groups."""
    if not groups.available():
        pytest.skip(
            "there are no control groups for us here: a run is bounded by its time and its disk (docs/tasks.md)"
        )
    group = groups.make("0bounded1", replace(RunnerSettings(Path(), "").limits, memory_mib=64, processes=12))
    forks = """
import os, time
n = 0
try:
    for n in range(40):
        if not os.fork():
            time.sleep(60)
except OSError:
    pass
print(n, flush=True)
os.killpg(0, 9)
"""
    try:
        took = [
            subprocess.run(
                [*group.prefix, sys.executable, "-c", script],
                env=group.environment,
                capture_output=True,
                text=True,
                timeout=60,
                start_new_session=True,
            )
            for script in (
                forks.replace("print(n)", "print(n, flush=True)"),
                "x = bytearray(200 * 2**20); print('had')",
            )
        ]
    finally:
        group.close()
    assert 3 <= int(took[0].stdout) <= 12
    assert "had" not in took[1].stdout


async def test_an_agent_that_asks_too_much_holds_up_its_gateway_alone(runs: Runs) -> None:
    """To check a request of megabytes takes seconds; the runner's lease, times and disk are looked after meanwhile."""
    pieces = 200_000
    content = ",".join(['{"type":"text","text":"x"}'] * pieces)
    began = time.perf_counter()
    APIS["anthropic"].check(json.loads(f'{{"model":"m","messages":[{{"role":"user","content":[{content}]}}]}}'))
    alone_s = time.perf_counter() - began
    gaps = [0.0]

    async def look() -> None:
        at = time.perf_counter()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(time.perf_counter() - at)
            at += gaps[-1]

    order = f"""```
large = [dict(type="text", text="x")] * {pieces}
end(str([ask(text=large, mcp_servers=1)[0] for _ in range(2)]))
```"""
    with model_api() as api:
        settings = runs.settings(f'kind = "review"\nprogram = "{runs.agent}"', url=api.url)
        run = runs.make(settings, order)
        looking = asyncio.create_task(look())
        result = await run.go()
        looking.cancel()
    assert (result.state, result.text, api.requests) == ("succeeded", "[400, 400]", [])
    assert max(gaps) < alone_s / 2
