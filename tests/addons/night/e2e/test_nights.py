"""Nights as a user has them: a task is queued in the evening, a real runner does it or is killed in the middle, and the morning is told."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.nights import allow, inside, queue, report, runner
from tests.support.programs.processes import CONFIDE, Machine, wait_until
from tests.support.runs import KEY, ROUNDS, agent, answer, git, model_api

from confide_night.runner.sandbox import bubblewrap


def _started_for(machine: Machine) -> list[int]:
    """The processes of this machine's sandboxes, at whatever step."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{machine.home}/proxy/runner/work/".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_a_night_with_an_agent_and_the_morning_behind_it(home: Machine, tmp_path: Path) -> None:
    """Order, sandbox, model, check, branch, note, log and report; and the model's key is nowhere but with the model."""
    with model_api() as api:
        recipe = f'[recipes.fix]\nprogram = "{agent(tmp_path)}"\ncheck = ["grep", "-q", "two", "a.txt"]'
        allow(home, recipe, url=api.url)
        order = "```\nask()\nopen('a.txt', 'a').write('two\\n')\nprint(os.environ)\nend('I added a line')\n```"
        task = queue(home, order, "fix")
        with runner(home, "run") as night:
            assert night.process.wait(DEADLINE_S) == 0, night.said
    assert api.headers[0]["x-api-key"] == KEY
    shown: Any = home.json("task", "show", task)
    [slot] = shown["slots"] if "slots" in shown else shown["runs"]
    assert slot["state"] == "succeeded"
    assert "succeeded, checked" in report(home)
    assert "placeholder" in home.run("task", "log", task)
    results = home.home / "proxy" / "runner" / "repositories" / "project-results.git"
    [branch] = git(results, "for-each-ref", "--format=%(refname:short)").split()
    assert branch.startswith(f"confide/{task}-")
    assert git(results, "show", f"{branch}:a.txt") == "one\ntwo\n"
    assert git(home.project, "status", "--porcelain", "--untracked-files=no") == ""
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "model.key":
            assert KEY.encode() not in path.read_bytes(), path


def test_a_question_with_a_key_that_is_sealed_in_the_memory(home: Machine) -> None:
    """The runner opens it as a device of the space; in its own files stands a placeholder."""
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    home.run("store", f"the token of the model is {token}", "--path", "memory/keys.md")
    [found] = re.findall(r"[(]sealed:[a-z-]+:[0-9a-f]{32}[)]", home.run("read", "memory/keys.md")) or re.findall(
        r"[(]sealed:[a-z-]+:[0-9a-f]{32}[)]", home.run("secrets", "ls")
    )
    with model_api(lambda _body: answer("forty-two")) as api:
        allow(home, "[recipes.ask]", url=api.url, key=found)
        task = queue(home, "what is six times seven?", "ask")
        with runner(home, "run") as night:
            assert night.process.wait(DEADLINE_S) == 0, night.said
    assert api.headers[0]["x-api-key"] == token
    shown = home.json("task", "show", task)
    assert "succeeded" in json.dumps(shown)


def test_a_runner_that_is_killed_leaves_nothing_and_the_morning_tells_the_truth(home: Machine) -> None:
    allow(
        home, '[recipes.nap]\nkind = "command"\ncommand = ["sh", "-c", "(setsid sleep 7301 &); echo begun; sleep 7302"]'
    )
    for number in range(ROUNDS):
        task = queue(home, "sleep", "nap")
        with runner(home) as night:
            night.until("begins: nap")
            if number == 0:
                wait_until("it to run", lambda: inside("7301") and inside("7302"))
            else:
                time.sleep(random.uniform(0, 0.3))  # at any step of it
            night.process.send_signal(signal.SIGKILL)
            night.process.wait(DEADLINE_S)
            wait_until("nothing of it to live", lambda: not inside("7301") and not inside("7302"))
        with runner(home) as morning:
            morning.until(f"{task}")
            morning.until("lost")
            # Nor anything that was on its way to be a sandbox, and waits for a word that nobody gives.
            assert _started_for(home) == []
            morning.process.send_signal(signal.SIGTERM)
            assert morning.process.wait(DEADLINE_S) == 0
        assert "lost" in home.run("task", "show", task)
        assert "lost" in home.run("runner", "ls").splitlines()[0]
    assert "lost" in report(home)


def test_a_cancel_reaches_what_runs(home: Machine) -> None:
    allow(home, '[recipes.nap]\nkind = "command"\ncommand = ["sh", "-c", "echo begun; sleep 7303"]')
    task = queue(home, "sleep", "nap")
    with runner(home) as night:
        wait_until("it to run", lambda: inside("7303"))
        began = time.monotonic()
        home.run("task", "cancel", task)
        wait_until("nothing of it to live", lambda: not inside("7303"))
        print(f"cancelled in {time.monotonic() - began:.3f} s")
        night.until("cancelled")
        night.process.send_signal(signal.SIGTERM)
        assert night.process.wait(DEADLINE_S) == 0
    assert "cancelled" in home.run("task", "show", task)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["told", "its terminal goes"])
def test_a_runner_that_is_told_to_end_says_that_its_run_is_lost(home: Machine, number: int) -> None:
    allow(home, '[recipes.nap]\nkind = "command"\ncommand = ["sh", "-c", "echo begun; sleep 7304"]')
    queue(home, "sleep", "nap")
    with runner(home) as night:
        wait_until("it to run", lambda: inside("7304"))
        night.process.send_signal(number)
        assert night.process.wait(DEADLINE_S) == 0
    assert not inside("7304")
    assert "lost" in report(home)


def test_a_runner_says_what_works_and_claims_nothing_without_a_sandbox(home: Machine) -> None:
    """`confide task runner --init` and `check`; and where bubblewrap cannot make a namespace, nothing is begun."""
    home.run("runner", "init")
    assert (home.home / "runner.toml").stat().st_mode & 0o777 == 0o600
    said = home.run("runner", "check", code=3)
    assert "sandbox: namespaces" in said
    assert "there is no key of a model" in said
    home.run("runner", "init", code=7)
    allow(home, '[recipes.nap]\nkind = "command"\ncommand = ["true"]')
    # A machine that lets nobody make a namespace: our own sandbox is one.
    without = [str(bubblewrap.program()), "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--", CONFIDE]
    for word, said in (("check", "no    sandbox: a sandbox cannot be started"), ("run", "a sandbox cannot be started")):
        done = subprocess.run(
            [*without, "runner", word],
            cwd=home.project,
            env=home.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 3, done.stderr
        assert said in done.stdout + done.stderr


IDLE_MIB = 40
"""The budget is 45; a runner is at 30 here, once it rests."""


def resident_kib(pid: int) -> int:
    [kib] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kib)


def test_a_runner_that_waits_is_small(home: Machine) -> None:
    """A process of its own, not forked from the tests': it waits for weeks, in what it has loaded."""
    allow(home, '[recipes.nap]\nkind = "command"\ncommand = ["true"]')
    later = ("task", "add", "later", "--recipe", "nap", "--repo", "project", "--schedule", "0 2 * * *", "--json")
    assert "no runner" in home.run(*later)
    command = [sys.executable, "-m", "confide_proxy", "runner"]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=home.project, env=home.env, stdout=nothing, stderr=nothing) as waiting:
        try:
            wait_until("it to have asked", lambda: "no runner" not in home.run(*later))
            wait_until("it to rest", lambda: resident_kib(waiting.pid) <= IDLE_MIB * 1024)
        finally:
            waiting.terminate()
            assert waiting.wait(DEADLINE_S) == 0
