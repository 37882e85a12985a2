"""A project is the same on every machine, clone and worktree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from confide_proxy.projects import identify, normalise_remote


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("git@github.com:Acme/shop.git", "github.com/Acme/shop"),
        ("https://user:secret@GitHub.com/Acme/shop.git", "github.com/Acme/shop"),
        ("https://github.com/Acme/shop/", "github.com/Acme/shop"),
        ("ssh://git@git.example.org:2222/team/a/b.git", "git.example.org/team/a/b"),
        ("/srv/git/shop.git", None),
        ("file:///srv/git/shop.git", None),
    ],
)
def test_remotes_are_normalised(remote: str, name: str | None) -> None:
    """User, password, port, scheme and suffix do not make another project."""
    assert normalise_remote(remote) == name


def test_clones_and_worktrees_are_one_project(tmp_path: Path) -> None:
    """The remote names the project wherever it lies; a subfolder belongs to its repository."""
    for name in ("one", "two"):
        (tmp_path / name / "src").mkdir(parents=True)
        git(tmp_path / name, "init", "-q")
        git(tmp_path / name, "remote", "add", "origin", "git@example.org:a/b.git")
    git(tmp_path / "one", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "one", "worktree", "add", "-q", str(tmp_path / "tree"))
    names = {identify(tmp_path / name).name for name in ("one", "two", "tree", "one/src")}
    assert names == {"example.org/a/b"}
    assert identify(tmp_path / "one/src").root == tmp_path / "one"


def test_worktrees_without_remote_share_the_repository_name(tmp_path: Path) -> None:
    """Without a remote the main folder's name stands for all worktrees."""
    (tmp_path / "shop").mkdir()
    git(tmp_path / "shop", "init", "-q")
    git(tmp_path / "shop", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "shop", "worktree", "add", "-q", str(tmp_path / "shop-fix"))
    assert identify(tmp_path / "shop-fix").name == "shop"


def test_the_file_names_a_folder_that_git_does_not(tmp_path: Path) -> None:
    """`.confide.toml` names it, else the folder's own name; a broken file is passed over."""
    assert identify(tmp_path).name == tmp_path.name
    (tmp_path / ".confide.toml").write_text('name = "shop"')
    assert identify(tmp_path).name == "shop"
    (tmp_path / ".confide.toml").write_text('name = "global"')
    assert identify(tmp_path).name == tmp_path.name
    (tmp_path / ".confide.toml").write_text("name = [")
    assert identify(tmp_path).name == tmp_path.name


def test_a_folder_with_its_own_memory_is_its_own_project(tmp_path: Path) -> None:
    """In a repository of many services each may keep its memory apart; the others share the repository's."""
    (tmp_path / "mono/api/memory").mkdir(parents=True)
    (tmp_path / "mono/web").mkdir()
    git(tmp_path / "mono", "init", "-q")
    git(tmp_path / "mono", "remote", "add", "origin", "git@example.org:a/mono.git")
    api, web = identify(tmp_path / "mono/api"), identify(tmp_path / "mono/web")
    assert (api.name, api.root) == ("example.org/a/mono/api", tmp_path / "mono/api")
    assert (web.name, web.root) == ("example.org/a/mono", tmp_path / "mono")
    (tmp_path / "mono/api/.confide.toml").write_text('name = "the-api"')
    assert identify(tmp_path / "mono/api").name == "the-api"
