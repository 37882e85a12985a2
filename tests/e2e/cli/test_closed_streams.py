"""Whoever starts our programs may have closed their streams (`>&-`), as some schedulers and window managers do: all works as without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDE, CONFIDED, Daemon, Machine, running_daemon


def ended(program: Machine | Daemon, path: Path | str, arguments: str, closed: str) -> int:
    """The exit code of a program with these streams closed."""
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", str(path), *arguments.split()]
    cwd = program.project if isinstance(program, Machine) else program.data
    return subprocess.run(line, cwd=cwd, env=program.env, timeout=DEADLINE_S, check=False).returncode


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_programs_work_with_closed_streams(tmp_path: Path, closed: str) -> None:
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        for arguments in (
            "store parrots",
            "search parrots",
            "sync",
            "status",
            "doctor --json",
            "hook",
            "mcp",
            "--help",
        ):
            assert ended(ann, CONFIDE, arguments, closed) == 0, arguments
        assert ended(ann, CONFIDE, "read memory/none.md", closed) == 7
        for arguments in ("status", "device ls"):
            assert ended(daemon, CONFIDED, f"{arguments} --data {daemon.data}", closed) == 0, arguments
        assert "parrots" in ann.run("search", "parrots")
