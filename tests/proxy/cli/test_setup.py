"""Putting the entry into a client's configuration, and taking it away, leaves everything else as it was."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from confide_proxy.cli import clients
from confide_proxy.cli.clients import CLIENTS, added, removed
from confide_proxy.errors import SetupError, SetupStorageError

CLAUDE = CLIENTS["claude-code"]
PROGRAM = "/opt/confide/bin/confide"
ENTRY = {"command": PROGRAM, "args": ["mcp"]}


def test_merges_beside_other_servers(tmp_path: Path) -> None:
    """Other entries, other keys, the indent and the file's mode stay; a second time changes nothing."""
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"other": {"command": "x"}}, "theme": "därk"}, indent=4))
    file.chmod(0o600)
    added(CLAUDE, file, PROGRAM).write()
    assert json.loads(file.read_text()) == {
        "mcpServers": {"other": {"command": "x"}, "confide": ENTRY},
        "theme": "därk",
    }
    assert '\n    "theme"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert not added(CLAUDE, file, PROGRAM).is_one


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_what_was_added_can_be_removed(client: clients.Client, tmp_path: Path) -> None:
    """Each client's file has an absolute path, starts `confide mcp`, and is afterwards what it was before."""
    file = client.file(tmp_path, for_user=False) if client.of_project else tmp_path / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    other = (
        '# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "y"\n'
        if client.is_toml
        else json.dumps({"model": "x", client.group: {"other": {"command": "y"}}}, indent=2) + "\n"
    )
    file.write_text(other)
    added(client, file, PROGRAM).write()
    read = tomllib.loads if client.is_toml else json.loads
    document = read(file.read_text())
    assert document[client.group]["confide"] == client.entry(PROGRAM)
    assert document[client.group]["other"] == {"command": "y"}
    assert clients.command_of(client, file) == PROGRAM
    removed(client, file).write()
    assert read(file.read_text()) == read(other)
    assert not removed(client, file).is_one
    if client.is_toml:
        assert file.read_text().startswith("# mine\n")


def test_makes_the_file(tmp_path: Path) -> None:
    """No file yet is the usual case, and the client's folder need not be there either."""
    file = CLIENTS["cursor"].file(tmp_path, for_user=False)
    added(CLIENTS["cursor"], file, PROGRAM).write()
    assert json.loads(file.read_text()) == {"mcpServers": {"confide": ENTRY}}


def test_what_somebody_added_to_the_entry_stays(tmp_path: Path) -> None:
    """An entry of an earlier version gets the program's path, and keeps its environment."""
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"confide": {"command": "confide", "args": ["mcp"], "env": {"A": "b"}}}}))
    added(CLAUDE, file, PROGRAM).write()
    assert json.loads(file.read_text())["mcpServers"]["confide"] == {**ENTRY, "env": {"A": "b"}}


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": []}', "\x00", "{} // a comment"])
def test_what_cannot_be_merged_is_left_alone(tmp_path: Path, text: str) -> None:
    """A broken file is named and not touched."""
    file = tmp_path / ".mcp.json"
    file.write_text(text)
    with pytest.raises(SetupError, match=r"\.mcp\.json"):
        added(CLAUDE, file, PROGRAM)
    assert file.read_text() == text


def test_toml_that_cannot_be_changed_safely_is_left_alone(tmp_path: Path) -> None:
    """A table that is closed where it stands takes no more servers."""
    file = tmp_path / "config.toml"
    file.write_text('mcp_servers = { other = { command = "y" } }\n')
    with pytest.raises(SetupError, match="cannot be changed safely"):
        added(CLIENTS["codex"], file, PROGRAM)


def test_links_and_odd_text_come_through(tmp_path: Path) -> None:
    """A linked configuration stays a link; half a surrogate pair of somebody else's survives."""
    (tmp_path / "dotfiles").mkdir()
    file = tmp_path / "dotfiles" / "claude.json"
    file.write_text('{"odd": "\\ud83d"}')
    link = tmp_path / ".claude.json"
    link.symlink_to(file)
    added(CLAUDE, link, PROGRAM).write()
    assert link.is_symlink()
    assert json.loads(file.read_text())["odd"] == "\ud83d"
    assert sorted(path.name for path in file.parent.iterdir()) == ["claude.json"]


def test_a_disk_that_takes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the file's own name, and the exit code is that of the disk."""

    def refused(*_arguments: object) -> int:
        raise OSError(30, "Read-only file system")

    change = added(CLAUDE, tmp_path / ".mcp.json", PROGRAM)
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(SetupStorageError) as told:
        change.write()
    assert str(told.value) == f"{tmp_path / '.mcp.json'} cannot be written: Read-only file system"
    assert told.value.exit_code == 8


def test_the_path_of_the_program_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lacks the shell's PATH can start it; a name on PATH that is another program is not taken."""
    stranger = tmp_path / "confide"
    stranger.write_text("#!/bin/sh\n")
    stranger.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    own = clients.program()
    assert Path(own).is_absolute()
    assert own != str(stranger)
    stranger.unlink()
    stranger.symlink_to(own)
    assert clients.program() == str(stranger), "the name that stays over updates"
