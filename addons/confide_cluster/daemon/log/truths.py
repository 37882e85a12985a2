"""What of a space's database is truth, and so is in its log, and what is derived of it.

Every table is truth unless it is listed here as derived: what later versions add is in the log unasked. A truth has a primary key, which
is what SQLite's sessions know rows by (https://sqlite.org/sessionintro.html); `receipt_key` has one row ever, whose row id is its key.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any, Final

import apsw

DERIVED: Final = re.compile(
    r"sqlite_\w+|chunk|keyword(_\w+)?|generation|vector(_\w+)?|note|note_tag|note_relation|document_(name|tag|link)|breach|migration|shipped"
)
DERIVED_COLUMNS: Final = {"document": frozenset({"chunking", "cut_hash", "pieces", "mentions", "words", "importance"})}
"""Of truths: how far what is derived has followed, and what it says of itself. A change of nothing else is none."""
OWN_MARKS: Final = ("open", "checked_at")
"""Rows of `mark` that are about this copy: that a daemon has it open, and when it was looked at."""


REGISTRY_DERIVED: Final = re.compile(r"sqlite_\w+|jobs|caller_changes|migration|shipped")
"""The same of the registry: what a trigger makes anew on each node, and what was asked of the process beside this copy."""


def truths(connection: apsw.Connection, derived: re.Pattern[str] = DERIVED) -> list[str]:
    """The tables that are in the log."""
    rows = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name"
    )
    return [name for (name,) in rows if not derived.fullmatch(name)]


def rows_of(connection: apsw.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """All that two copies have in common of a truth, in an order of its own; how far derived rows are is no part of it."""
    left_out = DERIVED_COLUMNS.get(table, frozenset())
    columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    names = ", ".join(str(name) for (name,) in columns if name not in left_out)
    condition = f"WHERE name NOT IN {OWN_MARKS}" if table == "mark" else ""
    yield from connection.execute(f"SELECT {names} FROM {table} {condition} ORDER BY {names}")  # noqa: S608 - of the schema


class Recorder:
    """What a connection changes in truths, from one entry to the next."""

    def __init__(self, connection: apsw.Connection, derived: re.Pattern[str] = DERIVED) -> None:
        """`derived`: the tables that are in no log."""
        self._connection = connection
        self._tables = truths(connection, derived)
        self._derived = {
            table: frozenset(
                position
                for position, row in enumerate(connection.execute(f"PRAGMA table_info({table})").fetchall())
                if row[1] in names
            )
            for table, names in DERIVED_COLUMNS.items()
        }
        self._carried = b""
        self._session = self._begun()

    def carry(self, patchset: bytes) -> None:
        """Begin with what an earlier connection has changed, and nobody has brought to the log."""
        self._carried = patchset

    def patchset(self) -> bytes:
        """All that was changed since the last entry; empty where that is nothing."""
        if self._session.is_empty and not self._carried:
            return b""
        found = self._session.patchset()
        builder = apsw.ChangesetBuilder()  # type: ignore[no-untyped-call]
        is_some = False
        for part in (self._carried, found):
            for change in apsw.Changeset.iter(part) if part else ():
                if not self._is_derived(change):
                    builder.add_change(change)
                    is_some = True
        return builder.output() if is_some else b""

    def restart(self, *, is_deriving: bool = False) -> None:
        """What was changed so far is in the log, or never was.

        `is_deriving`: until `derived` what changes in tables that have derived columns is taken for that alone, which spares a look at it.
        """
        self.close()
        self._carried = b""
        self._session = self._begun(DERIVED_COLUMNS if is_deriving else ())

    def derived(self) -> None:
        """All that was derived is; a change of any truth counts again."""
        for table in DERIVED_COLUMNS:
            self._session.attach(table)

    def close(self) -> None:
        self._session.close()

    def _begun(self, left_out: Container[str] = ()) -> apsw.Session:
        session = apsw.Session(self._connection, "main")
        session.config(apsw.SQLITE_SESSION_OBJCONFIG_ROWID, 1)
        for table in self._tables:
            if table not in left_out:
                session.attach(table)
        return session

    def _is_derived(self, change: apsw.TableChange) -> bool:
        if change.name == "mark":
            values = change.old if change.new is None or change.new[0] is apsw.no_change else change.new
            return values is not None and values[0] in OWN_MARKS
        columns = self._derived.get(change.name)
        if columns is None or change.op != "UPDATE" or change.new is None:
            return False
        keys = change.pk_columns
        changed = {at for at, value in enumerate(change.new) if value is not apsw.no_change and at not in keys}
        return changed <= columns
