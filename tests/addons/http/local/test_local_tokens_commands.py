"""`confide http token`: a token is shown once, listed without its text, and removed; and refusals of `confide http serve`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.support.programs.command import confide
from tests.support.programs.processes import Machine

import confide_http.door
from confide_http import local as gateway


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "ann")


def test_a_token_is_printed_alone_so_that_it_can_be_kept(machine: Machine) -> None:
    made = confide(machine, "token", "new", "editor", "--scope", "write", "--days", "7")
    text = made.out.strip()
    assert (made.code, text[:4], len(text)) == (0, "cfd_", 47)
    assert "may read and write" in made.err
    listed = confide(machine, "token", "ls")
    assert listed.out.startswith("editor  may read and write, until ")
    assert "not used yet" in listed.out
    assert text[4:] not in listed.out + listed.err + made.err
    (told,) = json.loads(confide(machine, "token", "ls", "--json").out)
    assert (told["scopes"], told["projects"], told["trusted"], told["lastUsed"]) == (
        ["read", "write"],
        None,
        False,
        None,
    )
    assert confide(machine, "token", "rm", "editor").out == "token editor was removed\n"
    assert confide(machine, "token", "ls").out == ""


def test_what_a_token_may(machine: Machine) -> None:
    confide(machine, "token", "new", "a", "--project", "shop", "--project", "aviary")
    confide(machine, "token", "new", "b", "--scope", "secrets", "--trusted")
    out = confide(machine, "token", "ls").out
    assert "may read in shop, aviary" in out
    assert "may read and open sealed secrets" in out
    assert "trusted" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("new", "x", "--scope", "admin"), 2, "'admin' is not a scope"),
        (("new", "x", "--days", "0"), 2, "days"),
        (("new", "x y"), 7, "a token's name"),
        (("new", "x", "--scope", "secrets", "--project", "shop"), 7, "cannot decrypt secrets"),
        (("new", "x", *(f"--project={letter}" for letter in "abcdefg")), 7, "6 projects"),
        (("rm", "x"), 7, "no token of that name"),
    ],
    ids=str,
)
def test_what_is_refused(machine: Machine, arguments: tuple[str, ...], code: int, said: str) -> None:
    ended = confide(machine, "token", *arguments)
    assert ended.code == code
    assert said in ended.err
    assert "hint: " in ended.err


def test_serving_other_machines_is_refused(machine: Machine) -> None:
    ended = confide(machine, "serve", "--host", "0.0.0.0")
    assert ended.code == 7
    assert "listens on this device only" in ended.err
    assert "gateway of confided" in ended.err


def test_without_its_libraries_it_says_what_to_install(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delattr(gateway, "gateway_server", raising=False)
    monkeypatch.delattr(confide_http.door, "serving", raising=False)
    for name in ("confide_http.local.gateway_server", "confide_http.door.serving"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    ended = confide(machine, "serve")
    assert ended.code == 3
    assert "install confide with its extra gateway too" in ended.err
