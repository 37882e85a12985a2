"""Released versions of Confide: their programs, and data that they wrote (tests/fixtures/released/make.py)."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.archives import unpack
from tests.support.programs.processes import CONFIDE, Daemon, Inside, Machine

ROOT = Path(__file__).resolve().parents[3]
RELEASED = ROOT / "tests" / "fixtures" / "released"
PACKAGES = ("crypto", "memory", "door", "proxy", "daemon", "addons")
"""Where packages lie, in any version: `door` until 0.1."""
SCRIPT = """#!{python}
import sys
sys.path[:0] = {folders!r}
from {package}.__main__ import main
main()
"""


@dataclass(frozen=True, slots=True)
class Release:
    """One version. Its archives are in the repository, and not in an sdist."""

    version: str
    facts: dict[str, Any]
    """What its data holds."""

    @property
    def _folder(self) -> Path:
        return RELEASED / self.version

    def programs(self, folder: Path) -> tuple[str, str]:
        """Its `confide` and `confided`, unpacked into `folder`. Files that it has in common with today's tree come from there."""
        unpack(self._folder / f"confide-{self.version}.tar.gz", folder)
        tree = folder / f"confide-{self.version}"
        for path, digest in self.facts["left_out"].items():
            assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == digest, (
                f"{path} is not that of the release"
            )
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, tree / path)
        folders = [str(tree / package) for package in PACKAGES]
        proxy = script(folder / "confide", folders, "confide_proxy")
        return proxy, script(folder / "confided", folders, "confide_daemon")

    def state(self, folder: Path) -> Path:
        """The data folder of its server; beside it are the files of `ann` and `carol`."""
        unpack(self._folder / "state.tar.gz", folder)
        for place in [
            folder / "server",
            *(folder / "server").rglob("*"),
            *folder.glob("*/proxy"),
            *folder.glob("*/proxy/**"),
        ]:
            if place.is_dir():
                place.chmod(0o700)
        return folder / "server"

    def machine(self, folder: Path, name: str, daemon: Daemon, *, program: str = CONFIDE) -> Machine:
        """One of its machines, on a daemon that serves its data at another port than then."""
        machine = Inside(folder / "machines", name, program=program)
        shutil.rmtree(machine.home / "proxy")
        shutil.rmtree(machine.project)
        shutil.copytree(folder / name / "proxy", machine.home / "proxy")
        shutil.copytree(folder / name / "project", machine.project)
        pin = machine.home / "proxy" / "link.json"
        joined = json.loads(pin.read_text())
        joined["url"] = f"{joined['url'].rpartition(':')[0]}:{daemon.port}/"
        pin.write_text(json.dumps(joined))
        machine.call_project((machine.project / ".confide.toml").read_text().split('"')[1])
        return machine


def script(path: Path, folders: list[str], package: str) -> str:
    """A program that is a package of a tree in these folders."""
    path.write_text(SCRIPT.format(python=sys.executable, folders=folders, package=package))
    path.chmod(0o755)
    return str(path)


def releases() -> list[Release]:
    """All of them, the oldest first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RELEASED.glob("*/facts.json")]
    ordered = sorted(found, key=lambda facts: [int(part) for part in facts["version"].split(".")])
    return [Release(facts["version"], facts) for facts in ordered]


def has_archives() -> bool:
    """Whether this is a clone of the repository."""
    return any(RELEASED.glob("*/state.tar.gz"))
