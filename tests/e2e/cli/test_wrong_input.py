"""Wrong commands, options, values, paths, encodings and folders: a sentence, a way out, the documented exit code, and nothing is written.

One table for both programs, in this process. Nothing in it may reach a daemon: what is wrong is wrong without one.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from tests.support.programs.command import Ended, confide
from tests.support.programs.processes import Machine

from confide_daemon.cli import app as daemon_app
from confide_proxy.errors import DaemonStartError
from confide_proxy.link import daemon

LATIN = "caf\udce9"
"""As the shell hands over a byte that is no UTF-8."""
USAGE, CONFIG, KEYS, INPUT = 2, 3, 4, 7
SETTLED = {"projects.lock", "fingerprint.key", "last", "identity.key", "homes.json"}
"""Of the machine itself, and no memory: a lock, its keys, the space that it used last, where its memory is.

What asks the daemon first makes them.
"""


class Wrong(NamedTuple):
    """A command line, what is typed into it, and the code with which it ends."""

    line: tuple[str, ...]
    code: int
    stdin: str = ""


def wrong(code: int, *lines: tuple[str, ...]) -> list[Wrong]:
    return [Wrong(line, code) for line in lines]


CONFIDE = [
    *wrong(
        USAGE,
        ("--nonsense",),
        ("-x",),
        ("--config",),
        ("--json", "search", "x"),
        ("SEARCH", "x"),
        ("help", "nonsense"),
        ("help", "key", "nonsense"),
        ("search",),
        ("search", "x", "y"),
        ("search", "x", "-n"),
        ("search", "x", "-n", "0"),
        ("search", "x", "-n", "51"),
        ("search", "x", "-n", "three"),
        ("search", "x", "-n", "1e3"),
        ("search", "x", "--min-score", "nan"),
        ("search", "x", "--min-score", "2"),
        ("search", "x", "--min-score", "-0.1"),
        ("search", "x", "--json=yes"),
        ("search", "x", "--limit", ""),
        ("search", LATIN),
        ("search", "x", "--project", "/nowhere"),
        ("search", "x", "--project", "memory/a.md"),
        ("search", "x", "--project", ""),
        ("status", "-z"),
        ("read",),
        ("read", LATIN),
        ("read", "memory/a.md", "3"),
        ("read", "memory/a.md", "--from", "0"),
        ("read", "memory/a.md", "--lines", "2001"),
        ("read", "memory/a.md", "--revision", "-1"),
        ("store",),
        ("store", "x", "--path", f"{LATIN}.md"),
        ("store", "x", "--title", "t", "--path", "memory/a.md"),
        ("ls", "-n", "0"),
        ("log", "--since", "yesterday"),
        ("log", "--since", "-1d"),
        ("log", "--since", "2026-13-01"),
        ("edit",),
        ("rm",),
        ("history", "memory/a.md", "2"),
        ("history", "memory/a.md", "--revision", "0"),
        ("restore", "memory/a.md", "--revision", "x"),
        ("unlink",),
        ("join", "an", "invite"),
        ("pin",),
        ("move", "--to"),
        ("setup", "emacs"),
        ("export",),
        ("transcripts", "forget"),
        ("device", "invite"),
        ("device", "approve"),
        ("device", "rm"),
        ("key", "shw"),
        ("key", "import"),
        ("key", "move", "cloud"),
        ("secrets", "show"),
        ("queue", "drop"),
        ("start", "now"),
        ("stop", "now"),
    ),
    *wrong(
        CONFIG,
        ("--config", "/nowhere", "status"),
        ("--config", "memory/binary.md", "status"),
        ("--config", "memory/a.md", "status"),
    ),
    *wrong(KEYS, ("key", "import", "/nowhere"), ("key", "import", "memory/a.md")),
    *wrong(
        INPUT,
        ("search", ""),
        ("search", " \t\n"),
        ("store", ""),
        ("store", "x", "--tag", ""),
        ("store", "x", "--title", "t", "--importance", "huge"),
        ("store", "x", "--title", "t", "--importance", "11"),
        ("store", "x", "--path", "../x.md"),
        ("store", "x", "--path", "/etc/x.md"),
        ("store", "x", "--path", "a.txt"),
        ("store", "x", "--path", ".git/config"),
        ("store", "x", "--path", "memory/"),
        ("rm", "memory/a.md"),
        ("pin", "ws://host:1/", "no-key"),
        ("import", "/nowhere"),
        ("import", "memory/binary.md"),
        ("project", "forget", "/nowhere"),
        ("scan", "/nowhere"),
        ("queue", "drop", "zz", "--yes"),
        ("queue", "retry", "zz"),
        ("export", "memory/a.md"),
    ),
    Wrong(("store", "-"), INPUT),
    Wrong(("store", "-"), INPUT, " \n\n"),
]
CONFIDED = [
    *wrong(
        USAGE,
        ("--nonsense",),
        ("reindx",),
        ("help", "nonsense"),
        ("serve", "--listen"),
        ("serve", "--idle-exit", "0"),
        ("invite", "rm"),
        ("invite", LATIN),
        ("invite", "laptop", "--nonsense"),
        ("callers", "nonsense"),
        ("callers", "add"),
        ("revoke",),
        ("logs", "-n", "0"),
        ("logs", "-n", "many"),
        ("stop", "--wait", "-1"),
        ("stop", "--wait", "nan"),
        ("key", "shw"),
        ("vault", "mvoe"),
        ("custody",),
        ("rekey",),
        ("bench", "--questions", "none"),
        ("status", "--data", ""),
    ),
    *wrong(CONFIG, ("init", "--config", "/nowhere"), ("serve", "--config", "binary.toml")),
    *wrong(KEYS, ("status",), ("serve",), ("invite", "laptop"), ("revoke", "laptop"), ("key", "rotate"), ("audit",)),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    made = Machine(tmp_path_factory.mktemp("wrong"), "ann")
    made.write("memory/a.md", "- a line\n")
    (made.project / "memory" / "binary.md").write_bytes(b"\xff\xfe\x00")
    (made.project / "binary.toml").write_bytes(b"\xff\xfe\x00")
    return made


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon is started for what is wrong anyway."""

    def spawn(*_arguments: Any) -> int:
        raise DaemonStartError("this test starts none")

    monkeypatch.setattr(daemon, "_spawn", spawn)


