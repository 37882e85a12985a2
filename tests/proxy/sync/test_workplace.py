"""What the daemon may be told of where an agent works: names, no paths, no credentials."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from confide_proxy.config import ProxyConfig
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import Paths
from confide_proxy.sealing.context import Sealing
from confide_proxy.sync.project import identify, workplace
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
    told = await workplace(identify(folder).granted())
    assert told["git"] == {"repository": "shop", "branch": "trunk", "remote": "example.org/team/shop"}
    assert told["directory"] == "shop"
    text = json.dumps(told)
    assert "hunter2" not in text
    assert str(tmp_path) not in text
    git(folder, "checkout", "-q", "--detach")
    branch = (await workplace(identify(folder).granted()))["git"]["branch"]
    assert len(branch) >= 7  # the commit, where no branch is checked out


async def test_a_folder_without_git(tmp_path: Path) -> None:
    told = await workplace(identify(tmp_path).granted())
    assert told["git"] is None
    assert told["directory"] == tmp_path.name


async def test_a_branch_is_told_without_the_token_in_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", f"try-{TOKEN}")
    paths, config, project = (
        Paths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon"),
        ProxyConfig(),
        identify(tmp_path).granted(),
    )
    files = Files(paths, config, project, sealing=Sealing(paths, config, MachineKeys(paths)))
    told = await files.on_request("workplace", {"project": project.name})
    assert TOKEN not in json.dumps(told)
    assert told["git"]["branch"].startswith("try-(redacted:github-token:")
