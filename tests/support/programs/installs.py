"""What people install: the wheel with some of its extras, in an environment that has what these require and nothing else.

The libraries are linked from where these tests have them, file by file as their packages list them, which takes a tenth of a second. With
`CONFIDE_INSTALLS` set (`make installs`) uv installs them from the index instead.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Sequence
from configparser import ConfigParser
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution, distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[3]
REAL: Final = bool(os.environ.get("CONFIDE_INSTALLS"))
_BUILD_S: Final = 120.0
_INSTALL_S: Final = 900.0
_OF_INSTALLERS: Final = {"INSTALLER", "REQUESTED", "direct_url.json"}


def needed(roots: Iterable[Requirement]) -> set[str]:
    """The names of all that these need here, by what is installed."""
    found: set[tuple[str, frozenset[str]]] = set()
    left = list(roots)
    while left:
        requirement = left.pop()
        step = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if step in found:
            continue
        found.add(step)
        with contextlib.suppress(PackageNotFoundError):  # an environment that is older than pyproject.toml
            left += _asked(distribution(requirement.name).requires or (), requirement.extras)
    return {name for name, _ in found}


def _asked(requires: Iterable[str], extras: Iterable[str]) -> list[Requirement]:
    """Of what a package requires, what it does here with these extras."""
    found = map(Requirement, requires)
    return [
        each
        for each in found
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ["", *extras])
    ]


def built(source: Path, target: Path, kind: str) -> Path:
    """The sdist or the wheel of a tree."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", target]
    env = {"PATH": os.environ["PATH"], "HOME": str(target)}
    done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, timeout=_BUILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


class Wheel:
    """A wheel of Confide, unpacked once for all environments: its modules are compiled once."""

    def __init__(self, file: Path, unpacked: Path) -> None:
        self.file = file
        self.folder = unpacked
        with zipfile.ZipFile(file) as archive:
            archive.extractall(unpacked)
        (info,) = unpacked.glob("*.dist-info")
        self._distribution = PathDistribution(info)

    @property
    def extras(self) -> list[str]:
        return self._distribution.metadata.get_all("Provides-Extra") or []

    def requires(self, extras: Sequence[str]) -> set[str]:
        """The names of all that an install with these extras brings. Raises PackageNotFoundError: one of them is not there."""
        return needed(_asked(self._distribution.requires or (), extras))

    def install(self, environment: Path, extras: Sequence[str]) -> Path:
        """Make an environment of its own; its folder of programs. Raises PackageNotFoundError: as `requires`."""
        if REAL:
            return self._installed(environment, extras)
        names = self.requires(extras)
        venv.create(environment, symlinks=True)
        (packages,) = environment.glob("lib/python*/site-packages")
        for name in names:
            _link(distribution(name), packages)
        for each in self.folder.iterdir():
            (packages / each.name).symlink_to(each)
        programs = environment / "bin"
        scripts = ConfigParser()
        scripts.read_string(self._distribution.read_text("entry_points.txt") or "")
        for name, place in scripts["console_scripts"].items():
            module, _, function = place.partition(":")
            text = f"#!{programs / 'python'}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return programs

    def _installed(self, environment: Path, extras: Sequence[str]) -> Path:
        asked = f"confide[{','.join(extras)}] @ {self.file.as_uri()}" if extras else str(self.file)
        uv = [sys.executable, "-m", "uv"]
        python = environment / "bin" / "python"
        for command in (
            [*uv, "venv", "--quiet", "--python", sys.executable, environment],
            [*uv, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "constraints.txt", asked],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S)
            assert done.returncode == 0, done.stderr
        return environment / "bin"


def as_wheels(names: Iterable[str], into: Path) -> None:
    """Pack installed distributions as wheels again, so that real installers need no index.

    Programs and bytecode are left out: an installer makes its own.
    """
    for name in names:
        package = distribution(name)
        tags = re.findall(r"^Tag: (\S+)$", package.read_text("WHEEL") or "", re.MULTILINE)
        target = into / f"{canonicalize_name(name).replace('-', '_')}-{package.version}-{_joined(tags)}.whl"
        with zipfile.ZipFile(target, "w") as archive:
            for file in package.files or ():
                if file.parts[0] != ".." and "__pycache__" not in file.parts and file.name not in _OF_INSTALLERS:
                    archive.write(package.locate_file(file), file.as_posix())


def _joined(tags: Sequence[str]) -> str:
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(dict.fromkeys(each)) for each in parts)


@functools.cache
def _shared() -> set[str]:
    """The folders at the top that several packages put files into: each file of theirs is linked by itself."""
    owners: dict[str, set[str]] = {}
    for each in distributions():
        for top in {file.parts[0] for file in each.files or ()}:
            owners.setdefault(top, set()).add(canonicalize_name(each.name))
    return {top for top, names in owners.items() if len(names) > 1}


def _link(package: Distribution, packages: Path) -> None:
    for file in package.files or ():
        top = file.parts[0]
        if top in ("..", "__pycache__") or file.suffix == ".pth":
            continue  # programs, which nobody here starts
        where = Path(*file.parts) if top in _shared() else Path(top)
        if not (packages / where).is_symlink():
            (packages / where).parent.mkdir(parents=True, exist_ok=True)
            (packages / where).symlink_to(Path(str(package.locate_file(where))).resolve())


__all__ = ["REAL", "ROOT", "PackageNotFoundError", "Wheel", "as_wheels", "built", "needed"]
