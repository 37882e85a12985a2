"""Fixtures of the daemon's tests: the program on an empty home, and a registry on a clock that stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.clock import Clock
from tests.support.daemon import disks
from tests.support.daemon.registries import KEY
from tests.support.programs.confided import Confided

from confide_daemon.access.registry import Registry


@pytest.fixture
def confided(tmp_path: Path) -> Iterator[Confided]:
    """The program before `confided init`."""
    program = Confided(tmp_path / "home")
    yield program
    program.end()


@pytest.fixture
def ready(confided: Confided) -> Confided:
    """The program after it."""
    confided.run("init")
    return confided


@pytest.fixture
def clock() -> Clock:
    """It stands at 1,000,000 s until it is set."""
    return Clock(1_000_000.0)


@pytest.fixture
def registry(tmp_path: Path, clock: Clock) -> Iterator[Registry]:
    """An empty registry in a file of its own."""
    opened = Registry.open(tmp_path / "registry.db", KEY, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with disks.small(tmp_path / "disk") as folder:
        yield folder
