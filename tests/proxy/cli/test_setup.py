"""Merging the entry into a client's configuration leaves everything else as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from confide_proxy.cli.join import ENTRY, merge
from confide_proxy.errors import SetupError


def test_merges_beside_other_servers(tmp_path: Path) -> None:
    """Other entries, other keys and the file's mode stay; a second time changes nothing."""
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"other": {"command": "x"}}, "theme": "därk"}))
    file.chmod(0o600)
    assert merge(file)
    assert json.loads(file.read_text()) == {
        "mcpServers": {"other": {"command": "x"}, "confide": ENTRY},
        "theme": "därk",
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert not merge(file)


def test_makes_the_file(tmp_path: Path) -> None:
    """No file yet is the usual case."""
    assert merge(tmp_path / ".mcp.json")
    assert json.loads((tmp_path / ".mcp.json").read_text()) == {"mcpServers": {"confide": ENTRY}}


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": []}', "\x00"])
def test_what_cannot_be_merged_is_left_alone(tmp_path: Path, text: str) -> None:
    """A broken file is named and not touched."""
    file = tmp_path / ".mcp.json"
    file.write_text(text)
    with pytest.raises(SetupError):
        merge(file)
    assert file.read_text() == text


def test_links_and_odd_text_come_through(tmp_path: Path) -> None:
    """A linked configuration stays a link; half a surrogate pair of somebody else's survives."""
    (tmp_path / "dotfiles").mkdir()
    file = tmp_path / "dotfiles" / "claude.json"
    file.write_text('{"odd": "\\ud83d"}')
    link = tmp_path / ".claude.json"
    link.symlink_to(file)
    assert merge(link)
    assert link.is_symlink()
    assert json.loads(file.read_text())["odd"] == "\ud83d"
    assert sorted(path.name for path in file.parent.iterdir()) == ["claude.json"]
