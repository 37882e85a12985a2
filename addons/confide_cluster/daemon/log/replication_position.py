"""The position of a local copy in its log, stored as a row of the copy. It is committed together
with the changes that it covers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apsw

from confide_cluster.daemon.log.log_sealing import GENESIS
from confide_daemon.store.database import is_copy

_LIFE = "(SELECT id FROM life ORDER BY number DESC LIMIT 1)"
SCHEMA = """
    CREATE TABLE IF NOT EXISTS shipped (
        id      INTEGER PRIMARY KEY CHECK (id = 1),
        number  INTEGER NOT NULL,                 -- of the last entry that is in this copy
        tag     BLOB    NOT NULL,                 -- of that entry
        life    BLOB,                             -- the newest then: one that is opened without its log has another
        pending BLOB                              -- a patchset: truths that changed with what is derived, and are not in the log yet
    )
"""


@dataclass(frozen=True, slots=True)
class Shipped:
    """The position of a local copy in its log.

    Attributes:
        number: the number of the last entry that the copy contains.
        tag: the tag of that entry.
        pending: a patchset of changes that are in the copy and in no entry yet; may be empty.
        is_alone: True if the copy was opened without its log since that entry.
    """

    number: int = 0
    tag: bytes = GENESIS
    pending: bytes = b""
    is_alone: bool = False


def read(connection: apsw.Connection) -> Shipped | None:
    """Return the position of a copy, or None if the database is not a copy of a log."""
    if not is_copy(connection):
        return None
    sql = f"SELECT number, tag, pending, life IS NOT {_LIFE} FROM shipped"  # noqa: S608 - a constant
    rows: list[Any] = connection.execute(sql).fetchall()
    if not rows:
        return None
    number, tag, pending, is_alone = rows[0]
    return Shipped(number, bytes(tag), bytes(pending or b""), bool(is_alone))


def begin(connection: apsw.Connection) -> None:
    """Mark the database as a copy at the start of a log. Runs in the caller's transaction."""
    connection.execute(SCHEMA)
    connection.execute("INSERT OR IGNORE INTO shipped (id, number, tag) VALUES (1, 0, ?)", (GENESIS,))


def write(connection: apsw.Connection, number: int, tag: bytes) -> None:
    """Store the position, in the same transaction as the changes of that entry."""
    sql = f"UPDATE shipped SET number = ?, tag = ?, pending = NULL, life = {_LIFE}"  # noqa: S608 - a constant
    connection.execute(sql, (number, tag))


def keep(connection: apsw.Connection, pending: bytes) -> None:
    """Store the changes that are in no entry yet, in the same transaction as the last of them."""
    connection.execute(f"UPDATE shipped SET pending = ?, life = {_LIFE}", (pending,))  # noqa: S608 - a constant


def settle(connection: apsw.Connection) -> None:
    """Make a copy that another node created this node's own: drop its unsent changes, which are in
    the log, and its mark of being open.
    """
    connection.execute(f"UPDATE shipped SET pending = NULL, life = {_LIFE}")  # noqa: S608 - a constant
    connection.execute("DELETE FROM mark WHERE name = 'open'")
