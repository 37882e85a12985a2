"""`confide sync` says how far it is: a bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import run
from tests.support.programs.processes import CONFIDE, Machine

FILES = 400


def test_a_bar_with_rate_and_time_on_a_terminal(tmp_path: Path) -> None:
    """On stderr, and gone at the end; what the command prints stays on stdout."""
    machine = Machine(tmp_path, "ann")
    machine.run("status")  # whose daemon is a fork, which that of a command at a terminal is not
    for number in range(FILES):
        machine.write(f"memory/{number}.md", f"# Note {number}\n\nThe heron of bridge {number} fishes at dawn.\n")
    ours, theirs = pty.openpty()
    try:
        env = {name: value for name, value in machine.env.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
        with subprocess.Popen(
            [CONFIDE, "sync"], cwd=machine.project, env=env, stdout=subprocess.PIPE, stderr=theirs
        ) as process:
            shown = b""
            end = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < end:
                if select.select([ours], [], [], 0.1)[0]:
                    shown += os.read(ours, 65536)
            assert process.stdout is not None
            printed = process.stdout.read().decode()
        assert process.returncode == 0
        assert f"{FILES} compared, {FILES} sent" in printed
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
        assert re.search(rf"files \S+ +\d+/{FILES} +[\d,]+/s +\d:\d\d:\d\d", text), text[-2000:]
        assert "pieces embedded" in text
    finally:
        os.close(ours)
        os.close(theirs)
        machine.stop_local_daemon()


def test_no_bar_where_nobody_looks(tmp_path: Path) -> None:
    """Into a pipe goes no control character, and for a short sync nothing at all."""
    machine = Machine(tmp_path, "ann")
    machine.write("memory/a.md", "The heron fishes at dawn.\n")
    try:
        done = run([CONFIDE, "sync"], cwd=machine.project, env=machine.env, timeout=DEADLINE_S)
        assert "\x1b" not in done.stderr
        assert "1 compared" in done.stdout
    finally:
        machine.stop_local_daemon()
