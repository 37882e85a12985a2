"""docs/addons.md: the add-on that it makes, in a folder outside of the tree, does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.programs.processes import Daemon, Machine

PAGE = Path(__file__).parents[1] / "docs" / "addons.md"
_FILE = re.compile(r"^`(?P<name>[\w/.]+)`[^`]*?:?\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def installed(folder: Path) -> Path:
    """The page's add-on, as an installer would put it."""
    files = {found["name"]: found["text"] for found in _FILE.finditer(PAGE.read_text("utf-8"))}
    assert sorted(files) == ["greeting/daemon.py", "greeting/machine.py", "greeting/wire.py", "pyproject.toml"]
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
