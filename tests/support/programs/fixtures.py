"""Fixtures: a daemon for a module, and for each test a machine that reaches it through a relay; a module may have its own of any."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of the module."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def relay(daemon: Daemon) -> Iterator[RecordingRelay]:
    """What the machine's connections go through, which can be cut and looked at."""
    with RecordingRelay(daemon.port) as cable:
        yield cable


@pytest.fixture
def machine(tmp_path: Path, daemon: Daemon, relay: RecordingRelay) -> Machine:
    """A machine of a space of its own."""
    joined = Inside(tmp_path, f"ann-{secrets.token_hex(4)}")
    joined.run("join", daemon.invite(joined.name, port=relay.port))
    return joined
