"""docs/addons.md: the add-on that it makes, in a folder outside of the tree, does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.programs.installs import ROOT, as_wheels, built, needed
from tests.support.programs.processes import Daemon, Machine
from tests.test_release import Machine as Installers

PAGE = ROOT / "docs" / "addons.md"
_FILE = re.compile(r"^`(?P<name>[\w/.]+)`[^`]*?:?\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def of_page() -> dict[str, str]:
    """The files of the page's add-on."""
    files = {found["name"]: found["text"] for found in _FILE.finditer(PAGE.read_text("utf-8"))}
    assert sorted(files) == ["greeting/daemon.py", "greeting/machine.py", "greeting/wire.py", "pyproject.toml"]
    return files


def installed(folder: Path) -> Path:
    """The page's add-on, as an installer would put it."""
    files = of_page()
    points = tomllib.loads(files.pop("pyproject.toml"))["project"]["entry-points"]
    told = folder / "greeting-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    lines = [f"[{group}]\n{name} = {place}" for group, named in points.items() for name, place in named.items()]
    (told / "entry_points.txt").write_text("\n".join(lines))
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_page_makes_an_addon_with_both_halves(tmp_path: Path) -> None:
    folder = installed(tmp_path / "outside")
    daemon = Daemon(tmp_path)
    daemon.env["PYTHONPATH"] = str(folder)
    daemon.start()
    try:
        ann = Machine(tmp_path, "ann")
        ann.run("join", daemon.invite("ann"))
        ann.write("memory/a.md", "# One\n")
        ann.run("sync")
        command = [sys.executable, "-m", "confide_proxy", "greet"]
        environment = {**ann.env, "PYTHONPATH": str(folder)}
        done = subprocess.run(command, cwd=ann.project, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("hello: 1 files\n", 0), done.stderr
    finally:
        daemon.stop()


@pytest.mark.e2e
def test_the_line_of_the_page_installs_it_beside_confide(tmp_path: Path) -> None:
    """In a clone with the add-on's folder in it, without an index: uv builds both."""
    pytest.importorskip("uv")
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
    for name, text in of_page().items():
        file = clone / "greeting" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    machine = Installers(tmp_path, built(ROOT, tmp_path / "wheel", "wheel"))
    as_wheels(needed([Requirement("hatchling")]), machine.wheels)
    (line,) = re.findall(r"^uv (tool install .*--with.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    machine.run(sys.executable, "-m", "uv", *shlex.split(line), folder=clone)
    machine.run("confide", "quickstart", folder=clone)
    try:
        assert re.fullmatch(r"hello: \d+ files\n", machine.run("confide", "greet", folder=clone))
    finally:
        machine.run("confide", "daemon", "stop", folder=clone)
