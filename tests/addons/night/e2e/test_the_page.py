"""docs/tasks.md, followed as it stands: a task in the evening, a runner killed in the middle, and a morning that tells the truth."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

from tests.support.deadline import DEADLINE_S
from tests.support.nights import inside, runner
from tests.support.programs.processes import Machine, wait_until

PAGE = Path(__file__).parents[4] / "docs/tasks.md"
NAP = "7501"


def _trial() -> tuple[str, list[list[str]]]:
    """What the page has for `runner.toml`, and its commands in their order."""
    section = PAGE.read_text("utf-8").partition("## Try a night\n")[2].partition("\n## ")[0]
    [toml] = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    [console] = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    lines = [line.removeprefix("$ confide ") for line in console.splitlines()]
    return toml, [shlex.split(line, comments=True) for line in lines]


def test_a_night_by_the_page_alone(home: Machine) -> None:
    toml, commands = _trial()
    assert commands[:2] == [["task", "runner", "--init"], ["task", "runner", "--check"]]
    home.run(*commands.pop(0))
    file = home.home / "runner.toml"
    ours = toml.replace("/home/you/app", str(home.project)).replace("sleep 60", f"sleep {NAP}")
    repositories, recipe = ours.split("\n\n", 1)
    # The table is there already, as a person finds it.
    file.write_text(file.read_text().replace("[repositories]", repositories, 1) + "\n" + recipe)
    assert re.search(r"ok +recipe look", home.run(*commands.pop(0), code=3))
    added = home.run(*commands.pop(0))
    [task] = re.findall(r"task ([0-9a-f]{16}) is queued, next ", added)
    again = commands.pop(0)
    assert again[:3] == ["task", "add", "--again"]
    [soon] = re.findall(r"task ([0-9a-f]{16}) is queued", home.run(*again[:3], task[:6]))
    assert commands.pop(0) == ["task", "runner"]
    with runner(home) as night:
        night.until("begins: look")
        wait_until("it to run", lambda: inside(NAP))
        night.process.send_signal(signal.SIGKILL)
        night.process.wait(DEADLINE_S)
        wait_until("nothing of it to live", lambda: not inside(NAP))
    told = home.run(*commands.pop(0))
    assert f"{soon[:6]} [project]" in told
    assert "running" in told
    assert "succeeded" not in told
    assert commands.pop(0) == ["task", "runner"]
    with runner(home) as morning:
        morning.until(f"{soon}-")
        morning.until("lost")
        told = home.run(*commands.pop(0))
        assert commands == []
        assert "Runs: 1 lost; $0.00 spent" in told
        assert 'lost, "its runner ended in the middle of it"' in told
        # Neither is it begun again, nor anything told of the one that is due at two.
        assert task[:6] not in told
        morning.process.send_signal(signal.SIGTERM)
        assert morning.process.wait(DEADLINE_S) == 0
    assert not inside(NAP)
    states = {one["id"]: one["status"] for one in home.json("task", "ls")["tasks"]}
    assert states == {soon: "failed", task: "pending"}
    assert re.search(rf"{soon}-\d+  .*  lost", home.run("runner", "ls"))
