"""A machine whose clock is wrong by decades joins, stores and finds; one that stands before 1970 is told to set it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.processes import (
    COMMAND_DEADLINE_S,
    CONFIDE,
    CONFIDED,
    Daemon,
    Machine,
    running_daemon,
    wait_until,
)
from tests.support.programs.wall_clock import COMPILER, WallClock

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler, or not Linux")
DAY_S = 86_400


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


class Wrong(Machine):
    """A machine that has joined nothing and starts nothing, and is off by so many seconds."""

    def __init__(self, folder: Path, seconds: int) -> None:
        super().__init__(folder, "laptop")
        (self.home / "proxy.toml").write_text("on_demand = false\n")
        clock = WallClock(folder, "laptop")
        clock.jump(seconds)
        self.env |= clock.env

    def said(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=self.project, env=self.env, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S
        )
        return done.returncode, done.stdout + done.stderr

    def is_sent(self) -> bool:
        """Whether nothing waits any more, once all has been tried again."""
        self.said(CONFIDE, "sync")
        return json.loads(self.said(CONFIDE, "queue", "--json")[1])["queuedOffline"] == 0


@pytest.mark.parametrize("year", [1970, 2100])
def test_a_clock_that_is_off_by_decades(daemon: Daemon, tmp_path: Path, year: int) -> None:
    """The daemon's own clock counts for what expires there; the file has this machine's day."""
    machine = Wrong(tmp_path, (year - 1970) * 365 * DAY_S + DAY_S - int(time.time()))
    steps = [
        (("join", daemon.invite(f"of-{year}")), "the link works"),
        (("store", "- the queue lives in postgres"), f"memory/{year}-" if year == 1970 else "memory/"),
        (("search", "where does the queue live"), "postgres"),
        (("log",), "the queue lives in postgres"),
        (("status",), "problems"),
    ]
    for arguments, expected in steps:
        code, text = machine.said(CONFIDE, *arguments)
        assert (code, expected in text) == (0, True), text
        if text.startswith("queued"):  # the machine is busy; the steps that follow ask for what has arrived
            wait_until("it to be sent", machine.is_sent)


@pytest.mark.parametrize(
    "command",
    [(CONFIDE, "status"), (CONFIDE, "mcp"), (CONFIDED, "status")],
    ids=lambda command: " ".join(Path(part).name for part in command),
)
def test_a_clock_before_1970_is_said_to_be_wrong(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A sentence with a way out, and nothing is written. A hook stays silent."""
    machine = Wrong(tmp_path, -int(time.time()) - DAY_S)
    before = sorted(tmp_path.rglob("*"))
    code, text = machine.said(*command)
    assert code == 1
    assert "clock stands before 1970\nhint: set the clock" in text
    assert sorted(tmp_path.rglob("*")) == before
    assert machine.said(CONFIDE, "hook") == (0, "")