def confided(machine: Machine, *arguments: str) -> Ended:
    """`confided` in this process, in a data folder that is not set up."""
    out, err = io.StringIO(), io.StringIO()
    env = machine.env | {"CONFIDE_HOME": str(machine.home.parent / "operator")}
    code = 0
    with (
        chdir(machine.project),
        patch.dict(os.environ, env, clear=True),
        patch.object(sys, "argv", ["confided", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            daemon_app.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Ended(code, out.getvalue(), err.getvalue())


def files(machine: Machine) -> dict[Path, bytes]:
    found = (path for path in machine.home.parent.rglob("*") if path.is_file() and path.suffix != ".pub")
    return {path: path.read_bytes() for path in found if path.name not in SETTLED}


def check(program: str, given: Wrong, ended: Ended) -> None:
    lines = ended.err.splitlines()
    assert ended.code == given.code, (given, ended)
    assert len([line for line in lines if line.startswith(f"{program}: ")]) == 1, (given, ended)
    assert [line for line in lines if line.startswith("hint: ") and len(line) > len("hint: ")], (given, ended)
    assert "Traceback" not in ended.err, (given, ended)


def test_there_are_many() -> None:
    assert len({given.line for given in CONFIDE + CONFIDED}) > 100


@pytest.mark.addons
@pytest.mark.long
@pytest.mark.parametrize("code", sorted({given.code for given in CONFIDE}))
def test_what_is_wrong_for_confide(code: int, machine: Machine) -> None:
    before = files(machine)
    for given in CONFIDE:
        if given.code == code:
            check("confide", given, confide(machine, *given.line, stdin=given.stdin))
    assert files(machine) == before


@pytest.mark.long
@pytest.mark.parametrize("code", sorted({given.code for given in CONFIDED}))
def test_what_is_wrong_for_confided(code: int, machine: Machine) -> None:
    before = files(machine)
    for given in CONFIDED:
        if given.code == code:
            check("confided", given, confided(machine, *given.line))
    assert files(machine) == before


def test_what_is_no_invite(machine: Machine) -> None:
    """What is pasted into `join` and is none is told so, and nothing is joined."""
    before = files(machine)
    for typed in (
        "",
        "hello\n",
        "https://example.org\n",
        "confide://h:1/#invite1bad\n",
        "confide://h:0/\n",
        "x" * 5000,
    ):
        ended = confide(machine, "join", stdin=typed)
        assert ended.code in (6, 7), (typed, ended)
        assert "hint: " in ended.err, (typed, ended)
    assert files(machine) == before


@pytest.mark.addons
def test_a_slip_in_a_word_that_may_stand_for_an_invite(machine: Machine) -> None:
    """`local` is the one word that `confide daemon move` takes; a slip in it is no part of an invite that was lost."""
    for typed in ("loacl", "locl", "Local "):
        ended = confide(machine, "move", "--to", typed, "--yes")
        assert "did you mean confide daemon move --to local?" in ended.err or typed == "Local ", (typed, ended)
    assert "single quotes" in confide(machine, "move", "--to", "confide://h:1/", "--yes").err
