"""A command of `confide` in the test's own process: what it prints and how it ends, at a twentieth of what a program costs."""

from __future__ import annotations

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from tests.support.programs.processes import Machine

from confide_proxy.cli import app
from confide_proxy.sync.ledger import path_locks


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. What should have been a sentence and was a traceback is raised by `confide`."""

    code: int
    out: str
    err: str


def confide(machine: Machine, *arguments: str, stdin: str = "") -> Ended:
    """Run a command as a machine's. One at a time: its folder, environment and output are the process's."""
    path_locks.cache_clear()  # a program that ended holds none
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with (
        chdir(machine.project),
        patch.dict(os.environ, machine.env, clear=True),
        patch.object(sys, "argv", ["confide", *arguments]),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            app.main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
    texts = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return Ended(code, *texts)
