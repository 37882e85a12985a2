"""Ctrl-C ends both programs without a word, however early it comes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine

_PROGRAM = """
import sys
from importlib.abc import MetaPathFinder


class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {part!r}:
            raise KeyboardInterrupt


sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = {arguments!r}
from {module} import main

main()
"""


@pytest.mark.parametrize(
    ("module", "arguments", "part"),
    [
        ("confide_proxy.__main__", ["status"], "confide_proxy.cli.app"),
        ("confide_proxy.__main__", ["mcp"], "confide_proxy.mcp.stdio"),
        ("confide_daemon.__main__", ["status"], "confide_daemon.cli.app"),
    ],
)
def test_while_the_program_loads(module: str, arguments: list[str], part: str) -> None:
    program = _PROGRAM.format(module=module, arguments=arguments, part=part)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_session_whose_link_is_being_made(tmp_path: Path) -> None:
    """The system ends it, without waiting for what the session is at: so clients end their servers."""
    machine = Machine(tmp_path, "ann")
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    pipe = subprocess.PIPE
    with Program([CONFIDE, "mcp"], cwd=machine.project, env=machine.env, stdin=pipe, stdout=pipe) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(json.dumps(asked).encode() + b"\n")
        session.stdin.flush()
        assert session.stdout.readline()
        session.send_signal(signal.SIGINT)
        assert session.wait(DEADLINE_S) == -signal.SIGINT
