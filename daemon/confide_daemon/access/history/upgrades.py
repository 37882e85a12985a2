"""Finds the migrations that the databases of a data folder need for this version, and runs those of
the registry.

The registry is migrated when the folder is upgraded, each space when it is next opened. A locked
space may be migrated weeks later. So the registry records the migration level of both, the version
that migrated them, and the snapshot made before. This lets an older program detect a newer folder
before it changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import apsw

from confide_daemon import __version__
from confide_daemon.store.migrations import migrations, newer_version_error, whole

FIRST: Final = "0.1.0"
"""The first version. It recorded no version in the registry."""
_FIRST_SPACES: Final = 12
"""The newest migration of a space in that version."""
_PACKAGE: Final = "confide_daemon.access"


@dataclass(frozen=True, slots=True)
class Pending:
    """The number of migrations that an upgrade to this version runs."""

    program: str  # the version that has written the folder
    registry: int  # how many steps its registry takes
    spaces: int  # how many each of its spaces takes, when it is opened


@dataclass(frozen=True, slots=True)
class UpgradePreview:
    """The state of a data folder before an upgrade, and the migrations that the upgrade would run."""

    pending: Pending | None  # None: there is nothing to do
    spaces: dict[str, str]  # ids, by their names
    proxies: dict[
        str, str
    ]  # the versions of confide on the machines that may connect, by their names, as far as they are known


def outlook(database: apsw.Connection) -> UpgradePreview:
    """Return a preview of the upgrade that a registry needs. Raises StorageError if a newer version
    wrote it.
    """
    found = pending(database)
    spaces: list[Any] = database.execute("SELECT name, id FROM spaces ORDER BY name").fetchall()
    proxies: list[Any] = []
    if any(row[1] == "proxy_version" for row in database.execute("PRAGMA table_info(callers)")):
        sql = "SELECT alias, proxy_version FROM callers WHERE revoked_at IS NULL AND proxy_version IS NOT NULL ORDER BY alias"
        proxies = database.execute(sql).fetchall()
    return UpgradePreview(found, dict(spaces), dict(proxies))


def pending(database: apsw.Connection) -> Pending | None:
    """Return the number of migrations to run, or None if there are none or the registry is new.
    Raises StorageError if a newer version wrote the registry.
    """
    present = int(database.pragma("user_version"))
    newest, spaces_newest = _newest()
    if not present:
        return None
    known = _last(database)
    program, _, spaces = known or (FIRST, present, _FIRST_SPACES)
    if present > newest or spaces > spaces_newest:
        is_told = known is not None and (known[1] == present or spaces > spaces_newest)
        raise newer_version_error("the registry", program if is_told else None)
    if (present, spaces) == (newest, spaces_newest):
        return None
    return Pending(program, newest - present, spaces_newest - spaces)


def take(database: apsw.Connection, *, now: float, snapshot: str | None = None) -> None:
    """Migrate the registry, and record the new migration level in it. Call within a transaction.

    `snapshot`: the name of the snapshot made before the upgrade, or None if none was made.
    """
    present = int(database.pragma("user_version"))
    newest, spaces = _newest()
    if not present and (sql := whole(newest, _PACKAGE)) is not None:
        database.execute(sql)
    else:
        for _, step in migrations(_PACKAGE)[present:]:
            database.execute(step)
    if present < newest:
        database.pragma("user_version", newest)
    last = _last(database)
    if last is None or last[1:] != (newest, spaces):
        database.execute("INSERT INTO migration VALUES (?, ?, ?, ?, ?)", (now, __version__, newest, spaces, snapshot))


def newest() -> int:
    """Return the number of the newest registry migration that this version knows."""
    return _newest()[0]


def _newest() -> tuple[int, int]:
    return len(migrations(_PACKAGE)), migrations()[-1][0]


def _last(database: apsw.Connection) -> tuple[str, int, int] | None:
    """Return the recorded version and the migration levels of the registry and of spaces, or None
    if none are recorded.
    """
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchall():
        return None
    sql = "SELECT program, registry, spaces FROM migration ORDER BY rowid DESC LIMIT 1"
    rows: list[Any] = database.execute(sql).fetchall()
    return (str(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None
