"""A new database, made at once, is the one that all steps would have made of nothing."""

from __future__ import annotations

from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.daemon.registries import KEY
from tests.support.daemon.schemas import PACKAGES, stepped, whole

from confide_daemon.access.registry import Registry
from confide_daemon.store.database import connect
from confide_daemon.store.migrations import migrations
from confide_daemon.store.space_store import Store

SEGMENTS = ("keyword_data", "keyword_idx", "keyword_docsize")
"""How FTS5 has laid out the same rows: it depends on the order in which they came."""


def held(database: apsw.Connection) -> dict[str, list[Any]]:
    """Its schema, and the rows of all its tables but of those that say when a step was made."""
    schema: list[Any] = database.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    ).fetchall()
    tables = [name for kind, name, _, _ in schema if kind == "table" and name not in ("migration", *SEGMENTS)]
    rows = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    return {"schema": schema, **rows}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_file_says_what_the_steps_come_to(package: str) -> None:
    """Where it does not, `make schema` writes it."""
    file = resources.files(package) / "sql" / f"whole_{migrations(package)[-1][0]:04d}.sql"
    assert file.read_text(encoding="utf-8") == whole(package)


def test_a_new_space_is_what_the_steps_make(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    Store.open(path, KEY, writer=True, now=5.0).close()
    with closing(connect(path, KEY, writer=False)) as made:
        assert held(made) == held(stepped("confide_daemon.store"))
        found = "SELECT s.id, s.sz FROM keyword JOIN keyword_docsize s ON s.id = keyword.rowid WHERE keyword MATCH char(0xF8FE)"
        steps = stepped("confide_daemon.store")
        assert made.execute(found).fetchall() == steps.execute(found).fetchall() != []
        rows: list[Any] = made.execute("SELECT version, applied_at FROM migration ORDER BY version").fetchall()
    assert rows == [(step, 5.0) for step, _ in migrations()]


def test_a_new_registry_is_what_the_steps_make(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    Registry.open(path, KEY).close()
    with closing(connect(path, KEY, writer=False)) as made:
        assert held(made) == held(stepped("confide_daemon.access"))
