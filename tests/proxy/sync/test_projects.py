"""A project is the same on every machine, clone and worktree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from confide_proxy.sync.project import (
    Basis,
    has_tracked_memory,
    identify,
    ignore_memory,
    leave_out_of_package,
    normalise_remote,
)


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
        ("file://localhost/srv/git/shop.git", None),
        ("../shop.git", None),
        ("github.com:Acme/shop.git/", "github.com/Acme/shop"),
        ("ssh://git@github.com/Acme/shop.git/", "github.com/Acme/shop"),
        ("git+ssh://git@GITHUB.com:22/Acme//shop", "github.com/Acme/shop"),
        ("git://github.com/Acme/shop.git", "github.com/Acme/shop"),
        ("HTTPS://github.com:443/Acme/shop.git", "github.com/Acme/shop"),
        ("git@git.example.org:/srv/git/shop.git", "git.example.org/srv/git/shop"),
        ("ssh://git@git.example.org/srv/git/shop.git", "git.example.org/srv/git/shop"),
        ("ssh://git@[2001:DB8::1]:2222/team/shop.git", "[2001:db8::1]/team/shop"),
        ("git@[2001:db8::1]:team/shop.git", "[2001:db8::1]/team/shop"),
        ("https://git.example.org/team/shop.git?private_token=hunter22-xyz", "git.example.org/team/shop"),
        ("https://user:p@ssw0rd!xyz@github.com/a/b", "github.com/a/b"),
        ("https://git.example.org/team/shop.git#tok=hunter22-xyz", "git.example.org/team/shop"),
        ("ssh://git@work@git.example.org/team/a@b.git", "git.example.org/team/a@b"),
        ("https://github.com/", None),
        # What leads to evil.example must not be named as if it led to the other.
        ("https://evil.example?@github.com/Acme/shop.git", None),
        ("https://evil.example#@github.com/Acme/shop.git", None),
        ("evil.example:x@github.com:Acme/shop.git", "evil.example/x@github.com:Acme/shop"),
        ("https://github.com@evil.example/Acme/shop.git", "evil.example/Acme/shop"),
        ("https://x@evil.example@github.com/Acme/shop.git", "github.com/Acme/shop"),
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


def test_a_name_tells_no_credential(tmp_path: Path) -> None:
    """It is sent, kept and shown: a token in the path of a remote is a short hash there, the same for every clone; other names stay."""
    token = "gh" + "p_" + "a1B2c3D4e5F6" * 3
    first = identify(repository(tmp_path / "a", f"https://git.example.org/t/{token}/shop.git")).name
    again = identify(repository(tmp_path / "b", f"https://git.example.org/t/{token}/shop.git")).name
    other = identify(repository(tmp_path / "c", f"https://git.example.org/t/{token[:-1]}9/shop.git")).name
    assert first == again != other
    assert re.fullmatch(r"git\.example\.org/t/~[0-9a-f]{8}/shop", first)
    entitled = identify(repository(tmp_path / "d", "https://dl.example.org/aB3dE5fG7hI9jK1lM3nO5pQ7/npm.git")).name
    assert "aB3dE5" not in entitled
    gist = "gist.github.com/3f9d8a7b6c5e4d3c2b1a0f9e8d7c6b5a"
    assert identify(repository(tmp_path / "e", f"https://{gist}.git")).name == gist
    long = "github.com/acme/my-very-long-repository-name-2024"
    assert identify(repository(tmp_path / "f", f"https://{long}.git")).name == long


def test_worktrees_without_remote_share_the_repository_name(tmp_path: Path) -> None:
    """Without a remote the main folder's name stands for all worktrees."""
    (tmp_path / "shop").mkdir()
    git(tmp_path / "shop", "init", "-q")
    git(tmp_path / "shop", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "shop", "worktree", "add", "-q", str(tmp_path / "shop-fix"))
    assert identify(tmp_path / "shop-fix").name == "shop"


def repository(folder: Path, remote: str | None = None, *, name: str = "origin") -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    if remote:
        git(folder, "remote", "add", name, remote)
    return folder


