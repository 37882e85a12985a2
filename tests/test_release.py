"""What `make release` builds, and that installers take it: release/README.md."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import pytest
from release import archives, channels
from release.__main__ import changes, digest
from tests.e2e.cli.test_documents import PRINTS, commands
from tests.support.programs.installs import ROOT, Wheel, as_wheels

from confide_daemon import __version__

DEADLINE_S: Final = 240
DATE: Final = 1_800_000_000
PLACES: Final = channels.Channels.load()
INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def build(into: Path) -> tuple[Path, Path, Path]:
    """Build the sdist, the wheel and the bundle."""
    into.mkdir()
    sdist, wheel = archives.build(ROOT, into, DATE)
    return sdist, wheel, archives.bundle(wheel, into, PLACES, __version__, DATE)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return build(tmp_path_factory.mktemp("release") / "first")


@pytest.mark.e2e
def test_two_builds_have_the_same_bytes(release: tuple[Path, Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path / "again")
    assert [digest(each) for each in again] == [digest(each) for each in release]


class Machine:
    """A home without Confide, whose installers find the dependencies in a folder and ask no index."""

    def __init__(self, root: Path, wheel: Path) -> None:
        self.home = root / "home"
        self.programs = self.home / ".local" / "bin"
        self.wheels = root / "wheels"
        self.wheel = wheel
        for each in (self.programs, self.wheels):
            each.mkdir(parents=True)
        (root / "unpacked").mkdir()
        as_wheels(Wheel(wheel, root / "unpacked").requires(["daemon"]), self.wheels)
        shutil.copy(wheel, self.wheels)
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "CONFIDE_HOME": str(self.home),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "UV_OFFLINE": "1",
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(self.wheels),
            "UV_NO_CONFIG": "1",
            "UV_LINK_MODE": "copy",
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
        }

    def run(self, *command: str | Path, stdin: str = "", folder: Path | None = None) -> str:
        """Run a command to its end, and return what it printed. `folder`: where; None for the home."""
        at = folder or self.home
        done = subprocess.run(
            command, env=self.env, cwd=at, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def machine(release: tuple[Path, Path, Path], tmp_path: Path) -> Machine:
    return Machine(tmp_path, release[1])


@pytest.mark.e2e
@pytest.mark.parametrize("installer", ["uv tool", "pipx", "pip in a venv"])
def test_what_an_installer_made_of_the_wheel_passes_the_tour(machine: Machine, installer: str) -> None:
    """Both programs are then on the path, as README.md says; each line of docs/tour.md is typed in a folder of its own."""
    asked = f"{machine.wheel}[daemon]"
    if installer == "uv tool":
        pytest.importorskip("uv")
        machine.run(sys.executable, "-m", "uv", "tool", "install", asked)
    elif installer == "pipx":
        pytest.importorskip("pipx")
        machine.run(sys.executable, "-m", "pipx", "install", "--python", sys.executable, asked)
    else:
        machine.run(sys.executable, "-m", "venv", machine.home / "env")
        machine.run(machine.home / "env/bin/pip", "install", asked)
        machine.env["PATH"] = f"{machine.home / 'env/bin'}:{machine.env['PATH']}"
    project = machine.home / "shop"
    project.mkdir()
    assert __version__ in machine.run("confide", "--version", folder=project)
    try:
        for command in commands(ROOT / "docs/tour.md"):
            if not command.startswith("uv tool install"):
                told = machine.run("/bin/sh", "-c", command, folder=project)
                assert PRINTS["tour.md"].get(command, "") in told, f"{command}\n{told}"
    finally:
        machine.run("confide", "daemon", "stop", folder=project)


@pytest.mark.e2e
def test_the_bundle_starts_the_proxy_of_its_wheel(release: tuple[Path, Path, Path]) -> None:
    """A client fills in `__dirname`, runs the command and speaks MCP with it."""
    _, wheel, bundle = release
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        project = tomllib.loads(archive.read("pyproject.toml").decode())
        start = archive.read(manifest["server"]["entry_point"]).decode()
        assert archive.read(wheel.name) == wheel.read_bytes()
    assert manifest["version"] == __version__
    assert project["tool"]["uv"]["sources"]["confide"]["path"] == wheel.name
    done = subprocess.run(
        [sys.executable, "-c", start],
        input=json.dumps(INITIALIZE) + "\n",
        env={"PATH": os.environ["PATH"], "HOME": str(release[0].parent), "CONFIDE_HOME": str(release[0].parent)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "confide"


@pytest.mark.e2e
def test_the_channels_name_the_files_with_their_hashes(release: tuple[Path, Path, Path]) -> None:
    sdist, wheel, bundle = release
    record = json.loads(channels.server_json(PLACES, __version__, bundle, digest(bundle)))
    assert f"mcp-name: {record['name']}" in (ROOT / "README.md").read_text("utf-8")
    assert [each["registryType"] for each in record["packages"]] == ["pypi", "mcpb"]
    assert record["packages"][1]["fileSha256"] == hashlib.sha256(bundle.read_bytes()).hexdigest()
    assert len(record["description"]) <= 100  # the registry's limit
    files = {"sdist": (sdist.name, digest(sdist)), "wheel": (wheel.name, digest(wheel))}
    for template in ("confide.rb.in", "PKGBUILD.in", "SRCINFO.in"):
        text = channels.filled(template, PLACES, __version__, files)
        for name, sha256 in files.values():
            assert PLACES.address(__version__, name) in text
            assert sha256 in text
    if shutil.which("ruby"):
        formula = channels.filled("confide.rb.in", PLACES, __version__, files)
        subprocess.run(["ruby", "-c"], input=formula, text=True, check=True, capture_output=True, timeout=DEADLINE_S)


@pytest.mark.e2e
def test_the_pkgbuild_says_what_its_srcinfo_says(release: tuple[Path, Path, Path]) -> None:
    """The AUR shows .SRCINFO and builds from PKGBUILD, which bash reads here as makepkg does."""
    sdist, wheel, _ = release
    files = {"sdist": (sdist.name, digest(sdist)), "wheel": (wheel.name, digest(wheel))}
    script = channels.filled("PKGBUILD.in", PLACES, __version__, files)
    names = ("pkgdesc", "pkgver", "pkgrel", "url", "arch", "license", "depends", "noextract", "options", "source")
    show = "\n".join(f'for each in "${{{name}[@]}}"; do echo "{name} = $each"; done' for name in (*names, "sha256sums"))
    done = subprocess.run(
        ["bash", "-euc", f"{script}\n{show}"], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    srcinfo = channels.filled("SRCINFO.in", PLACES, __version__, files)
    assert re.findall(r"^\t(.+)$", srcinfo, re.MULTILINE) == done.stdout.splitlines()


def test_the_changelog_has_this_version() -> None:
    """A version under development has its changes under Unreleased, and cannot be released."""
    if ".dev" in __version__:
        with pytest.raises(ValueError, match="no section"):
            changes(__version__)
    else:
        assert changes(__version__)


def test_all_files_have_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    plugin = ROOT / "proxy/confide_proxy/plugin"
    others = [
        json.loads((plugin / ".claude-plugin/plugin.json").read_text("utf-8"))["version"],
        json.loads((plugin / "gemini/gemini-extension.json").read_text("utf-8"))["version"],
    ]
    assert {project, *others} == {__version__}


def test_workflows_take_actions_by_hash() -> None:
    """A tag of an action can be moved to other code; the hash of a commit can't."""
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    if not workflows:
        pytest.skip("an sdist has no workflows")
    used = [(path.name, line) for path in workflows for line in re.findall(r"uses: (.+)", path.read_text("utf-8"))]
    assert used
    assert not [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each[1])]
    assert not [path.name for path in workflows if "permissions:" not in path.read_text("utf-8")]
