"""Upgrades of a database's schema in numbered steps, which are the `.sql` files in the folder `sql`
of a package.

A new database has no data to migrate, so one script (`whole_NNNN.sql`) creates the schema that all
steps together produce.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any

import apsw

from confide_daemon import __version__
from confide_daemon.errors import StorageError
from confide_daemon.store.database import storage_errors, transaction


@functools.cache
def migrations(package: str = "confide_daemon.store") -> tuple[tuple[int, str], ...]:
    """Return (version, SQL) of a package's schema steps, oldest first. The files are read once per
    process, since every opening of a space needs them.
    """
    folder = resources.files(package) / "sql"
    found = []
    for entry in folder.iterdir():
        match = re.fullmatch(r"(\d{4})_\w+\.sql", entry.name)
        if match:
            found.append((int(match[1]), entry.read_text(encoding="utf-8")))
    return tuple(sorted(found))


@functools.cache
def whole(newest: int, package: str = "confide_daemon.store") -> str | None:
    """Return the SQL script that creates a new database at version `newest`, or None if the package
    has none and all steps must run.
    """
    file = resources.files(package) / "sql" / f"whole_{newest:04d}.sql"
    return file.read_text(encoding="utf-8") if file.is_file() else None


def version(connection: apsw.Connection) -> int:
    """Return the number of the newest applied step, or 0 if none was applied."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchall():
        return 0
    rows: list[Any] = connection.execute("SELECT coalesce(max(version), 0) FROM migration").fetchall()
    return int(rows[0][0])


def migrate(connection: apsw.Connection, *, now: float, to: int | None = None) -> None:
    """Upgrade the schema in numbered steps, each in a transaction of its own. A new database is
    created in one transaction.

    `to`: the last step to run, to produce the schema of an older version of Confide; None: run all.

    Raises StorageError if a newer version wrote the database.
    """
    steps = migrations()
    with storage_errors("upgrade the database"):
        if to is None and (sql := whole(steps[-1][0])) is not None and not _has_tables(connection):
            with transaction(connection):
                connection.execute(sql, can_cache=False)
                rows = [(step, now, __version__) for step, _ in steps]
                connection.executemany("INSERT INTO migration (version, applied_at, program) VALUES (?, ?, ?)", rows)
            return
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, applied_at REAL NOT NULL)"
        )
        done = {int(version) for (version,) in connection.execute("SELECT version FROM migration")}
        present = max(done, default=0)
        if present > steps[-1][0]:
            raise newer_version_error("the database", _program(connection, present))
        for step, sql in steps:
            if step not in done and (to is None or step <= to):
                with transaction(connection):
                    connection.execute(sql, can_cache=False)  # it runs once
                    connection.execute("INSERT INTO migration (version, applied_at) VALUES (?, ?)", (step, now))
                    if _has_programs(connection):
                        connection.execute("UPDATE migration SET program = ? WHERE version = ?", (__version__, step))


def newer_version_error(what: str, program: str | None) -> StorageError:
    """Return the error for a file (`what`) that a newer version wrote. `program`: that version;
    None: unknown.
    """
    newer = "a newer version of confide" if program is None else f"confided {program}"
    return StorageError(
        f"cannot open {what}: it was written by {newer}; this is {__version__}",
        hint="upgrade, or confided restore the snapshot from before it",
    )


def _program(connection: apsw.Connection, step: int) -> str | None:
    if not _has_programs(connection):
        return None
    rows = connection.execute("SELECT program FROM migration WHERE version = ?", (step,)).fetchall()
    return str(rows[0][0]) if rows and rows[0][0] is not None else None


def _has_tables(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())


def _has_programs(connection: apsw.Connection) -> bool:
    """Return True if the table records the program that made each step, as it does from step 13 on."""
    return any(row[1] == "program" for row in connection.execute("PRAGMA table_info(migration)"))