def test_the_only_remote_counts_whatever_its_name(tmp_path: Path) -> None:
    """`origin` where there is one; several others say nothing."""
    folder = repository(tmp_path / "shop", "https://example.org/a/b.git", name="company.hub")
    assert identify(folder).name == "example.org/a/b"
    git(folder, "remote", "add", "fork", "https://example.org/me/b.git")
    assert identify(folder).name == "shop"
    git(folder, "remote", "add", "origin", "https://example.org/a/origin.git")
    assert identify(folder).name == "example.org/a/origin"


def test_short_forms_are_what_git_makes_of_them_and_mirrors_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`insteadOf`: a shorthand of this machine is the address that it stands for; an address that is fetched from elsewhere stays."""
    settings = tmp_path / "gitconfig"
    settings.write_text(
        '[url "git@example.org:a/"]\n insteadOf = work:\n[url "https://mirror.internal/"]\n insteadOf = https://example.org/\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    settings.rename(tmp_path / ".gitconfig")
    assert identify(repository(tmp_path / "one", "work:shop")).name == "example.org/a/shop"
    assert identify(repository(tmp_path / "two", "https://example.org/a/shop.git")).name == "example.org/a/shop"


def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    """By its remote, or by its name where it has none."""
    inner = repository(tmp_path / "origins/lib")
    outer = repository(tmp_path / "outer", "git@example.org:a/outer.git")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", "--name", "lib", str(inner), "vendor/lib")
    assert identify(outer).name == "example.org/a/outer"
    assert identify(outer / "vendor").name == "example.org/a/outer"
    assert (identify(outer / "vendor/lib").name, identify(outer / "vendor/lib").root) == ("lib", outer / "vendor/lib")
    git(outer / "vendor/lib", "remote", "set-url", "origin", "git@example.org:a/lib.git")
    assert identify(outer / "vendor/lib").name == "example.org/a/lib"


@pytest.mark.parametrize("bare", ["shop.git", "shop/.bare", "shop/.git"])
def test_worktrees_of_a_bare_repository_are_one_project(tmp_path: Path, bare: str) -> None:
    """However it is laid out: beside them, or in a hidden folder above them."""
    seed = repository(tmp_path / "seed")
    git(tmp_path, "clone", "-q", "--bare", str(seed), bare)
    git(tmp_path / bare, "remote", "remove", "origin")
    for branch in ("fix", "feature"):
        git(tmp_path / bare, "worktree", "add", "-q", "-b", branch, str(tmp_path / "shop" / branch))
    assert {identify(tmp_path / "shop" / branch).name for branch in ("fix", "feature")} == {"shop"}
    assert identify(tmp_path / "shop/fix").root == tmp_path / "shop/fix"
    git(tmp_path / bare, "remote", "add", "origin", "git@example.org:a/shop.git")
    assert {identify(tmp_path / "shop" / branch).name for branch in ("fix", "feature")} == {"example.org/a/shop"}


def test_a_detached_and_an_empty_repository_have_their_project(tmp_path: Path) -> None:
    """Neither a branch nor a commit is needed."""
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q")
    assert identify(tmp_path / "new").name == "new"
    folder = repository(tmp_path / "old", "git@example.org:a/b.git")
    git(folder, "checkout", "-q", "--detach")
    assert identify(folder).name == "example.org/a/b"


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


def test_a_folder_may_call_itself_as_its_own_repository_and_not_as_another(tmp_path: Path) -> None:
    """What a file says is a claim, unless the remote says it too."""
    root = repository(tmp_path / "lib", "https://github.com/evil/lib.git")
    (root / "app").mkdir()
    for name, basis in (
        ("github.com/evil/lib", Basis.REMOTE),
        ("github.com/evil/lib/tools", Basis.REMOTE),
        ("github.com/evil/lib/../../victim/secret", Basis.FILE),
        ("github.com/evil/lib//tools", Basis.FILE),
        ("github.com/evil/library", Basis.FILE),
        ("github.com/victim/secret", Basis.FILE),
        ("github.com/victim/sec\u200bret", Basis.FILE),
    ):
        (root / "app/.confide.toml").write_text(f'name = "{name}"', encoding="utf-8")
        assert identify(root / "app").basis is basis, name
    (root / ".confide.toml").write_text('name = "github.com/victim/secret"')
    assert (identify(root).name, identify(root).basis) == ("github.com/evil/lib", Basis.REMOTE)
    assert identify(tmp_path).basis is Basis.FOLDER


@pytest.mark.parametrize("below", ["", "services/a [b]"])
def test_memory_is_left_out_in_all_worktrees_and_no_checkout_is_changed(tmp_path: Path, below: str) -> None:
    """Also beside files that somebody has begun to track: what is new was not meant for them."""
    root, tree = repository(tmp_path / "lib", "https://example.org/a/lib.git"), tmp_path / "tree"
    for path in ("README", f"{below}/memory/theirs.md".lstrip("/")):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("theirs\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    git(root, "worktree", "add", "-q", str(tree))
    assert ignore_memory(tree / below) == root / ".git/info/exclude"
    assert ignore_memory(root / below) is None
    for each in (root, tree):
        assert has_tracked_memory(each / below)
        (each / below / "memory/mine.md").write_text("mine\n")
        told = subprocess.run(["git", "-C", str(each), "status", "--porcelain"], capture_output=True, check=True)
        assert told.stdout == b""


def test_npm_leaves_memory_out_of_a_package(tmp_path: Path) -> None:
    """Where there is one, once, and not through a link. What somebody has written there stays."""
    assert not leave_out_of_package(tmp_path)
    (tmp_path / "package.json").write_text("{}")
    assert leave_out_of_package(tmp_path)
    assert (tmp_path / "memory/.npmignore").read_text() == "*\n"
    (tmp_path / "memory/.npmignore").write_text("")
    assert not leave_out_of_package(tmp_path)
    assert (tmp_path / "memory/.npmignore").read_text() == ""
    other = tmp_path / "other"
    other.mkdir()
    (other / "package.json").write_text("{}")
    (other / "memory").symlink_to(tmp_path / "elsewhere")
    assert not leave_out_of_package(other)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_looks_like_a_bare_repository_names_nothing(tmp_path: Path) -> None:
    """Git takes such a folder of a clone for a repository, with a remote of the author's choice, and starts the programs that it names."""
    root = repository(tmp_path / "lib", "https://github.com/evil/lib.git")
    bare = root / "app"
    git(root, "init", "-q", "--bare", str(bare))
    planted = bare / "src"
    (planted / "memory").mkdir(parents=True)
    (root / "README").touch()
    git(root, "add", "README")
    (bare / "index").write_bytes((root / ".git/index").read_bytes())
    ran = tmp_path / "ran"
    (bare / "config").write_text(
        f'[core]\n repositoryformatversion = 0\n bare = false\n worktree = src\n fsmonitor = "touch {ran}; false"\n'
        '[remote "origin"]\n url = git@github.com:victim/secret.git\n'
    )
    assert (identify(planted).name, identify(planted).basis) == ("src", Basis.FOLDER)
    ignore_memory(planted)
    assert not ran.exists()


