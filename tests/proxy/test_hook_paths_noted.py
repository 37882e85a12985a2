"""Programs that are started with few variables find this user's memory by a note of those that it was set up with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide_proxy import paths
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import NotSetUpError
from confide_proxy.hooks import hook_paths
from confide_proxy.link import founding


class User:
    """A user with a home, whose programs are started with these variables or those."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._patch = patch
        home.mkdir()
        self.started_with()

    def started_with(self, **variables: Path) -> paths.ProxyPaths:
        """What a program finds that has HOME and these."""
        paths._followed.clear()  # a program of its own
        for name in (*paths.VARIABLES, "HOME"):
            self._patch.delenv(name, raising=False)
        for name, value in {"HOME": self.home, **variables}.items():
            self._patch.setenv(name, str(value))
        found = paths.find()
        assert hook_paths.find() == (str(found.state), str(found.config))
        return found

    def sets_up(self, **variables: Path) -> paths.ProxyPaths:
        here = self.started_with(**variables)
        founding.allow_own_daemon(here)
        return here

    @property
    def note(self) -> Path:
        return self.home / ".config" / "confide" / "homes.json"


@pytest.fixture
def ann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    yield User(tmp_path / "ann", monkeypatch)
    paths._followed.clear()


def places_of(ann: User) -> list[dict[str, Path]]:
    return [
        {"XDG_DATA_HOME": ann.home / ".data", "XDG_CONFIG_HOME": ann.home / ".conf"},
        {"XDG_DATA_HOME": ann.home / ".data"},
        {"CONFIDE_HOME": ann.home / "own place"},
    ]


@pytest.mark.parametrize("number", range(3))
def test_a_program_with_few_variables_finds_the_memory(ann: User, number: int) -> None:
    variables = places_of(ann)[number]
    there = ann.sets_up(**variables)
    assert ann.note.stat().st_mode & 0o777 == 0o600
    bare = ann.started_with()
    assert bare == there
    assert f"started without {' and '.join(variables)}" in paths.memory_notices()[0]
    founding.found_for_agent(bare, ProxyConfig())
    assert not (ann.home / ".local").exists()
    # What it starts, such as the daemon, finds the same.
    assert {name: os.environ.get(name) for name in variables} == {name: str(each) for name, each in variables.items()}
    assert ann.started_with(**variables) == there
    assert paths.memory_notices() == []


def test_a_session_with_other_variables_begins_no_second_memory(ann: User) -> None:
    """As of a program in a snap, which has an XDG_DATA_HOME of its own."""
    usual = ann.sets_up()
    assert not ann.note.exists()
    snap = ann.started_with(XDG_DATA_HOME=ann.home / "snap")
    founding.found_for_agent(snap, ProxyConfig())
    assert not (ann.home / "snap").exists()
    with pytest.raises(NotSetUpError) as refused:
        founding.require(snap, ProxyConfig())
    assert str(usual.state.parent) in str(refused.value)
    assert "confide quickstart" in (refused.value.hint or "")


def test_where_several_are_noted_nobody_can_say_which(ann: User) -> None:
    for name in ("work", "private"):
        ann.sets_up(CONFIDE_HOME=ann.home / name)
    bare = ann.started_with()
    founding.found_for_agent(bare, ProxyConfig())
    with pytest.raises(NotSetUpError, match="work") as refused:
        founding.require(bare, ProxyConfig())
    assert "private" in str(refused.value)
    # Each for itself goes on as ever, and says that there is the other one.
    work = ann.started_with(CONFIDE_HOME=ann.home / "work")
    founding.require(work, ProxyConfig())
    assert str(ann.home / "private") in paths.memory_notices()[0]


def test_a_place_that_somebody_chose_is_begun_and_said(ann: User) -> None:
    ann.sets_up()
    chosen = ann.started_with(CONFIDE_HOME=ann.home / "other")
    founding.found_for_agent(chosen, ProxyConfig())
    assert founding.is_set_up(chosen)
    assert str(ann.home / ".local" / "share" / "confide") in paths.memory_notices()[0]


def test_a_memory_that_is_gone_is_not_followed(ann: User) -> None:
    there = ann.sets_up(CONFIDE_HOME=ann.home / "gone")
    there.daemon_data.rmdir()
    bare = ann.started_with()
    assert bare.state == ann.home / ".local" / "share" / "confide" / "proxy"
    founding.found_for_agent(bare, ProxyConfig())
    assert founding.is_set_up(bare)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "3",
        '[{"CONFIDE_HOME": "relative"}]',
        '[{"PATH": "/tmp"}]',
        '[{"CONFIDE_HOME": 3}]',
        "[" * 5000,
        '[{"CONFIDE_HOME": "/\\u0000"}]',
        "x" * 50_000,
    ],
)
def test_a_note_of_any_other_form_is_none(ann: User, text: str) -> None:
    ann.note.parent.mkdir(parents=True)
    ann.note.write_text(text)
    ann.note.chmod(0o600)
    assert ann.started_with().state == ann.home / ".local" / "share" / "confide" / "proxy"


def test_a_note_that_others_could_have_written_is_none(ann: User) -> None:
    ann.sets_up(CONFIDE_HOME=ann.home / "own")
    usual = ann.home / ".local" / "share" / "confide" / "proxy"
    ann.note.chmod(0o644)
    assert ann.started_with().state == usual
    ann.note.chmod(0o600)
    ann.note.parent.chmod(0o777)
    assert ann.started_with().state == usual
    ann.note.parent.chmod(0o700)
    kept = ann.note.rename(ann.home / "elsewhere.json")
    ann.note.symlink_to(kept)
    assert ann.started_with().state == usual


def test_notes_are_few(ann: User) -> None:
    for number in range(paths.MOST_NOTED + 3):
        ann.sets_up(CONFIDE_HOME=ann.home / f"home{number}")
    assert len(json.loads(ann.note.read_bytes())) == paths.MOST_NOTED


def test_a_configuration_of_its_own_is_no_memory_of_its_own(ann: User) -> None:
    ann.sets_up(XDG_CONFIG_HOME=ann.home / "trial")
    assert not ann.note.exists()
