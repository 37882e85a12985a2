"""One PostgreSQL for all tests here, and a store in a database of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.daemon.logged import Store
from tests.support.daemon.postgres import Postgres, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with server() as found:
        yield found


@pytest.fixture
def store(postgres: Postgres, tmp_path: Path) -> Store:
    """A store that nobody has used yet."""
    return Store(postgres, postgres.database(), tmp_path)
