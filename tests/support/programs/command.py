"""A command of `confide` or `confided` in the test's own process: what it prints and how it ends, at a fraction of what a program costs."""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol
from unittest.mock import patch

import typer.main

from confide_proxy.cli import app
from confide_proxy.sync.ledger import path_locks

_MADE = functools.cache(typer.main.get_command)
"""A command's parameters are made once, as a program makes them once."""
PRIVATE = 0o077
"""The umask of `confided`."""


class Place(Protocol):
    """Where a machine's commands run, and with which environment."""

    project: Path
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. What should have been a sentence and was a traceback is raised by `confide`."""

    code: int
    out: str
    err: str


def confide(machine: Place, *arguments: str, stdin: str = "") -> Ended:
    """Run a command as a machine's. One at a time: its folder, environment and output are the process's."""
    path_locks.cache_clear()  # a program that ended holds none
    return _run(app.main, ["confide", *arguments], machine.project, machine.env, stdin)


def confided(env: Mapping[str, str], *arguments: str) -> Ended:
    """The same of `confided`, which is loaded when it is first asked for."""
    from confide_daemon.cli import app

    before = os.umask(PRIVATE)
    try:
        return _run(app.main, ["confided", *arguments], Path.cwd(), env, "")
    finally:
        os.umask(before)


def _run(main: Callable[[], NoReturn], words: list[str], folder: Path, env: Mapping[str, str], stdin: str) -> Ended:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    # As in a program, where nobody else takes what asyncio complains of.
    complaints, asyncio_log = logging.StreamHandler(err), logging.getLogger("asyncio")
    complaints.setLevel(logging.WARNING)
    with (
        chdir(folder),
        patch.dict(os.environ, env, clear=True),
        patch.object(sys, "argv", words),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        patch.object(typer.main, "get_command", _MADE),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        asyncio_log.addHandler(complaints)
        try:
            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            asyncio_log.removeHandler(complaints)
    texts = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return Ended(code, *texts)
