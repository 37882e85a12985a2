"""Paths as a person types them: absolute, from home, from a subfolder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from confide_proxy.cli.console import CommandContext
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import InputError
from confide_proxy.paths import ProxyPaths


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandContext:
    """A context in a project of the home folder, which is also reached by a link."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("my shop/memory/sub \u00fc", "my shop/src", "global/memory"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("my shop/memory/a.md", "my shop/memory/sub \u00fc/x y.md", "my shop/src/b.md"):
        (tmp_path / name).write_text("x")
    subprocess.run(["git", "init", "-q", str(tmp_path / "my shop")], check=True)
    (tmp_path / "link").symlink_to("my shop")
    monkeypatch.chdir(tmp_path / "my shop")
    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "state", tmp_path / "global", tmp_path / "daemon")
    return CommandContext(paths, ProxyConfig())


@pytest.mark.parametrize(
    ("folder", "said", "meant"),
    [
        (".", "memory/a.md", "memory/a.md"),
        (".", "memory/missing.md", "memory/missing.md"),
        (".", "", ""),
        (".", "mem_12ab3", "mem_12ab3"),
        (".", "HOME/my shop/memory/a.md", "memory/a.md"),
        (".", "HOME/link/memory/a.md", "memory/a.md"),
        (".", "~/my shop/memory/sub \u00fc/", "memory/sub \u00fc/"),
        (".", "HOME/my shop", "."),
        (".", "HOME/my shop/memory/*.md", "memory/*.md"),
        (".", "HOME/my shop/memory/missing.md", "memory/missing.md"),
        (".", "HOME/global/memory/g.md", "memory/g.md"),
        ("src", "memory/a.md", "memory/a.md"),
        ("src", "../memory/a.md", "memory/a.md"),
        ("src", "../memory/**/*.md", "memory/**/*.md"),
        ("src", "b.md", "src/b.md"),
        ("memory", "a.md", "memory/a.md"),
        ("memory", "sub \u00fc", "memory/sub \u00fc"),
        ("memory", "memory/a.md", "memory/a.md"),
    ],
)
def test_a_path_is_of_the_projects_folder(
    here: CommandContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, said: str, meant: str
) -> None:
    """A file that is there must not be called unknown because of how its path was typed."""
    monkeypatch.chdir(folder)
    assert to_project_path(here, Path(), said.replace("HOME", str(tmp_path))) == meant


@pytest.mark.parametrize("said", ["/etc/passwd", "../other/memory/a.md", "~/nowhere.md"])
def test_a_path_outside_is_named(here: CommandContext, said: str) -> None:
    with pytest.raises(InputError, match="is not in the project's folder") as refused:
        to_project_path(here, Path(), said)
    assert refused.value.hint == "for another project: --project DIR"
