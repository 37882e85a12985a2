"""The database of a space on encrypted SQLite: documents and chunks in tables, keywords in FTS5,
and the vectors of each embedding model in a table of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw

from confide_daemon.store.database import Damage, Database, connect, storage_errors, transaction
from confide_daemon.store.migrations import migrate
from confide_daemon.store.tables.class_table import ClassTable
from confide_daemon.store.tables.document_tables import DocumentTable, OperationTable, ProjectTable, TranscriptTable
from confide_daemon.store.tables.forget_table import ForgetTable
from confide_daemon.store.tables.keyword import KeywordTable
from confide_daemon.store.tables.mention_table import MentionTable
from confide_daemon.store.tables.note_listing import EntityTable, NoteListing
from confide_daemon.store.tables.note_table import NoteTable
from confide_daemon.store.tables.overview_queries import OverviewTable
from confide_daemon.store.tables.pieces import PieceTable, TokenTable, VectorTables, lay_out_plainly
from confide_daemon.store.tables.receipt_table import LifeTable
from confide_daemon.store.tables.sealed_records import SealedRecordTable
from confide_daemon.store.tables.vector_scan import VectorScan
from confide_daemon.store.upkeep import replacement, salvage
from confide_daemon.store.upkeep.free_space import FreeSpace
from confide_daemon.store.upkeep.integrity import BreachTable, Integrity, MarkTable
from confide_daemon.store.upkeep.repair import Repair
from confide_daemon.store.upkeep.replacement import Replacement
from confide_daemon.store.upkeep.rewrite import RevisionTexts

_Tables = TypeVar("_Tables")


class Store(Database):
    """A connection to the database of a space, with objects for its tables, its maintenance and its
    replacement.
    """

    def __init__(
        self, connection: apsw.Connection, scan: VectorScan, *, path: Path, key: bytes, damage: Damage | None = None
    ) -> None:
        super().__init__(connection, path=path, key=key, damage=damage)
        self.documents = DocumentTable(self)
        self.classes = ClassTable(self)
        self.projects = ProjectTable(self)
        self.operations = OperationTable(self)
        self.transcripts = TranscriptTable(self)
        self.lives = LifeTable(self)
        self.overview = OverviewTable(self)
        self.forgettings = ForgetTable(self)
        self.sealed_records = SealedRecordTable(self)
        self.notes = NoteTable(self)
        self.mentions = MentionTable(self)
        self.note_listing = NoteListing(self)
        self.entities = EntityTable(self)
        self.keywords = KeywordTable(self)
        self.vectors = VectorTables(self, scan)
        self.tokens = TokenTable(self)
        self.pieces = PieceTable(self, self.keywords, self.vectors)
        self.texts = RevisionTexts(self)
        self.marks = MarkTable(self)
        self.breaches = BreachTable(self)
        self.integrity = Integrity(self)
        self.repair = Repair(self, self.pieces, self.keywords, self.breaches)
        self.free_space = FreeSpace(self)
        self.replacement = Replacement(self)
        self._addon_tables: dict[Callable[[Database], Any], Any] = {}

    def tables(self, kind: Callable[[Database], _Tables]) -> _Tables:
        """Return an add-on's tables, of the class `kind`, on this connection. They are created on
        the first call.
        """
        if kind not in self._addon_tables:
            self._addon_tables[kind] = kind(self)
        found: _Tables = self._addon_tables[kind]
        return found

    @classmethod
    def open(
        cls,
        path: Path,
        key: bytes,
        *,
        writer: bool,
        now: float,
        scan: VectorScan | None = None,
        damage: Damage | None = None,
    ) -> Self:
        """Open the database file; a writer also creates and upgrades it. All connections of the
        space share `scan` (the vectors in memory) and `damage` (the unreadable parts).

        Raises StorageError if the key is wrong, the file is damaged or not writable, a newer
        version wrote it, or the disk is full.
        """
        if writer:
            replacement.sweep(path)
            salvage.sweep(path)
        connection = connect(path, key, writer=writer)
        try:
            if writer:
                migrate(connection, now=now)
                with storage_errors("upgrade the database"), transaction(connection):
                    lay_out_plainly(lambda sql, values: connection.execute(sql, tuple(values)).fetchall())
        except BaseException:
            connection.close()
            raise
        return cls(connection, scan or VectorScan(), path=path, key=key, damage=damage)
