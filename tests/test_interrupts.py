"""Ctrl-C ends both programs without a word, however early it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.deadline import DEADLINE_S

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
