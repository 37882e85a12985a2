"""The list of commands: what it names is there, what it shows can be typed, and what people try leads somewhere."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.support.programs.command import confide
from tests.support.programs.processes import Machine

from confide_memory.commands.spelling import meant
from confide_proxy.cli.app import COMMANDS, OTHER_WORDS, app

ENTRIES = {entry.name: entry for entries in COMMANDS.values() for entry in entries}
PROGRAM: Any = typer.main.get_command(app)
HEAVY = {"rich", "pydantic", "pydantic_core", "sqlite3", "numpy", "mcp", "httpx2", "yaml", "watchdog"}
"""Libraries of which each costs a warm command more than it has time for."""
OTHERS = {
    "confide_proxy.mcp.tunnel",
    "confide_proxy.mcp.session",
    "confide_proxy.offline.journal",
    "confide_proxy.devices.duties",
    "confide_proxy.devices.pairing",
}
"""What an agent's session needs, or a machine that has something to do for its space."""


def parts(example: str) -> Iterator[list[str]]:
    """The arguments of each `confide` in a line of a shell."""
    for piece in example.split("|"):
        words = shlex.split(piece)
        if words[0] == "confide":
            yield words[1:]


@pytest.mark.parametrize("name", ENTRIES)
def test_examples_can_be_typed_as_they_stand(name: str) -> None:
    """Every command has one, with options that it has."""
    assert ENTRIES[name].examples
    for example in ENTRIES[name].examples:
        for arguments in parts(example):
            command = PROGRAM.commands[arguments.pop(0)]
            while hasattr(command, "commands") and arguments:
                command = command.commands[arguments.pop(0)]
            command.make_context(command.name, arguments)  # raises what a wrong option or argument is answered with


def test_other_words_lead_to_commands_that_exist() -> None:
    inner = {word for name in ENTRIES for word in getattr(PROGRAM.commands[name], "commands", ())}
    assert set(OTHER_WORDS.values()) <= {*ENTRIES, *inner}
    assert not OTHER_WORDS.keys() & ENTRIES.keys()


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("delete", "rm"),
        ("list", "ls"),
        ("find", "search"),
        ("serach", "search"),
        ("remember", "store"),
        ("xyzzy", None),
    ],
)
def test_what_was_meant(word: str, command: str | None) -> None:
    assert meant(word, ENTRIES, OTHER_WORDS) == command


def test_a_wrong_word_gets_a_hint_and_code_2(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "ann")
    for arguments in (["serach", "x"], ["delete", "x"], ["search", "--limt", "3", "x"], ["device", "list"]):
        ended = confide(machine, *arguments)
        assert ended.code == 2
        assert "hint: " in ended.err
        assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", ["status", "search", "store"])
def test_a_warm_command_loads_nothing_heavy(name: str, tmp_path: Path) -> None:
    """People wait for what is imported."""
    script = (
        "import json, sys\n"
        "import typer.main\n"
        "from confide_proxy.cli.app import app\n"
        f"typer.main.get_command(app).commands[{name!r}]\n"
        "from confide_proxy.mcp import client\n"
        "import confide_crypto.transport.open\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = set(json.loads(done.stdout))
    assert not {each.split(".")[0] for each in loaded} & HEAVY
    assert not loaded & OTHERS
