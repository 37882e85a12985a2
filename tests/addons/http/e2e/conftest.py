"""One machine whose memory is served over HTTP, for the tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.programs.fixtures import daemon as daemon
from tests.support.programs.fixtures import machine as machine
from tests.support.programs.fixtures import relay as relay
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.panel import Visit
from tests.support.programs.processes import Inside, wait_until


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """It runs for all of them: nobody ends it, and each looks for words of its own."""
    machine = Inside(tmp_path_factory.mktemp("gateway"), "ann")
    machine.write("MEMORY.md", "# Facts\n\nThe shop is written in Elixir.\n")
    try:
        with serving(machine) as found:
            yield found
    finally:
        machine.stop_local_daemon()


@pytest.fixture
def writer(gateway: Gateway) -> str:
    return gateway.token("writer", "--scope", "write")


@pytest.fixture
def reader(gateway: Gateway) -> str:
    return gateway.token("reader")


@pytest.fixture(scope="module")
def filled(gateway: Gateway) -> Gateway:
    """Once the daemon has the first file."""
    wait_until("the first file", lambda: gateway.machine.json("ls")["documents"])
    return gateway


@pytest.fixture
def visit(filled: Gateway) -> Visit:
    return Visit.begin(filled)
