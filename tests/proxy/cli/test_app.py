"""The list of commands: what it names is there, what it shows can be typed, and what people try leads somewhere."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.support.programs.command import confide
from tests.support.programs.commands import inner_commands
from tests.support.programs.processes import Machine

from confide_daemon.cli import app as daemon_app
from confide_memory.commands import values
from confide_memory.commands.command_runner import complaint
from confide_memory.commands.entries import Entry, place_addons
from confide_memory.commands.group import long_options
from confide_memory.commands.spelling import OtherWords, nearest_name, read_words
from confide_proxy.cli.app import COMMANDS, WORDS, app, of_addons

_MORE, _MORE_WORDS = of_addons()
OTHER_WORDS = {**read_words(WORDS), **_MORE_WORDS}
ENTRIES = {entry.name: entry for entries in place_addons(COMMANDS, _MORE).values() for entry in entries}
PROGRAM: Any = typer.main.get_command(app)
HEAVY = {"rich", "pydantic", "pydantic_core", "sqlite3", "numpy", "mcp", "httpx2", "yaml", "watchdog"}
"""Libraries of which each costs a warm command more than it has time for."""
OTHERS = {
    "confide_proxy.mcp.tunnel",
    "confide_proxy.mcp.agent_session",
    "confide_proxy.offline.journal",
}
"""What an agent's session needs."""


PROGRAMS: dict[str, tuple[Any, dict[str, Entry], OtherWords]] = {
    "confide": (PROGRAM, ENTRIES, OTHER_WORDS),
    "confided": (
        typer.main.get_command(daemon_app.app),
        {
            entry.name: entry
            for entries in place_addons(daemon_app.COMMANDS, daemon_app.addon_commands()[0]).values()
            for entry in entries
        },
        read_words(daemon_app.WORDS),
    ),
}


def parts(example: str) -> Iterator[list[str]]:
    """Each command in a line of a shell: the program and its arguments."""
    for piece in example.split("|"):
        words = shlex.split(piece)
        if words[0] in PROGRAMS:
            yield words


def made(commands: Any, words: list[str]) -> None:
    """Raises what a wrong option or argument is answered with."""
    context = typer.Context(commands, info_name=words.pop(0))
    while inner := inner_commands(commands):
        default = not words or words[0].startswith("-") or words[0] not in inner
        if default and "make" not in inner:
            break
        commands = inner["make" if default else words.pop(0)]
    commands.make_context(commands.name, words, parent=context)


@pytest.mark.parametrize(
    ("program", "name"), [(program, name) for program, (_, entries, _) in PROGRAMS.items() for name in entries]
)
def test_examples_can_be_typed_as_they_stand(program: str, name: str) -> None:
    """Those of commands in groups too; a command without one can be typed alone."""
    root, _, _ = PROGRAMS[program]
    for path, command in commands_of(inner_commands(root)[name], (program, name)):
        examples = [words for line in (command.epilog or "").splitlines() for words in parts(line)]
        for words in examples or [list(path)]:
            with suppress(typer.Exit):  # a group alone prints its help
                made(root, words)


@pytest.mark.addons
@pytest.mark.parametrize("program", PROGRAMS)
def test_other_words_lead_to_commands_that_exist(program: str) -> None:
    commands, entries, words = PROGRAMS[program]
    inner = {path[-1] for path, _ in commands_of(commands) if path}
    meanings = {one for said in words.values() for one in ((said,) if isinstance(said, str) else said)}
    assert meanings <= {*entries, *inner}
    assert not words.keys() & entries.keys()


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("delete", "rm"),
        ("list", "ls"),
        ("find", "search"),
        ("serach", "search"),
        ("remember", "store"),
        ("xyzzy", None),
        ("se", None),
    ],
)
def test_what_was_meant(word: str, command: str | None) -> None:
    assert nearest_name(word, ENTRIES, OTHER_WORDS) == command


@pytest.mark.addons
@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("remove laptop", "device"),
        ("space remove home", "space rm"),
        ("space delete home", "space rm"),
        ("space drop home", "space rm"),
        ("backup list", "backup ls"),
        ("revok laptop", "device rm"),
        ("backup check", "backup verify"),
        ("backup restore x", "restore"),
        ("device remove laptop", "device rm"),
        ("device delete laptop", "device rm"),
        ("space xyzzy", None),
    ],
)
def test_what_was_meant_in_a_group_may_be_outside_of_it(typed: str, command: str | None) -> None:
    """A word stands for what there is where it is typed: to remove is to revoke a machine, or to rm a space."""
    with pytest.raises(typer.TyperException) as caught:
        daemon_app.app(typed.split(), prog_name="confided", standalone_mode=False)
    hint = getattr(caught.value, "hint", "")
    assert hint.startswith(f"did you mean confided {command}? ") if command else "did you mean" not in hint


