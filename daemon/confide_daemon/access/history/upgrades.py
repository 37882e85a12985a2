"""Which steps the databases of a data folder have yet to take to this version, as its registry knows it.

The registry takes its steps when the folder is upgraded, each space when it is opened next: one that is locked may take them weeks later.
So the registry notes to which steps of both the folder was brought, by which version, and after which snapshot. That is also how an older
program finds out that it has been overtaken before it has touched anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import apsw

from confide_daemon import __version__
from confide_daemon.store.migrations import migrations, whole, written_by_newer

FIRST: Final = "0.1.0"
"""The version that noted nothing yet."""
_FIRST_SPACES: Final = 12
"""The newest step of a space that it knew."""
_PACKAGE: Final = "confide_daemon.access"


@dataclass(frozen=True, slots=True)
class Pending:
    """What an upgrade has to do."""

    program: str  # the version that has written the folder
    registry: int  # how many steps its registry takes
    spaces: int  # how many each of its spaces takes, when it is opened


@dataclass(frozen=True, slots=True)
class UpgradePreview:
    """A folder as it is before an upgrade."""

    pending: Pending | None  # None: there is nothing to do
    spaces: dict[str, str]  # ids, by their names
    proxies: dict[
        str, str
    ]  # the versions of confide on the machines that may connect, by their names, as far as they are known


def outlook(database: apsw.Connection) -> UpgradePreview:
    """What an upgrade finds, whatever version has written the registry. Raises StorageError: a newer one."""
    found = pending(database)
    spaces: list[Any] = database.execute("SELECT name, id FROM spaces ORDER BY name").fetchall()
    proxies: list[Any] = []
    if any(row[1] == "proxy_version" for row in database.execute("PRAGMA table_info(callers)")):
        sql = "SELECT alias, proxy_version FROM callers WHERE revoked_at IS NULL AND proxy_version IS NOT NULL ORDER BY alias"
        proxies = database.execute(sql).fetchall()
    return UpgradePreview(found, dict(spaces), dict(proxies))


def pending(database: apsw.Connection) -> Pending | None:
    """The steps that are to be taken; None where there are none, or the registry is new. Raises StorageError: a newer version wrote it."""
    present = int(database.pragma("user_version"))
    newest, spaces_newest = _newest()
    if not present:
        return None
    known = _last(database)
    program, _, spaces = known or (FIRST, present, _FIRST_SPACES)
    if present > newest or spaces > spaces_newest:
        is_told = known is not None and (known[1] == present or spaces > spaces_newest)
        raise written_by_newer("the registry", program if is_told else None)
    if (present, spaces) == (newest, spaces_newest):
        return None
    return Pending(program, newest - present, spaces_newest - spaces)


def take(database: apsw.Connection, *, now: float, snapshot: str | None = None) -> None:
    """Have the registry take its steps and note it; call it inside a transaction.

    `snapshot`: the one that was made before.
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
    """The newest step of the registry that this version knows."""
    return _newest()[0]


def _newest() -> tuple[int, int]:
    return len(migrations(_PACKAGE)), migrations()[-1][0]


def _last(database: apsw.Connection) -> tuple[str, int, int] | None:
    """The version that brought the folder to its present steps, and these; None where none has noted it."""
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchall():
        return None
    sql = "SELECT program, registry, spaces FROM migration ORDER BY rowid DESC LIMIT 1"
    rows: list[Any] = database.execute(sql).fetchall()
    return (str(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None
