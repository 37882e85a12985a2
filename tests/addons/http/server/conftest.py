"""A daemon whose space is served over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.programs.server_gateway import ServerGateway, served


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerGateway]:
    """It runs for all of them: nobody ends it, and each looks for words of its own."""
    found = served(tmp_path_factory.mktemp("server-gateway") / "home")
    yield found
    found.confided.end()


@pytest.fixture
def writer(gateway: ServerGateway) -> str:
    return gateway.token("writer", "--scope", "write")


@pytest.fixture
def reader(gateway: ServerGateway) -> str:
    return gateway.token("reader")
