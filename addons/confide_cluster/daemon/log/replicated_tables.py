"""Records and replays changes of the replicated tables of a database. Only these are in its log;
each node computes the derived tables itself.

Every table is replicated unless it is listed here as derived, so tables of later versions are
included. A replicated table has a primary key, by which SQLite's sessions identify rows
(https://sqlite.org/sessionintro.html); `receipt_key` has a single row, whose row id is its key.

SQLite silently skips changes in a patchset if the table lacks some of their columns
(sqlite3changeset_apply). So replay checks for that, and compares the newest revision of every
touched document with the document's row.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import apsw

from confide_cluster.errors import LogError

DERIVED: Final = re.compile(
    r"sqlite_\w+|chunk|keyword(_\w+)?|generation|vector(_\w+)?|note|note_tag|note_relation|document_(name|tag|link)|breach|migration|shipped"
)
DERIVED_COLUMNS: Final = {
    "document": frozenset(
        {"chunking", "cut_hash", "pieces", "mentions", "words", "importance", "day", "last_day", "moment", "piece_days"}
    )
}
"""Derived columns of replicated tables, such as the progress of derived rows. A change of these
alone is not replicated.
"""
OWN_MARKS: Final = ("open", "checked_at")
"""Rows of `mark` about this copy alone: that a daemon has it open, and when it was checked."""


REGISTRY_DERIVED: Final = re.compile(r"sqlite_\w+|jobs|caller_changes|migration|shipped")
"""The derived tables of the registry: rebuilt by triggers on each node, or requests to the process
beside this copy.
"""


def truths(connection: apsw.Connection, derived: re.Pattern[str] = DERIVED) -> list[str]:
    """Return the names of the replicated tables."""
    rows = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name"
    )
    return [name for (name,) in rows if not derived.fullmatch(name)]


def rows_of(connection: apsw.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the replicated columns of a table's rows in an order that is the same in all copies."""
    left_out = DERIVED_COLUMNS.get(table, frozenset())
    columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    names = ", ".join(str(name) for (name,) in columns if name not in left_out)
    condition = f"WHERE name NOT IN {OWN_MARKS}" if table == "mark" else ""
    yield from connection.execute(f"SELECT {names} FROM {table} {condition} ORDER BY {names}")  # noqa: S608 - of the schema


class Recorder:
    """Records the changes that a connection makes to replicated tables, from one log entry to the
    next.
    """

    def __init__(self, connection: apsw.Connection, derived: re.Pattern[str] = DERIVED) -> None:
        """`derived`: the tables that are not replicated."""
        self._connection = connection
        self._tables = truths(connection, derived)
        self._derived_columns = {
            table: frozenset(
                position
                for position, row in enumerate(connection.execute(f"PRAGMA table_info({table})").fetchall())
                if row[1] in names
            )
            for table, names in DERIVED_COLUMNS.items()
        }
        self._earlier_changes = b""
        self._session = self._begin()

    def carry(self, patchset: bytes) -> None:
        """Put the given changes before all recorded ones. An earlier connection made them, and no
        entry contains them yet.
        """
        self._earlier_changes = patchset

    def patchset(self) -> bytes:
        """Return all changes since the last entry; empty bytes if there are none."""
        if self._session.is_empty and not self._earlier_changes:
            return b""
        found = self._session.patchset()
        builder = apsw.ChangesetBuilder()  # type: ignore[no-untyped-call]
        is_some = False
        for part in (self._earlier_changes, found):
            for change in apsw.Changeset.iter(part) if part else ():
                if not self._is_derived(change):
                    builder.add_change(change)
                    is_some = True
        return builder.output() if is_some else b""

    def restart(self, *, is_deriving: bool = False) -> None:
        """Drop the recorded changes, because they are in the log or were rolled back.

        With `is_deriving`, all changes of tables with derived columns count as derived until
        `end_derived` is called, which saves comparing the columns.
        """
        self.close()
        self._earlier_changes = b""
        self._session = self._begin(DERIVED_COLUMNS if is_deriving else ())

    def end_derived(self) -> None:
        """Record changes of all replicated tables again, after `restart(is_deriving=True)`."""
        for table in DERIVED_COLUMNS:
            self._session.attach(table)

    def close(self) -> None:
        self._session.close()

    def _begin(self, left_out: Container[str] = ()) -> apsw.Session:
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
        columns = self._derived_columns.get(change.name)
        if columns is None or change.op != "UPDATE" or change.new is None:
            return False
        keys = change.pk_columns
        changed = {at for at, value in enumerate(change.new) if value is not apsw.no_change and at not in keys}
        return changed <= columns


