"""`confided stop` and `logs`, and what an operator is told of a server that nobody can reach."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDED, wait_until

from confide_daemon.cli import app, callers
from confide_daemon.datadir.log_file import FILE_BYTES, FILES, LogFile
from confide_memory.errors import with_extra


def test_it_is_stopped_and_its_log_is_shown(ready: Confided) -> None:
    """`stop` returns once it has ended; then `status` ends with 5, and `stop` has nothing to do."""
    process = ready.serve()
    assert ready.json("status")["running"]
    assert ready.json("stop") == {"stopped": True, "pid": process.pid}
    assert process.wait(DEADLINE_S) == 0
    assert "confided is not running" in ready.run("stop").stdout
    assert "confided serve" in ready.run("status", code=5).stderr
    assert "there is no log" in ready.run("status", "--log", code=5).stderr
    (ready.data / "confided.log").write_text("".join(f"line {number}\n" for number in range(9)))
    assert ready.run("status", "--log", "-n", "2").stdout == "line 7\nline 8\n"
    assert ready.json("status", "--log", "-n", "1")["lines"] == ["line 8"]
    (ready.data / "confided.log").write_text("a name of\x1b]52;c;eA==\x07 and \x9b2J\n")
    for told in (ready.run("status", "--log").stdout, ready.json("status", "--log")["lines"][0]):
        assert "a name of" in told
        assert not {"\x1b", "\x07", "\x9b"} & set(told)


def test_the_log_is_followed_and_a_new_file_too(ready: Confided) -> None:
    """`logs -f` goes on with what comes, also when the file was turned over."""
    log = ready.data / "confided.log"
    log.write_text("before\n")
    following = ready.start("status", "--log", "-f", "-n", "1")
    assert following.stdout is not None
    assert following.stdout.readline() == "before\n"
    with log.open("a") as file:
        file.write("behind \x1b[2J\n")
    assert following.stdout.readline().startswith("behind ")
    log.rename(log.with_name("confided.log.1"))
    log.write_text("anew\n")
    assert following.stdout.readline() == "anew\n"


def test_revoke_asks_and_a_no_changes_nothing(ready: Confided, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the end of the input; with `--yes` nobody is asked."""
    ready.enroll("laptop")
    monkeypatch.setattr(callers, "can_ask", lambda: True)
    for typed, code, said in (
        ("n\n", 7, "confided: nothing was changed\nhint: "),
        ("", 1, "the input ended before the answer\nhint: "),
        ("y\n", 0, "Remove laptop"),
    ):
        err = io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        monkeypatch.setattr(sys, "argv", ["confided", "device", "rm", "laptop"])
        with patch.dict(os.environ, ready.env), patch.object(sys, "stderr", err), pytest.raises(SystemExit) as ended:
            app.main()
        assert (ended.value.code, said in err.getvalue()) == (code, True), err.getvalue()
        assert bool(ready.json("device")) == (code != 0)


def test_without_its_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """A sentence, a way out and the code of the configuration, in place of a traceback."""
    script = "import sys; sys.modules['apsw'] = None\nfrom confide_daemon.__main__ import main\nmain()"
    env = {**os.environ, "CONFIDE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, "init"], env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 3, done
    assert done.stderr.splitlines() == [
        "confided: the daemon's part is not installed here (no module apsw)",
        f"hint: {with_extra('daemon')}",
    ]


@pytest.mark.parametrize("is_running", [False, True])
def test_an_invite_that_nobody_can_use_is_warned_of(ready: Confided, is_running: bool) -> None:
    """With the line that mends it, and when it is right all the same; one that a proxy serves is not warned of."""
    if is_running:
        ready.serve("--listen", "127.0.0.1:0")
    said = ready.run("invite", "far", "--url", "confide://memory.example.org:7799").stderr
    assert "no device can reach confide://memory.example.org:7799: confided" in said
    assert "hint: confided serve --listen 0.0.0.0:7799" in said
    assert "reverse proxy" in said
    assert "no device can reach" not in ready.run("invite", "tls", "--url", "confides://memory.example.org").stderr
    local = ready.run("invite", "near", "--url", "confide://127.0.0.1:7799").stderr
    assert "only this machine can reach" in local
    assert "confided invite NAME --url confide://" in local


def test_a_server_that_listens_on_every_interface_is_not_warned_of(ready: Confided) -> None:
    ready.serve("--listen", "0.0.0.0:0")
    said = ready.run("invite", "laptop", "--url", "confide://memory.example.org:7799").stderr
    assert "warning" not in said


def test_a_grant_of_a_project_that_holds_nothing_is_noted(ready: Confided) -> None:
    ready.enroll()
    (caller,) = ready.json("device")
    said = ready.run("device", "edit", caller["name"], "--projects", "nosuch,global").stderr
    assert "project 'nosuch' is empty" in said


def test_the_log_of_a_daemon_on_demand_has_an_end(tmp_path: Path) -> None:
    """Three files, none open to others, the newest line in the one that is written."""
    path = tmp_path / "confided.log"
    log = logging.Logger("turned over")
    log.addHandler(handler := LogFile(path))
    for number in range(5 * 2**10):
        log.info("%06d %s", number, "x" * 1000)
    handler.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == FILES
    assert sum(file.stat().st_size for file in files) <= FILES * 2**20
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    assert f"{5 * 2**10 - 1:06d}" in path.read_text().splitlines()[-1]


def test_a_daemon_on_demand_turns_its_log_over_while_it_runs(ready: Confided) -> None:
    """Its stderr is that file, as a proxy starts it: what it writes next is in a new one."""
    log = ready.data / "confided.log"
    log.write_bytes(b"x" * (FILE_BYTES - 50) + b"\n")
    log.chmod(0o600)
    with log.open("a") as stderr:
        arguments = [CONFIDED, "serve", "--on-demand", "--idle-exit", "60"]
        null = subprocess.DEVNULL
        process = Program(arguments, env=ready.env, stdin=null, stdout=null, stderr=stderr, text=True)
    ready.processes.append(process)
    # Its address is there before it says so.
    wait_until("it to log where it listens", lambda: log.exists() and "listens on" in log.read_text())
    assert log.with_name("confided.log.1").stat().st_size <= FILE_BYTES
    assert log.stat().st_size < 1000
