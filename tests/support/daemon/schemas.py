"""What the steps of a schema come to, as one piece of SQL: `sql/whole_NNNN.sql` of a package, which a new database is made of.

    python -m tests.support.daemon.schemas

writes these files, beside the steps (`make schema`). A test holds them to what the steps give.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import apsw
import sqlite_vec

from confide_daemon.store.migrations import migrate, migrations

PACKAGES: Final = ("confide_daemon.store", "confide_daemon.access")
_HEAD: Final = """-- All steps up to {newest}, in one: what a new database is made of. Write a step and `make schema`; do not edit it.
"""
_SEEDS: Final = re.compile(r"^WITH RECURSIVE[^;]*?INSERT INTO .*?;$", re.MULTILINE | re.DOTALL)


def stepped(package: str) -> apsw.Connection:
    """A database in memory that has taken every step of a package."""
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    if package == "confide_daemon.store":
        migrate(connection, now=0.0, to=migrations()[-1][0])  # by steps, since it is told up to which
    else:
        for _, step in migrations(package):
            connection.execute(step)
    return connection


def whole(package: str) -> str:
    """The SQL of that: what stands in the schema, in the order in which it came, and the rows that the steps put into it."""
    connection = stepped(package)
    rows: list[Any] = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY rowid").fetchall()
    virtual = [name for _, name, sql in rows if sql and sql.startswith("CREATE VIRTUAL")]
    shadows = tuple(f"{name}_" for name in virtual)
    made = [f"{sql};" for _, name, sql in rows if sql and not name.startswith(("sqlite_", *shadows))]
    # FTS5 writes a segment of its own for each row whose id is below that of the row before.
    seeds = [f"{seed[:-1]} ORDER BY 1;" for _, step in migrations(package) for seed in _SEEDS.findall(step)]
    return "\n\n".join((_HEAD.format(newest=migrations(package)[-1][0]), *made, *seeds)) + "\n"


def main() -> None:
    """Writes the file of each package, in place of that of older steps."""
    for package in PACKAGES:
        folder = Path(str(import_module(package).__file__)).parent / "sql"
        for old in folder.glob("whole_*.sql"):
            old.unlink()
        (folder / f"whole_{migrations(package)[-1][0]:04d}.sql").write_text(whole(package), encoding="utf-8")


if __name__ == "__main__":
    main()
