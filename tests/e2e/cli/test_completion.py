"""What Tab offers, as bash asks for it; it makes nothing and starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.programs.forked import run
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDE, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, "laptop")
    made.write("memory/2026-11-20.md", "- one\n")
    made.write("memory/notes/queue.md", "- two\n")
    made.write("README.md", "not memory\n")
    made.call_project("parcel")
    made.allow("parcel")
    return made


def offered(machine: Machine, words: str) -> list[str]:
    """Names behind the words of a line, whose last is not complete yet."""
    asked = {"_CONFIDE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = run([CONFIDE], cwd=machine.project, env={**machine.env, **asked}, timeout=COMMAND_DEADLINE_S)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("confide history ", ["memory/2026-11-20.md", "memory/notes/queue.md"]),
        ("confide edit memory/n", ["memory/notes/queue.md"]),
        ("confide project link parc", ["parcel"]),
        ("confide ls --only x", []),
        ("confide hist", ["history"]),
        ("confide proj", ["project"]),
        ("confide que", []),
    ],
)
def test_a_tab_offers_what_is_here(machine: Machine, words: str, names: list[str]) -> None:
    """Files of memory and this machine's projects."""
    assert offered(machine, words) == names


def test_a_tab_says_nothing_of_a_broken_file(machine: Machine) -> None:
    """A file of names that others could have written offers none; the command says what is wrong with it."""
    (machine.home / "proxy" / "projects.jsonl").chmod(0o666)
    assert offered(machine, "confide project link ") == []


def test_a_shell_may_be_named(machine: Machine) -> None:
    """As a package does that brings the file along: nobody types there, and no shell runs it."""
    done = run([CONFIDE, "--show-completion", "fish"], cwd=machine.project, env=machine.env, timeout=COMMAND_DEADLINE_S)
    assert "complete --command confide" in done.stdout
