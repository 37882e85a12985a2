"""An order that takes two devices: one machine orders, another one, which is the runner, approves, and only then anything is pushed."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.deadline import DEADLINE_S
from tests.support.nights import allow, queue, runner
from tests.support.programs.processes import Inside, running_daemon, wait_until
from tests.support.runs import git, needing_sandbox, repository

PUBLISH = """[recipes.publish]
kind = "command"
command = ["sh", "-c", "cat > said.txt; git add said.txt; git commit -q -m published"]
check = ["grep", "-q", "swifts", "said.txt"]
push = true
"""


def test_a_branch_is_pushed_once_a_second_device_has_approved(tmp_path: Path) -> None:
    needing_sandbox()
    origin = tmp_path / "origin.git"
    git(tmp_path, "clone", "-q", "--bare", str(repository(tmp_path / "seed")), str(origin))

    def branches() -> list[str]:
        return git(origin, "for-each-ref", "--format=%(refname:short)", "refs/heads/confide").split()

    with running_daemon(tmp_path) as daemon:
        laptop, desktop = Inside(tmp_path, "laptop"), Inside(tmp_path, "desktop")
        laptop.run("join", daemon.invite("laptop"))
        desktop.run("join", laptop.json("device", "invite", "desktop", "--no-wait")["invite"])
        laptop.run("device", "ls")  # which takes it in
        allow(desktop, PUBLISH, origin=origin)
        with runner(desktop) as night:
            task = queue(laptop, "swifts", "publish")
            assert "queued the task itself" in laptop.run("task", "approve", task, "--yes", code=7)
            wait_until("it to wait", lambda: laptop.json("task", "show", task)["state"] == "proposed")
            assert branches() == []
            assert "swifts" in desktop.run("task", "approve", task, "--yes")
            night.until("succeeded")
            wait_until("the branch", branches)
            night.process.send_signal(signal.SIGTERM)
            assert night.process.wait(DEADLINE_S) == 0
        [branch] = branches()
        assert branch.startswith(f"confide/{task}-")
        assert git(origin, "show", f"{branch}:said.txt").strip() == "swifts"
        [slot] = laptop.json("task", "show", task)["slots"]
        assert (slot["state"], slot["checked"], slot["runner"]) == ("succeeded", True, "desktop")
        assert git(origin, "rev-parse", branch).startswith(slot["commit"])
