"""The markdown of a folder: counted, and written down for that folder alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from confide_proxy.cli import markdown_offer
from confide_proxy.config import ProxyConfig, load
from confide_proxy.errors import ConfigError


def test_what_would_go_up_is_counted(tmp_path: Path) -> None:
    """Not what is memory, hidden, another project's, or left out by the project's own file."""
    others = (".obsidian/y.md", "a.txt", "client/README.md", "client/.git")
    for name in ("Inbox.md", "Daily/1.md", "Private/a.md", "memory/x.md", "MEMORY.md", *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# A page\n")
    (tmp_path / ".confide.toml").write_text('exclude = ["Private"]\n')
    found = markdown_offer.look(tmp_path)
    assert (found.files, found.size, found.is_all) == (2, 18, True)
    assert str(found) == "2 markdown files, 18 bytes: Daily/1.md, Inbox.md"


@pytest.mark.parametrize(
    "before",
    [None, "", "gitignore = false", "[secrets]\nlocal = 'keep'\n", "[folders]\n", '[folders."/x"]\nextra = []\n'],
)
def test_a_yes_is_written_for_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    """With all else left as it was; a name is no more than a name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    root, file = tmp_path / 'my "vault"] \u00fc', tmp_path / "config" / "proxy.toml"
    root.mkdir()
    if before is not None:
        file.parent.mkdir()
        file.write_text(before)
    markdown_offer.write(file, root, ["**/*.md"])
    config = load(file)
    chosen = config.options_for(root)
    assert chosen is not None
    assert chosen.extra == ("**/*.md",)
    assert chosen.folder.startswith("~/")
    assert config.options_for(tmp_path) is None
    assert file.read_text().startswith(before or "")
    with pytest.raises(ConfigError, match="added to") as refused:
        markdown_offer.write(file, root, ["docs"])
    assert "by hand: [folders." in (refused.value.hint or "")


def test_nobody_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a section is there, whatever it says."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert markdown_offer.is_due(tmp_path / "vault", ProxyConfig())
    file = tmp_path / "proxy.toml"
    file.write_text('[folders."~/vault"]\nextra = []\n')
    assert not markdown_offer.is_due(tmp_path / "vault", load(file))
    assert markdown_offer.is_due(tmp_path / "other", load(file))
