"""The commands' names: few at the top, one screen of help, and old names that still work and print the new ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import typer.main
from tests.support.programs.command import Ended, confide
from tests.support.programs.commands import inner_commands
from tests.support.programs.processes import Machine

from confide_memory.commands.entries import Entry, place_addons
from confide_proxy.cli.app import COMMANDS, EVERYDAY, app, of_addons
from confide_proxy.cli.old_spellings import MOVED

ROOT = Path(__file__).parents[3]
OLD = {**{old: new for each in of_addons()[0] for old, new in each.moved.items()}, **MOVED}
MOST_OF_THE_CORE, MOST_AT_THE_TOP, MOST_IN_ALL = 24, 30, 70
COLUMNS, LINES = 80, 24


def leaves(entries: list[Entry] | tuple[Entry, ...]) -> Iterator[Entry]:
    """The commands of these entries, without the groups."""
    for entry in entries:
        if entry.commands:
            yield from leaves(tuple(entry.commands))
        else:
            yield entry


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A device that is not set up, with a terminal of 80 columns."""
    machine = Machine(tmp_path, "ann")
    machine.env |= {"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS)}
    yield machine
    machine.stop_local_daemon()


@pytest.mark.addons
def test_help_fits_on_one_screen(machine: Machine) -> None:
    """The twelve commands of every day; `confide help all` has all others by their headings."""
    lines = confide(machine, "--help").out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    listed = lines[lines.index("Commands:") + 1 : lines.index("Commands:") + 1 + len(EVERYDAY)]
    assert tuple(line.split()[0] for line in listed) == EVERYDAY
    assert len(EVERYDAY) == 12
    whole = confide(machine, "help", "all").out
    for heading, entries in place_addons(COMMANDS, of_addons()[0]).items():
        assert f"\n{heading}:\n" in whole
        for entry in entries:
            assert bool(re.search(rf"^  {entry.name}\b", whole, re.MULTILINE)) != entry.is_hidden


def test_the_core_has_few_commands() -> None:
    """At the top, as `confide help all` lists them without add-ons."""
    entries = [entry for each in COMMANDS.values() for entry in each if not entry.is_hidden]
    assert len(entries) <= MOST_OF_THE_CORE


@pytest.mark.addons
def test_there_are_few_commands() -> None:
    """At the top, those of add-ons too; and in all."""
    entries = [
        entry for each in place_addons(COMMANDS, of_addons()[0]).values() for entry in each if not entry.is_hidden
    ]
    assert len(entries) <= MOST_AT_THE_TOP
    assert len(list(leaves(tuple(entries)))) <= MOST_IN_ALL


@pytest.mark.addons
def test_a_summary_stands_once_in_a_commands_help(machine: Machine) -> None:
    """No command says in two lines, one below the other, what it does."""
    for path, command in paths(typer.main.get_command(app)):
        if path:
            text = (command.help or "").split("\n\n")
            assert "\n" not in text[0], path
            assert len(text[0]) <= COLUMNS, path
            assert all(part[:20] != text[0][:20] for part in text[1:]), path


def paths(
    command: typer.core.TyperGroup, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], typer.core.TyperCommand]]:
    yield path, command
    for name, inner in inner_commands(command).items():
        yield from paths(inner, (*path, name))


@pytest.mark.addons
@pytest.mark.parametrize(("old", "new"), OLD.items(), ids=list(OLD))
def test_an_old_spelling_is_the_new_command(old: str, new: str, machine: Machine) -> None:
    """Both do the same: they fail alike for an option that neither has; the old one prints its new name, once."""

    def typed(spelling: str) -> Ended:
        return confide(machine, *spelling.split(), "--no-such-option")

    before, after = typed(old), typed(new)
    assert (before.code, before.out) == (after.code, after.out) == (2, "")
    assert before.err == f"note: `confide {old}` is now `confide {new}`\n{after.err}"
    assert typed(f"--config {machine.home / 'none.toml'} {old}").err.startswith(f"note: `confide {old}` is now")


@pytest.mark.addons
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("queue", "sync --queue"),
        ("queue retry", "sync --queue --retry"),
        ("project folders", "project ls --folders"),
        ("scan", "secrets scan"),
        ("learned --all", "learn ls --all"),
        ("learn --status", "learn now --status"),
        ("transcripts list", "learn transcripts"),
        ("runner init --print", "task runner --init --print"),
        ("runner ls -n 3", "task runner --runs -n 3"),
        ("token ls", "http token ls"),
        ("stop", "daemon stop"),
        ("log --since 2d", "history --changes --since 2d"),
        ("deleted", "restore --list"),
        ("help watch", "help sync"),
    ],
)
def test_an_old_spelling_gives_the_same_result(old: str, new: str, machine: Machine) -> None:
    """Output, exit code and JSON; and where a script reads JSON, nothing is added to stderr."""
    before, after = confide(machine, *shlex.split(old)), confide(machine, *shlex.split(new))
    assert (before.code, before.out) == (after.code, after.out)
    assert before.err.startswith("note: `confide ")
    assert before.err.partition("\n")[2] == after.err
    if "help" not in old:
        assert confide(machine, *shlex.split(old), "--json") == confide(machine, *shlex.split(new), "--json")


@pytest.mark.addons
def test_no_shell_completes_an_old_spelling() -> None:
    """Nor is one the name of a command, but where a group has its name now and runs something else alone."""
    names = {" ".join(path) for path, _ in paths(typer.main.get_command(app))}
    assert OLD.keys() & names == {"learn"}
    assert {" ".join(word for word in new.split() if not word.startswith("-")) for new in OLD.values()} <= names | {
        "device key move passphrase"
    }


@pytest.mark.parametrize("folder", ["proxy", "memory", "crypto", "configs", "demo", "addons", "daemon"])
def test_no_message_names_an_old_spelling(folder: str) -> None:
    """Neither in the product nor in what it writes into others' files; nor in its own comments."""
    now = {" ".join(new.split()[: len(old.split())]) for old in OLD for new in OLD.values()}
    spelled = "|".join(sorted(map(re.escape, OLD.keys() - now), key=len, reverse=True))
    old = re.compile(rf"\bconfide (?:{spelled})(?![\w-]| that follows)")
    files = (
        file
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.name != "old_spellings.py"
    )
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text("utf-8", "ignore").splitlines(), 1)
        if old.search(line)
    ]
    assert not found, "\n".join(found)
