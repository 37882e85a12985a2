"""Tasks whose space moves to another daemon: nothing is left behind, and nothing runs at both."""

from __future__ import annotations

import json
import shutil
import signal
from datetime import datetime, timedelta
from pathlib import Path

from tests.support.deadline import DEADLINE_S
from tests.support.nights import allow, inside, queue, report, repository_in, runner
from tests.support.programs.processes import Inside, Machine, running_daemon, wait_until
from tests.support.runs import needing_sandbox

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
            assert first.process.wait(DEADLINE_S) == 0, first.said
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
            assert night.process.wait(DEADLINE_S) == 0
        assert _state(home, running) == "cancelled"
        assert json.dumps(home.json("task", "ls")).count('"id"') == 6
        assert "succeeded" in report(home)
        assert old is None or home.local_daemon is None, "the old daemon was started again"


def test_a_runner_begins_nothing_at_a_daemon_that_was_left_and_is_put_back(tmp_path: Path) -> None:
    """A copy of its folder knows of no move, and gives out what the new daemon gives out too; the runner has been told better."""
    needing_sandbox()
    with running_daemon(tmp_path / "one") as one, running_daemon(tmp_path / "two") as two:
        laptop, desktop = Inside(tmp_path, "laptop"), Inside(tmp_path, "desktop")
        laptop.run("join", one.invite("laptop"))
        desktop.run("join", laptop.json("device", "invite", "desktop", "--no-wait")["invite"])
        laptop.run("device", "ls")  # which takes it in
        repository_in(desktop)
        allow(desktop, '[recipes.quick]\nkind = "command"\ncommand = ["echo", "done"]')
        due = datetime.now().astimezone().isoformat(timespec="seconds")
        task = laptop.json("task", "add", "say it", "--recipe", "quick", "--at", due)["id"]
        one.stop()
        shutil.copytree(one.data, tmp_path / "copy")
        one.start()
        assert "1 task" in laptop.run("move", "--yes", "--to", two.invite("laptop"))
        with runner(desktop) as night:
            night.until("this memory was moved to another daemon")
        one.stop()
        shutil.rmtree(one.data)
        shutil.copytree(tmp_path / "copy", one.data)
        one.start()
        with runner(desktop, "run") as again:
            assert again.process.wait(DEADLINE_S) == 0, again.said
            assert desktop.json("runner", "ls") == []
            again.until("nothing is claimed: this memory was moved away from its daemon")
        desktop.run("join", laptop.json("device", "invite", "desktop", "--no-wait")["invite"])
        desktop.run("device", "confirm", "--words", laptop.json("device", "ls")["space"]["headWords"])
        with runner(desktop, "run") as there:
            assert there.process.wait(DEADLINE_S) == 0, there.said
        assert _state(laptop, task) == "succeeded"