_REPLACED: Final = (apsw.SQLITE_CHANGESET_DATA, apsw.SQLITE_CHANGESET_CONFLICT)
_DOCUMENT: Final = {"document": "id", "revision": "document"}
"""Tables whose changes make a document's derived rows stale, and the column with the document's id.
"""


@dataclass
class LogReplay:
    """Applies log entries in order, in the caller's transaction; call `finish` after the last one.

    Attributes:
        touched_documents: the ids of the documents whose derived rows must be rebuilt.
    """

    connection: apsw.Connection
    touched_documents: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.connection.execute("PRAGMA defer_foreign_keys = ON")
        self._columns: dict[str, list[str]] = {}

    def apply(self, patchset: bytes) -> None:
        """Apply the patchset of an entry. Raises LogError if it does not fit this copy, or needs a
        newer version of Confide.
        """
        for change in apsw.Changeset.iter(patchset):
            columns = self._columns_of(change.name)
            if len(columns) < change.column_count:
                raise LogError(
                    "cannot apply the log of the space: it has a table or a column that this version does not know",
                    hint="upgrade confide on this machine",
                )
            self._note(change, columns)
        try:
            apsw.Changeset.apply(patchset, self.connection, conflict=_decide)
        except apsw.AbortError:
            raise LogError("cannot apply the log of the space: it does not fit the copy that is here") from None

    def finish(self) -> list[int]:
        """Mark the changed documents to be split into chunks again, and return their ids. Raises
        LogError if the newest revision of one is missing.
        """
        documents = sorted(self.touched_documents)
        for document in documents:
            self.connection.execute(
                "UPDATE document SET chunking = NULL, cut_hash = NULL, pieces = NULL WHERE id = ?", (document,)
            )
            rows = self.connection.execute(
                """SELECT d.deleted, d.hash, r.hash, r.text IS NULL FROM document d
                   LEFT JOIN revision r ON r.document = d.id AND r.number = d.revision WHERE d.id = ?""",
                (document,),
            ).fetchall()
            if rows and not rows[0][0] and rows[0][1] and rows[0][1] != rows[0][2]:
                raise LogError("cannot apply the log of the space: the newest revision of a document is not in it")
        return documents

    def _columns_of(self, table: str) -> list[str]:
        if table not in self._columns:
            rows = self.connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
            names = [str(name) for name, _ in rows]
            # A table without a primary key has its row id before its columns
            # (SQLITE_SESSION_OBJCONFIG_ROWID).
            self._columns[table] = names if any(key for _, key in rows) or not names else ["_rowid_", *names]
        return self._columns[table]

    def _note(self, change: apsw.TableChange, columns: list[str]) -> None:
        column = _DOCUMENT.get(change.name)
        if column is None:
            return
        at = columns.index(column)
        for values in (change.new, change.old):
            value = values[at] if values is not None else None
            if isinstance(value, int):
                self.touched_documents.add(value)
                return
        # An update of a revision identifies it only by its change.
        key = (change.old or ())[columns.index("change")] if change.name == "revision" and change.old else None
        rows: list[Any] = self.connection.execute("SELECT document FROM revision WHERE change = ?", (key,)).fetchall()
        self.touched_documents.update(int(row[0]) for row in rows)


def _decide(reason: int, change: apsw.TableChange) -> int:
    """Resolve a conflict: the log is right; a missing row to be changed means that the copy is
    corrupt.
    """
    if reason in _REPLACED:
        return int(apsw.SQLITE_CHANGESET_REPLACE)
    if reason == apsw.SQLITE_CHANGESET_NOTFOUND and change.op == "DELETE":
        return int(apsw.SQLITE_CHANGESET_OMIT)
    return int(apsw.SQLITE_CHANGESET_ABORT)
