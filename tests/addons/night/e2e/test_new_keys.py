"""A machine's key is changed while its runner works: it is the same runner, and what it runs is its own all the same."""

from __future__ import annotations

import signal

from tests.support.deadline import DEADLINE_S
from tests.support.nights import allow, inside, queue, runner
from tests.support.programs.processes import Machine, wait_until

NAP = '[recipes.nap]\nkind = "command"\ncommand = ["sh", "-c", "echo begun; exec sleep 7403"]'


def test_what_runs_goes_on_under_the_new_key_of_its_machine(home: Machine) -> None:
    """It is neither killed nor lost: a cancel reaches it, and the next one, ordered with the old key, is begun with the new one."""
    allow(home, f'{NAP}\n[recipes.quick]\nkind = "command"\ncommand = ["echo", "done"]')
    running = queue(home, "sleep", "nap")
    with runner(home) as night:
        wait_until("it to run", lambda: inside("7403"))
        soon = queue(home, "say it", "quick")
        home.run("key", "rotate")
        night.until("no daemon")
        home.run("task", "cancel", running)
        night.until("cancelled")
        wait_until("the next one", lambda: home.json("task", "show", soon)["slots"][0]["state"] == "succeeded")
        night.process.send_signal(signal.SIGTERM)
        assert night.process.wait(DEADLINE_S) == 0
    assert home.json("task", "show", running)["slots"][0]["state"] == "cancelled"
    assert "any more" not in night.said
