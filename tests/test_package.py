"""What people install: the sdist, and the wheel that is built from it, run without this tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.archives import unpack

from confide_proxy import VERSION

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "confide_crypto": "crypto",
    "confide_memory": "memory",
    "confide_door": "door",
    "confide_proxy": "proxy",
    "confide_daemon": "daemon",
}
DEADLINE_S = 120


def run(*command: str | Path, cwd: Path, home: Path | None = None) -> str:
    """What it prints; it must succeed."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home or cwd), "CONFIDE_HOME": str(home or cwd)}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, target: Path, kind: str) -> Path:
    """The sdist or the wheel of a tree."""
    run(sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", target, cwd=source, home=target)
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as whoever has no wheel for their system does."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    unpack(sdist, unpacked)
    (source,) = unpacked.iterdir()
    return build(source, tmp_path_factory.mktemp("wheel"), "wheel")


def data_files() -> set[str]:
    """All that lies in the packages but bytecode, as a wheel names it."""
    return {
        f"{package}/{path.relative_to(ROOT / folder / package).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    """Catalogues, word lists and SQL among them; neither tests nor this machine's leavings."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert names == data_files()


def test_the_sdist_has_what_a_packager_needs(sdist: Path) -> None:
    """The tests and the licences too, and nothing of a work tree."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "Makefile", "constraints.txt", "tests/conftest.py", "crypto/PROTOCOL.md"} <= names
    assert ".claude-plugin/marketplace.json" in names
    assert not {name.split("/")[0] for name in names} & {".git", ".venv", ".demo", ".mypy_cache", ".ruff_cache"}


def install(wheel: Path, environment: Path) -> Path:
    """An environment of its own that has the wheel, and finds the libraries where these tests have them; its folder of programs."""
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",  # most of it is loaded by nobody here
        wheel,
        cwd=environment,
    )
    (packages,) = environment.glob("lib/python*/site-packages")
    # As a plain folder, so that the link to this tree, which lies in there, is not followed.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


def test_what_is_installed_from_the_wheel_stores_and_finds(wheel: Path, tmp_path: Path) -> None:
    """Both programs, with a daemon started on demand, far from this tree."""
    programs = install(wheel, tmp_path / "environment")
    where = run(
        programs / "python", "-c", "import confide_daemon, confide_proxy; print(confide_proxy.__file__)", cwd=tmp_path
    )
    assert Path(where.strip()).is_relative_to(tmp_path / "environment")
    assert VERSION in run(programs / "confide", "--version", cwd=tmp_path)

    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir(), project.mkdir()

    def confide(arguments: Sequence[str]) -> str:
        return run(programs / "confide", *arguments, cwd=project, home=home)

    try:
        confide(["quickstart"])
        confide(["store", "We chose postgres over mysql for its row locks."])
        assert "row locks" in confide(["search", "why postgres"])
    finally:
        run(programs / "python", "-c", STOP, cwd=project, home=home)


STOP = """
import json, os, signal, pathlib, time
address = pathlib.Path(os.environ["CONFIDE_HOME"], "daemon", "daemon.address")
if address.exists():
    pid = json.loads(address.read_bytes())["pid"]
    os.kill(pid, signal.SIGTERM)
    while address.exists():
        time.sleep(0.02)
"""