@pytest.mark.addons
@pytest.mark.parametrize(("word", "command"), [("ad", "add"), ("ap", None), ("app", "approve"), ("re", None)])
def test_a_beginning_of_two_letters_is_a_word_that_lacks_one_letter(word: str, command: str | None) -> None:
    """`confide task ad` is `add`, and not another word for `confide store`."""
    with pytest.raises(typer.TyperException) as caught:
        PROGRAMS["confide"][0](["task", word], prog_name="confide", standalone_mode=False)
    hint = getattr(caught.value, "hint", "")
    assert hint.startswith(f"did you mean confide task {command}? ") if command else "did you mean" not in hint


def slips(word: str) -> set[str]:
    """Two letters swapped, one left out, one doubled."""
    ends = range(len(word))
    found = {word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :] for at in ends}
    found |= {word[:at] + word[at + 1 :] for at in ends} | {word[: at + 1] + word[at:] for at in ends}
    return {each for each in found if each and not each.startswith("-")}


def commands_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """It and all below it, each with what is typed for it."""
    yield path, command
    for name, inner in inner_commands(command).items():
        yield from commands_of(inner, (*path, name))


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_value_that_is_typed_needs_pydantic(program: str) -> None:
    """It takes 100 ms at the start of each command, and a daemon had 8 MB of it for as long as it ran, for one choice of two words."""
    left = {
        (*path, each.name)
        for path, command in commands_of(PROGRAMS[program][0])
        for each in command.get_params(typer.Context(command))
        if hasattr(each, "type_descriptor") and type(each.get_runtime_param()).__module__ != values.__name__
    }
    assert not left


def test_a_choice_that_there_is_not_is_answered_with_those_there_are() -> None:
    with pytest.raises(typer.BadParameter) as caught:
        made(PROGRAMS["confided"][0], ["confided", "serve", "--log-format", "xml"])
    assert caught.value.message == "'xml' is not one of text, json"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_slip_in_a_word_leads_back_to_it_or_nowhere(program: str) -> None:
    """Of every option and every command there is; what is as near to another one, or another word for it, may lead there."""
    root, _, words = PROGRAMS[program]
    lost, tried = [], 0
    for _, command in commands_of(root):
        options = long_options(typer.Context(command))
        for names, others in ((options, root.option_words), ([*inner_commands(command)], words)):
            for name in names:
                for slip in slips(name) - {*names, *others}:
                    found, tried = nearest_name(slip, names, others), tried + 1
                    if found is None:
                        lost.append(slip)
                    elif found != name:
                        assert found.startswith(slip) or slip in slips(found), (command.name, slip, name, found)
    assert tried > 1000
    assert len(lost) < tried / 25, lost


@pytest.mark.addons
@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("panel --sotp", "--stop"),
        ("search x \N{EM DASH}json", "--json"),
        ("search x --JSON", "--json"),
        ("search x --max 3", "--limit"),
        ("search x --proj y", "--project"),
        ("rm x --force", "--yes"),
        ("--json search x", "confide COMMAND --json"),
        ("version", "confide --version"),
        ("hlep", "confide --help"),
        ("setup claude", "confide setup claude-code"),
        ("daemon sto", "confide daemon stop"),
        ("search --nonsense", None),
        ("search x --limit", None),
    ],
)
def test_what_was_meant_by_what_is_no_option(typed: str, near: str | None, tmp_path: Path) -> None:
    with chdir(tmp_path), pytest.raises(typer.TyperException) as caught:
        app(typed.split(), prog_name="confide", standalone_mode=False)
    _, hint = complaint(caught.value, "confide")
    assert hint.startswith(f"did you mean {near}? ") if near else "did you mean" not in hint
    assert "--help" in hint


@pytest.mark.parametrize(
    ("typed", "way"),
    [
        (["search", "--no-verify"], "confide search -- "),
        (["search", "-O2 or -O3"], "confide search -- "),
        (["store", "--force is dangerous here"], "confide store -- "),
        (["status", "--nonsense"], None),  # it takes no text
    ],
)
def test_a_text_that_begins_like_an_option_has_a_way(typed: list[str], way: str | None, tmp_path: Path) -> None:
    """A search for an option, or a note about one: the help alone does not say how."""
    with chdir(tmp_path), pytest.raises(typer.TyperException) as caught:
        app(typed, prog_name="confide", standalone_mode=False)
    _, hint = complaint(caught.value, "confide")
    assert way in hint if way else "-- " not in hint


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
        f"program = typer.main.get_command(app)\n"
        f"program.get_command(typer.Context(program), {name!r})\n"
        "from confide_proxy.mcp import client\n"
        "import confide_crypto.transport.open_channel\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = set(json.loads(done.stdout))
    assert not {each.split(".")[0] for each in loaded} & HEAVY
    assert not loaded & OTHERS
