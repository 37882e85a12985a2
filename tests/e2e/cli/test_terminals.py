"""What a person sees: lines that fit, styles where they are wanted, a sign of life, and nothing that colour alone says."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.programs.command import confide
from tests.support.programs.processes import Machine, wait_until

from confide_memory.commands.doing import Doing, doing
from confide_proxy.cli import app
from confide_proxy.cli.console import ask_confirmation, ask_yes_no, read_line
from confide_proxy.sync.ledger import path_locks

STYLE = re.compile(r"\x1b\[[0-9;]*m|\x1b\[K|\r")
COMMANDS = (
    ("status",),
    ("search", "postgres deadlock"),
    ("ls",),
    ("log",),
    ("history", "memory/decisions.md"),
    ("history", "memory/decisions.md", "--diff"),
    ("doctor",),
    ("help",),
    ("help", "search"),
    ("queue",),
    ("projects",),
)
LONG = "We chose postgres over mysql for its row locks, because two writers met on one row every night, and morning came late."


class Terminal(io.TextIOWrapper):
    """An output that is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("terminals"), "ann")
    made.write("memory/decisions.md", f"# Which database for the nightly import\n\n{LONG}\n")
    try:
        confide(made, "sync")
        confide(made, "store", f"- {LONG}", "--path", "memory/decisions.md")
        yield made
    finally:
        made.stop_local_daemon()


def seen(machine: Machine, *command: str, columns: int = 80, encoding: str = "utf-8", **env: str) -> tuple[str, str]:
    """What a command writes to a terminal: stdout, and stderr."""
    path_locks.cache_clear()
    out, err = Terminal(encoding), Terminal(encoding)
    surroundings = {**machine.env, "COLUMNS": str(columns), "LINES": "24", "TERM": "xterm", **env}
    surroundings.pop("NO_COLOR", None) if "NO_COLOR" not in env else None
    with (
        chdir(machine.project),
        patch.dict(os.environ, surroundings, clear=True),
        patch.object(sys, "argv", ["confide", *command]),
        patch.object(sys, "stdin", io.StringIO()),
        patch.object(sys, "stdout", out),
        patch.object(sys, "stderr", err),
        pytest.raises(SystemExit),
    ):
        app.main()
    return out.text, err.text


@pytest.mark.long
def test_no_line_is_wider_than_the_terminal(machine: Machine) -> None:
    """What is longer goes on below, indented, broken between words; a path stays whole. Colour adds nothing that words do not say."""
    for command in COMMANDS:
        styled, _ = seen(machine, *command)
        text = STYLE.sub("", styled)
        if "--diff" not in command:  # lines of a file, as they are
            wide = [line for line in text.splitlines() if len(line) > 80 and " " in line.strip()]
            assert wide == [], (command, text)
        plain, _ = seen(machine, *command, NO_COLOR="1")
        assert "\x1b" not in plain
        words, others = (re.sub(r"[\d.]+", "", each).split() for each in (plain, text))  # times are others each time
        assert words == others, command
    assert "\x1b[1m" in seen(machine, "search", "postgres")[0]
    assert len(seen(machine, "search", "postgres", columns=160)[0]) > len(LONG)
    assert LONG in seen(machine, "search", "postgres", columns=160, NO_COLOR="1")[0]


@pytest.mark.long
def test_dumb_terminals_pipes_and_ascii(machine: Machine) -> None:
    """No escape sequence in a pipe or with TERM=dumb, and under LANG=C a mark in the place of a letter that cannot be written."""
    machine.write("memory/umlaut.md", "# Grüße\n\nGrüße aus Köln.\n")
    assert "\x1b" not in seen(machine, "doctor", TERM="dumb")[0]
    assert "\x1b" not in seen(machine, "help", TERM="dumb")[0]
    for command in (("sync",), ("search", "postgres"), ("help",)):
        piped = confide(machine, *command)
        assert "\x1b" not in piped.out + piped.err
        assert "\r" not in piped.err
    text, _ = seen(machine, "read", "memory/umlaut.md", encoding="ascii", LANG="C")
    assert "Gr??e aus K?ln." in text


class Here:
    """Where the line about what is done goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **env: str) -> None:
        self.stream = Terminal()
        monkeypatch.setattr(sys, "stderr", self.stream)
        for name, value in {"TERM": "xterm", "NO_COLOR": "", **env}.items():
            monkeypatch.setenv(name, value)


def test_what_is_done_is_told_soon_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a second after the program began, however long it took to load; the line is gone at the end."""
    here, doing = Here(monkeypatch), Doing()
    doing.waits_from(time.monotonic() - 5)
    doing.begin()
    doing("starting the daemon")
    wait_until("a sign of life", lambda: "starting the daemon" in here.stream.text)
    doing.end()
    assert here.stream.text.endswith("\r\x1b[K")


def test_without_styles_it_is_a_line_for_each_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a screen reader needs it: nothing is drawn over."""
    here, doing = Here(monkeypatch, NO_COLOR="1"), Doing()
    doing.waits_from(0.0)
    doing("connecting")
    doing.begin()
    wait_until("a sign of life", lambda: here.stream.text)
    doing.end()
    assert here.stream.text == "connecting ...\n"


class Person(io.TextIOWrapper):
    """Somebody who says yes."""

    was_paused = False

    def readline(self, size: int | None = -1, /) -> str:
        self.was_paused = doing.is_paused
        return "y\n"


@pytest.mark.parametrize("ask", [ask_confirmation, read_line, ask_yes_no])
def test_nothing_is_drawn_over_a_question(
    ask: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line about what is done is drawn in the place of whatever stands last: a question would be gone before it is read."""
    here = Here(monkeypatch)
    doing.waits_from(0.0)
    doing.begin()
    with Person((tmp_path / "typed").open("w+b")) as person:
        monkeypatch.setattr(sys, "stdin", person)
        try:
            wait_until("a sign of life", lambda: "working" in here.stream.text)
            asked = ask("index them?")
            assert asyncio.run(asked) if asyncio.iscoroutine(asked) else asked
        finally:
            doing.end()
    assert person.was_paused
    assert not doing.is_paused


@pytest.mark.parametrize("where", ["pipe", "dumb"])
def test_nobody_who_does_not_look_is_told(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, doing = Here(monkeypatch, TERM="dumb" if where == "dumb" else "xterm"), Doing()
    if where == "pipe":
        monkeypatch.setattr(sys, "stderr", io.StringIO())
    doing.waits_from(0.0)
    doing.begin()
    assert doing._thread is None
    doing.end()
    assert here.stream.text == ""
