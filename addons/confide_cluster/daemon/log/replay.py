"""Applying entries to a copy of a space's database, so that its truths are those of who wrote them; what is derived follows.

SQLite leaves out, without an error, what a patchset has for a table that lacks columns of it (sqlite3changeset_apply), so that is looked
for here, and the newest revision of every document that was touched is compared with what the document says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import apsw

from confide_daemon.errors import LogError

_REPLACED: Final = (apsw.SQLITE_CHANGESET_DATA, apsw.SQLITE_CHANGESET_CONFLICT)
_DOCUMENT: Final = {"document": "id", "revision": "document"}
"""Tables whose changes make what is derived of a document stale, and the column that names it."""


@dataclass
class Replay:
    """Several entries, in order, in the caller's transaction; `finish` when the last one is applied.

    Attributes:
        touched: documents whose derived rows have to be made anew.
    """

    connection: apsw.Connection
    touched: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.connection.execute("PRAGMA defer_foreign_keys = ON")
        self._columns: dict[str, list[str]] = {}

    def apply(self, patchset: bytes) -> None:
        """Raises LogError: it does not fit what is here."""
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
        """Have all that was touched cut again; which documents that is. Raises LogError: a newest revision is not there."""
        documents = sorted(self.touched)
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
            # A table without a primary key has its row id before its columns (SQLITE_SESSION_OBJCONFIG_ROWID).
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
                self.touched.add(value)
                return
        # An update of a revision names it by its change alone.
        key = (change.old or ())[columns.index("change")] if change.name == "revision" and change.old else None
        rows: list[Any] = self.connection.execute("SELECT document FROM revision WHERE change = ?", (key,)).fetchall()
        self.touched.update(int(row[0]) for row in rows)


def _decide(reason: int, change: apsw.TableChange) -> int:
    """In a conflict the log is right; a row that is to be changed and is not here means that the copy is not what it says."""
    if reason in _REPLACED:
        return int(apsw.SQLITE_CHANGESET_REPLACE)
    if reason == apsw.SQLITE_CHANGESET_NOTFOUND and change.op == "DELETE":
        return int(apsw.SQLITE_CHANGESET_OMIT)
    return int(apsw.SQLITE_CHANGESET_ABORT)