def test_a_repository_is_that_of_the_folders_that_it_knows(tmp_path: Path) -> None:
    """An archive may hold a `.git` that leads to a repository of this machine: by a link, or by a file, also to one of its worktrees."""
    secret = repository(tmp_path / "secret", "git@github.com:victim/secret.git")
    git(secret, "worktree", "add", "-q", str(tmp_path / "tree"))
    for number, target in enumerate((secret / ".git", secret / ".git/worktrees/tree")):
        planted = tmp_path / f"planted{number}"
        planted.mkdir()
        (planted / ".git").write_text(f"gitdir: {target}\n")
        assert identify(planted).name == planted.name
        assert identify(planted).basis is Basis.FOLDER
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / ".git").symlink_to(secret / ".git")
    assert identify(linked).name == "linked"
    assert identify(tmp_path / "tree").name == "github.com/victim/secret"


def test_a_worktree_has_the_name_of_its_repository(tmp_path: Path) -> None:
    """Without a remote the name is a claim, and one claim for all of them."""
    main = repository(tmp_path / "shop")
    git(main, "worktree", "add", "-q", str(tmp_path / "shop-fix"))
    assert {identify(folder).home for folder in (main, tmp_path / "shop-fix")} == {main}
    assert identify(tmp_path / "shop-fix").root == tmp_path / "shop-fix"
