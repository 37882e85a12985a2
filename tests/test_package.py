"""What people install: the sdist, and the wheel that is built from it. How it runs without this tree: test_installs.py."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.support.archives import unpack
from tests.support.programs.installs import ROOT, built

PACKAGES = {
    "confide_crypto": "crypto",
    "confide_memory": "memory",
    "confide_proxy": "proxy",
    "confide_daemon": "daemon",
    **{path.name: "addons" for path in (ROOT / "addons").iterdir() if (path / "__init__.py").exists()},
}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as whoever has no wheel for their system does."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    unpack(sdist, unpacked)
    (source,) = unpacked.iterdir()
    return built(source, tmp_path_factory.mktemp("wheel"), "wheel")


def data_files() -> set[str]:
    """All that lies in the packages but bytecode, as a wheel names it."""
    return {
        f"{package}/{path.relative_to(ROOT / folder / package).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.e2e
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
