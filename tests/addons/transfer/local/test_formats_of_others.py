"""A database that another program has written is only read, whatever its schema says."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from confide_transfer.local.formats import sqlite as databases


def test_its_schema_calls_nothing_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE notes (text)")
        made.execute("CREATE VIEW loud AS SELECT fts5('x') AS text")
    made.close()
    with databases._connection(file) as connection:
        with pytest.raises(sqlite3.OperationalError, match="unsafe use of fts5"):
            connection.execute("SELECT text FROM loud").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM notes")
