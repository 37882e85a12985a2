"""A machine with a daemon of its own, on which runners work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.nights import repository_in
from tests.support.programs.fixtures import daemon as daemon
from tests.support.programs.fixtures import machine as machine
from tests.support.programs.fixtures import relay as relay
from tests.support.programs.processes import Inside, Machine
from tests.support.runs import needing_sandbox


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Machine]:
    """A machine with a daemon of its own, a project that is a repository, and an agent."""
    needing_sandbox()
    machine = Inside(tmp_path, "laptop")
    repository_in(machine)
    yield machine
    machine.stop_local_daemon()
