"""Tasks whose space moves to another daemon: nothing is left behind, and nothing runs at both."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta
from pathlib import Path

from tests.support.nights import allow, inside, queue, report, runner
from tests.support.programs.processes import Machine, running_daemon, wait_until

NAP = '[recipes.nap]\nkind = "command"\ncommand = ["sh", "-c", "echo begun; sleep 7401"]'


def _state(machine: Machine, task: str) -> str:
    shown = machine.json("task", "show", task)
    return str(shown["slots"][0]["state"])


def test_a_night_goes_on_at_the_daemon_that_its_memory_moves_to(home: Machine, tmp_path: Path) -> None:
    """What runs meanwhile ends there, under the same lease; what waits, comes again or has ended is there with all that is known of it."""
    marks = tmp_path / "marks"
    marks.mkdir()
    recipes = f"""{NAP.replace("sleep 7401", f"echo x >> {marks}/$$; sleep 7401")}
[recipes.quick]
kind = "command"
command = ["echo", "done"]
"""
    allow(home, recipes)
    with running_daemon(tmp_path) as daemon:
        ended = queue(home, "say it", "quick")
        with runner(home, "run") as first:
            assert first.process.wait(60) == 0, first.said
        later = (datetime.now().astimezone() + timedelta(hours=5)).isoformat(timespec="seconds")
        waits = home.json("task", "add", "later", "--recipe", "quick", "--at", later)["id"]
        comes = home.json("task", "add", "nightly", "--recipe", "quick", "--schedule", "0 2 * * *")["id"]
        paused = home.json("task", "add", "rest", "--recipe", "quick", "--at", later)["id"]
        home.run("task", "pause", paused)
        before = {task: home.json("task", "show", task) for task in (ended, waits, comes, paused)}
        running = queue(home, "sleep", "nap")
        with runner(home) as night:
            wait_until("it to run", lambda: inside("7401"))
            told = home.run("move", "--yes", stdin=daemon.invite("laptop") + "\n")
            assert "5 tasks" in told
            old = home.local_daemon
            assert inside("7401"), "the move has ended what ran"
            home.stop_local_daemon()
            assert _state(home, running) == "running"
            assert {task: home.json("task", "show", task) for task in before} == before
            assert "done" in home.run("task", "log", ended)
            home.run("task", "cancel", running)
            night.until("cancelled")
            # What is due from now on is begun here.
            soon = home.json("task", "run-now", waits)["id"]
            night.until(f"{soon}")
            wait_until("it to end", lambda: _state(home, soon) == "succeeded")
            night.process.send_signal(signal.SIGTERM)
            assert night.process.wait(20) == 0
        assert _state(home, running) == "cancelled"
        assert json.dumps(home.json("task", "ls")).count('"id"') == 6
        assert "succeeded" in report(home)
        assert old is None or home.local_daemon is None, "the old daemon was started again"
