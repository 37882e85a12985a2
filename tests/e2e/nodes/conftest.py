"""One PostgreSQL for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.daemon.postgres import Postgres, server
from tests.support.programs.nodes import Nodes, several


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with server() as found:
        yield found


@pytest.fixture
def nodes(postgres: Postgres, tmp_path: Path) -> Iterator[Nodes]:
    """Two nodes of one store."""
    with several(tmp_path, postgres) as found:
        yield found
