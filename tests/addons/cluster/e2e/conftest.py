"""One PostgreSQL for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.daemon.postgres import Postgres, server
from tests.support.programs.fixtures import daemon as daemon
from tests.support.programs.fixtures import machine as machine
from tests.support.programs.fixtures import relay as relay
from tests.support.programs.nodes import Nodes, several


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def nodes(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes of one store; each test has a space of its own."""
    with several(tmp_path_factory.mktemp("nodes"), postgres) as found:
        yield found
