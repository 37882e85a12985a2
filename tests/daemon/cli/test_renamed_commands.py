"""The commands of `confided`: few at the top and in all, and old names that work and print the new ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import typer.main
from tests.support.programs.commands import inner_commands
from tests.support.programs.confided import Confided

from confide_daemon.cli.app import COMMANDS, addon_commands, app
from confide_daemon.cli.renamed_commands import MOVED
from confide_memory.commands.entries import Entry, place_addons

ROOT = Path(__file__).parents[3]
OLD = {**{old: new for each in addon_commands()[0] for old, new in each.moved.items()}, **MOVED}
ENTRIES = [
    each for group in place_addons(COMMANDS, addon_commands()[0]).values() for each in group if not each.is_hidden
]
MOST_AT_THE_TOP, MOST_IN_ALL = 16, 29


def leaves(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The commands of these entries, without the groups."""
    for entry in entries:
        yield from leaves(entry.commands) if entry.commands else (entry,)


@pytest.mark.addons
def test_the_daemon_has_few_commands() -> None:
    assert len(ENTRIES) <= MOST_AT_THE_TOP
    assert len(list(leaves(ENTRIES))) <= MOST_IN_ALL


@pytest.mark.addons
def test_an_old_spelling_of_the_daemon_is_the_new_command(confided: Confided) -> None:
    """Both fail alike for an option that neither has; the old one prints its new name once, above that."""
    for old, new in OLD.items():
        rest = (*(["home"] if old == "store release" else []), "--no-such-option")
        before, after = confided.run(*old.split(), *rest, code=2), confided.run(*new.split(), *rest, code=2)
        assert before.stdout == after.stdout == ""
        assert before.stderr == f"note: `confided {old}` is now `confided {new}`\n{after.stderr}"


def test_an_old_spelling_of_the_daemon_gives_the_same_result(ready: Confided) -> None:
    """The same output and exit code; where a script reads JSON, nothing is added to stderr."""
    ready.enroll("laptop")
    for old, new in (
        ("callers", "device ls"),
        ("callers show laptop", "device ls laptop"),
        ("key show", "key"),
        ("invite ls", "invite"),
        ("custody laptop", "space key laptop"),
    ):
        before, after = ready.run(*old.split()), ready.run(*new.split())
        assert before.stdout == after.stdout
        assert before.stderr.startswith("note: `confided ")
        before, after = ready.run(*old.split(), "--json"), ready.run(*new.split(), "--json")
        assert (before.stdout, before.stderr) == (after.stdout, after.stderr)
    assert ready.run("callers", "rename", "laptop", "desk").stdout == "renamed: laptop is now desk\n"
    assert ready.run("revoke", "desk", "--yes").stdout.startswith("removed: desk")
    assert ready.json("device") == []


@pytest.mark.addons
def test_no_old_spelling_of_the_daemon_is_a_command() -> None:
    """So no shell completes one, and no help lists it."""
    root = typer.main.get_command(app)
    names = set(inner_commands(root)) | {
        f"{name} {inner}" for name, command in inner_commands(root).items() for inner in inner_commands(command)
    }
    assert not OLD.keys() & names
    assert {" ".join(word for word in new.split() if not word.startswith("-")) for new in OLD.values()} <= names


@pytest.mark.parametrize("folder", ["proxy", "memory", "crypto", "configs", "demo", "addons", "daemon"])
def test_no_message_names_an_old_spelling_of_the_daemon(folder: str) -> None:
    """Neither a message, a unit, an image or a chart, nor a comment."""
    spelled = "|".join(sorted(map(re.escape, OLD), key=len, reverse=True))
    old = re.compile(rf"\bconfided (?:{spelled})(?![\w-])")
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.name != "renamed_commands.py"
        for number, line in enumerate(file.read_text("utf-8", "ignore").splitlines(), 1)
        if old.search(line)
    ]
    assert not found, "\n".join(found)
