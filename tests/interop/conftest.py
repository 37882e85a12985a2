"""A second daemon and a machine for the tests of the real `confide`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.interop.notes import NOTE, Notes
from tests.interop.peer import Daemon
from tests.support.programs.processes import Inside, Machine


@pytest.fixture
def notes() -> Notes:
    """What the second daemon keeps."""
    return Notes()


@pytest.fixture
async def second(notes: Notes) -> AsyncIterator[Daemon]:
    """The second daemon, listening; at the end nothing has failed there but what a test took out."""
    async with notes.daemon().serving() as daemon:
        yield daemon
        assert not daemon.failures


@pytest.fixture
def ann(tmp_path: Path) -> Machine:
    """A machine with one note."""
    machine = Inside(tmp_path, "ann")
    machine.write("MEMORY.md", NOTE)
    return machine
