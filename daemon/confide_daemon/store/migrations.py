"""The schema of a database, brought up to this version step by step: the `.sql` files of a package's folder `sql`."""

from __future__ import annotations

import re
from importlib import resources

import apsw

from confide_daemon.errors import StorageError
from confide_daemon.store.database import storage_errors, transaction


def migrations(package: str = "confide_daemon.store") -> list[tuple[int, str]]:
    """(version, SQL) of a package's schema, oldest first."""
    folder = resources.files(package) / "sql"
    found = []
    for entry in folder.iterdir():
        match = re.fullmatch(r"(\d{4})_\w+\.sql", entry.name)
        if match:
            found.append((int(match[1]), entry.read_text(encoding="utf-8")))
    return sorted(found)


def migrate(connection: apsw.Connection, *, now: float) -> None:
    """Brings the schema up to this version, each step in one transaction with the row that records it.

    Raises StorageError: a newer version has written the database.
    """
    steps = migrations()
    with storage_errors("upgrade the database"):
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, applied_at REAL NOT NULL)"
        )
        done = {int(version) for (version,) in connection.execute("SELECT version FROM migration")}
        present = max(done, default=0)
        if present > steps[-1][0]:
            raise StorageError(
                f"cannot open the database: it was written by a newer version of confide (schema {present}, known {steps[-1][0]})",
                hint="upgrade confide on this machine",
            )
        for version, sql in steps:
            if version not in done:
                with transaction(connection):
                    connection.execute(sql, can_cache=False)  # it is made once
                    connection.execute("INSERT INTO migration VALUES (?, ?)", (version, now))
