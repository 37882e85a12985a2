"""What the daemon may be told of where an agent works: names, no paths, no credentials."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.daemon.loopback import machine, serving

from confide_proxy.config import ProxyConfig
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.project import Project, identify, workplace
from confide_proxy.sync.workspace import Files

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments], check=True)


async def test_a_repository_is_told_by_its_names(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    git(folder, "remote", "add", "origin", "https://someone:hunter2@example.org:8443/team/shop.git")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    told = await workplace(identify(folder).grant())
    assert told["git"] == {"repository": "shop", "branch": "trunk", "remote": "example.org/team/shop"}
    assert told["directory"] == "shop"
    text = json.dumps(told)
    assert "hunter2" not in text
    assert str(tmp_path) not in text
    git(folder, "checkout", "-q", "--detach")
    branch = (await workplace(identify(folder).grant()))["git"]["branch"]
    assert len(branch) >= 7  # the commit, where no branch is checked out


async def test_a_folder_without_git(tmp_path: Path) -> None:
    told = await workplace(identify(tmp_path).grant())
    assert told["git"] is None
    assert told["directory"] == tmp_path.name


async def test_a_branch_is_told_without_the_token_in_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", f"try-{TOKEN}")
    paths, config, project = (
        ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon"),
        ProxyConfig(),
        identify(tmp_path).grant(),
    )
    files = Files(paths, config, project, sealing=SessionSealing(paths, config, MachineKeys(paths)))
    told = await files.on_request("workplace", {"project": project.name})
    assert TOKEN not in json.dumps(told)
    assert told["git"]["branch"].startswith("try-(redacted:github-token:")


@pytest.mark.parametrize("was_open", [False, True])
async def test_the_memory_of_all_projects_is_this_users_alone(tmp_path: Path, was_open: bool) -> None:
    """As the state beside it; also where an earlier version has made its folder."""
    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    if was_open:
        paths.global_folder.mkdir(mode=0o755)
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await Files(paths, ProxyConfig(), Project("shop", tmp_path, is_git=False)).open(laptop.connection, "s")
    assert paths.global_folder.stat().st_mode & 0o777 == 0o700
