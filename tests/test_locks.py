"""The locks with hashes: they say the versions that the tests ran with, miss nothing that an install needs, and name no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.support.programs.installs import needed

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_POSIX = [
    {"sys_platform": platform, "python_version": version, "python_full_version": f"{version}.0"}
    for platform in ("linux", "darwin")
    for version in ("3.11", "3.12", "3.13", "3.14")
]


def entries(lock: Path) -> dict[str, tuple[Requirement, list[str]]]:
    """What a lock pins, by name, each with its hashes."""
    lines = [line for line in lock.read_text("ascii").splitlines() if not line.startswith("#")]
    found: dict[str, tuple[Requirement, list[str]]] = {}
    for entry in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        requirement = Requirement(entry.split(" --hash")[0])
        name = canonicalize_name(requirement.name)
        assert name not in found, name
        found[name] = (requirement, entry.split()[-entry.count("--hash") :])
    return found


def is_for_posix(requirement: Requirement) -> bool:
    """Whether a machine that Confide runs on needs it."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**default_environment(), **each}) for each in _POSIX)


def test_there_is_one_for_each_program_and_one_to_build_them() -> None:
    assert [lock.name for lock in LOCKS] == [
        "build.txt",
        "confide-gateway.txt",
        "confide-runner.txt",
        "confide.txt",
        "confided-postgres.txt",
        "confided.txt",
    ]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_entry_is_one_version_with_its_hashes(lock: Path) -> None:
    """pip refuses the whole file where one is missing; a wheel's hash and the source's are two at least, where there is both."""
    for requirement, hashes in entries(lock).values():
        assert [each.operator for each in requirement.specifier] == ["=="], requirement
        assert hashes, requirement
        assert all(_HASH.fullmatch(each) for each in hashes), requirement


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_the_versions_are_those_that_were_tested(lock: Path) -> None:
    """Who changes constraints.txt runs `make lock`. What only another system needs is not tested, and not in there."""
    lines = (ROOT / "constraints.txt").read_text("ascii").splitlines()
    tested = {canonicalize_name(line.name): line.specifier for line in map(Requirement, lines)}
    for name, (requirement, _) in entries(lock).items():
        if name in tested or is_for_posix(requirement):
            assert requirement.specifier == tested[name], f"{name}: run make lock"


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("confide", []),
        ("confide-gateway", ["gateway"]),
        ("confide-runner", ["runner"]),
        ("confided", ["daemon"]),
        ("confided-postgres", ["daemon", "postgres"]),
    ],
)
def test_nothing_that_a_program_needs_is_missing(lock: str, extras: list[str]) -> None:
    """Of the dependencies in pyproject.toml, and of theirs as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    roots = project["dependencies"] + [each for extra in extras for each in project["optional-dependencies"][extra]]
    assert needed(map(Requirement, roots)) <= set(entries(ROOT / "locks" / f"{lock}.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_no_index_is_named(lock: Path) -> None:
    """Where packages come from is the machine's to say."""
    text = lock.read_text("ascii")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
