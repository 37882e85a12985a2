"""Repairs of faults that the integrity checks found (`integrity`), as SQL, in steps between which
other writes and searches run.

Derived rows that cannot be repaired are removed and made again by the usual jobs: the indexer
computes missing vectors, and cuts documents again whose `chunking` is NULL. Source rows are
restored from what is left of them.
"""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from confide_daemon.errors import DamagedError
from confide_daemon.store.database import AMONG, Database, Table
from confide_daemon.store.migrations import migrations
from confide_daemon.store.rows import Breach
from confide_daemon.store.tables.keyword import KeywordTable
from confide_daemon.store.tables.pieces import PieceTable
from confide_daemon.store.upkeep import integrity
from confide_daemon.store.upkeep.integrity import KEYWORD_TABLE, BreachTable
from confide_memory.documents import text_hash

# Project and folder of documents whose names are lost. A device that has the file sends it again
# under its own name.
RECOVERED = "recovered"


class Repair(Table):
    """Repairs faults in the caller's transaction."""

    def __init__(self, database: Database, pieces: PieceTable, keywords: KeywordTable, breaches: BreachTable) -> None:
        super().__init__(database)
        self._pieces = pieces
        self._keywords = keywords
        self._breaches = breaches

    def fix(self, what: str, *, limit: int) -> int:
        """Repair up to `limit` rows with the fault `what`; return how many were repaired, 0 if
        nothing more can be done. Raises DamagedError if the whole file has to be rebuilt
        (`salvage`).
        """
        if what == integrity.PAGES:
            raise DamagedError("cannot repair the database: a part of it cannot be read")
        if (mend_all := _OF_ALL.get(what)) is not None:
            return mend_all(self)
        mend_these, select = _OF_IDS.get(what), integrity.selects(self._rows).get(what)
        if mend_these is None or select is None:
            return 0
        return mend_these(self, [row[0] for row in self._rows(f"SELECT id FROM ({select}) LIMIT ?", (limit,))])

    def _remove(self, pieces: Sequence[int]) -> int:
        self._pieces.remove(pieces, now=time.time())
        return len(pieces)

    def _add_words(self, found: Sequence[int]) -> int:
        sql = f"""SELECT c.id, d.path, c.heading, c.text, d.words FROM chunk c JOIN document d ON d.id = c.document
                 WHERE c.id {AMONG}"""
        pieces = self._rows(sql, (json.dumps(found),))
        self._keywords.remove(found)
        for piece in pieces:
            self._keywords.add(*piece)
        return len(pieces)

    def _remove_words(self, found: Sequence[int]) -> int:
        self._keywords.remove(found)
        return len(found)

    def _lay_out_words(self) -> int:
        """Replace a broken full-text table by an empty one; its rows count as missing then, and are
        added chunk by chunk.

        The SQL, with the background rows, is that of the newest migration that creates the table.
        """
        table = KEYWORD_TABLE
        if integrity.has_background(self._rows) and not integrity.check_table(self._rows, table):
            return 0
        self._rows(f"DROP TABLE IF EXISTS {table}")
        whole = "\n".join(sql for _, sql in migrations())
        for pattern in (rf"^CREATE VIRTUAL TABLE {table} .*?;$", rf"^WITH RECURSIVE[^;]*?INSERT INTO {table} .*?;$"):
            statements = re.findall(pattern, whole, re.MULTILINE | re.DOTALL)
            self._rows(statements[-1])
        return 1

    def _remove_vectors(self, found: Sequence[int]) -> int:
        for generation in integrity.with_tables(self._rows):
            self._rows(f"DELETE FROM vector_{generation} WHERE chunk {AMONG}", (json.dumps(found),))
        return len(found)

    def _remove_unusable_vectors(self) -> int:
        """Remove every unusable vector, and those of equal texts, which may be copies of it."""
        dropped = 0
        for generation, dimensions in integrity.with_tables(self._rows).items():
            for wrong in integrity.vectors_of(generation, dimensions).slices(self._rows):
                gone = self._rows(
                    f"""DELETE FROM vector_{generation} WHERE chunk IN (SELECT value FROM json_each(?1)) OR chunk IN
                        (SELECT id FROM chunk WHERE hash IN (SELECT hash FROM chunk WHERE id IN (SELECT value FROM json_each(?1))))
                        RETURNING chunk""",
                    (json.dumps([row[0] for row in wrong]),),
                )
                dropped += len(gone)
        return dropped

    def _match_vector_tables(self) -> int:
        lacking, stray = integrity.tableless(self._rows), integrity.stray_tables(self._rows)
        for identity in lacking:
            self._rows("DELETE FROM generation WHERE id = ?", (identity,))
        # Their tables belong to no generation any more.
        for table in integrity.stray_tables(self._rows):
            self._rows(f"DROP TABLE {table}")
        return len(lacking) + len(stray)

    def _remove_unusable_cached(self) -> int:
        dropped = 0
        for wrong in integrity.CACHE.slices(self._rows):
            self._rows(f"DELETE FROM vector_cache WHERE id {AMONG}", (json.dumps([row[0] for row in wrong]),))
            dropped += len(wrong)
        return dropped

    def _remove_altered_pieces(self) -> int:
        """Remove damaged chunks: one whose hash is still that of the right text would count as
        unchanged when its document is cut again.
        """
        dropped = 0
        for wrong in integrity.PIECES.slices(self._rows):
            self._remove([row[0] for row in wrong])
            self._cut_again(sorted({row[3] for row in wrong}))
            dropped += len(wrong)
        return dropped

    def _cut_again(self, documents: Sequence[int]) -> int:
        sql = f"UPDATE document SET chunking = NULL, cut_hash = NULL, pieces = NULL WHERE id {AMONG}"
        self._rows(sql, (json.dumps(list(documents)),))
        return len(documents)

    def _remove_notes(self, found: Sequence[int]) -> int:
        for table in ("note_relation", "note_tag", "note"):
            self._rows(f"DELETE FROM {table} WHERE document {AMONG}", (json.dumps(found),))
        return len(found)

    def _remove_mentions(self, found: Sequence[int]) -> int:
        for table in ("document_name", "document_tag", "document_link"):
            self._rows(f"DELETE FROM {table} WHERE document {AMONG}", (json.dumps(found),))
        return len(found)

    def _remove_parts(self, found: Sequence[int]) -> int:
        self._rows(f"DELETE FROM transcript_part WHERE document {AMONG}", (json.dumps(found),))
        return len(found)

    def _reindex(self) -> int:
        tables = [
            name for (name,) in self._rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")
        ]
        broken = [
            table
            for table in tables
            if any(one.what == integrity.INDEX_BROKEN for one in integrity.check_table(self._rows, table))
        ]
        for table in broken:
            self._rows(f"REINDEX {table}")
        return len(broken)

    def _restore_texts(self) -> int:
        """Restore lost texts from chunks that contain the whole text; other documents wait for a
        device that still has the file.
        """
        lost = {row[0] for row in self._rows(f"SELECT id FROM ({integrity.selects(self._rows)[integrity.TEXTS_LOST]})")}
        lost.update(row[0] for wrong in integrity.TEXTS.slices(self._rows) for row in wrong)
        return sum(self._restore_text(document) for document in sorted(lost))

    def _restore_text(self, document: int) -> bool:
        """Restore the newest text of a document from its chunks; if they are not the whole text,
        clear its hash and return False.

        No text has an empty hash, so a device that has the file sends it at its next comparison, as
        if it had changed.
        """
        ((number, content, author, updated_at),) = self._rows(
            "SELECT revision, hash, author, updated_at FROM document WHERE id = ?", (document,)
        )
        text = self._join_pieces(document, content) if content else None
        if text is None:
            self._rows("UPDATE document SET hash = '' WHERE id = ?", (document,))
            return False
        packed, size = zlib.compress(text.encode()), len(text.encode())
        self._rows(
            """INSERT INTO revision (document, number, hash, text, author, created_at, bytes, made)
               SELECT ?, ?, ?, ?, ?, ?, ?, CASE class WHEN 'untrusted' THEN class ELSE made END FROM document WHERE id = ?
               ON CONFLICT (document, number) DO UPDATE SET hash = excluded.hash, text = excluded.text, bytes = excluded.bytes""",
            (document, number, content, packed, author, updated_at, size, document),
        )
        return True

    def _join_pieces(self, document: int, content: str) -> str | None:
        """Join the chunks and return the text if its hash is right: chunks contain no blank lines,
        so only the hash proves it.
        """
        text, line = "", 1
        pieces = self._rows(
            "SELECT start_line, end_line, text FROM chunk WHERE document = ? ORDER BY position", (document,)
        )
        for start, end, piece in pieces:
            text += "\n" * (start - line) + piece
            line = end
        wholes = [text + end for end in ("\n", "", "\n\n")]
        wholes += [whole.replace("\n", "\r\n") for whole in wholes]
        return next((whole for whole in wholes if text_hash(whole) == content), None)

    def _restore_names(self, found: Sequence[int]) -> int:
        """Create projects for documents without one, and documents for revisions without one (given
        as negative ids here).
        """
        for identity in found:
            if identity > 0:
                self._rows(
                    """INSERT INTO project (id, name) SELECT project, ? || '-' || project FROM document WHERE id = ?
                       ON CONFLICT (id) DO NOTHING""",
                    (RECOVERED, identity),
                )
                continue
            self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (RECOVERED,))
            self._rows(
                """INSERT INTO document (id, project, path, revision, hash, deleted, author, updated_at, source, day)
                   SELECT r.document, p.id, ? || '/' || r.document || '.md', r.number, r.hash, r.text IS NULL, r.author, r.created_at,
                          'memory', date(r.created_at, 'unixepoch')
                   FROM revision r, project p WHERE p.name = ? AND r.document = ? ORDER BY r.number DESC LIMIT 1""",
                (RECOVERED, RECOVERED, -identity),
            )
        return len(found)

    def _restore_records(self) -> int:
        """Restore the columns of sealed records from their bytes; remove records that cannot be
        parsed, so that a device can store them again.
        """
        mended = lost = 0
        for number, *_, packed in chain.from_iterable(integrity.RECORDS.slices(self._rows)):
            known = integrity.record_in(packed)
            if known is None:
                self._rows("DELETE FROM sealed_record WHERE number = ?", (number,))
                lost += 1
            else:
                # If another row has its name by now, either row will do.
                sql = "UPDATE OR REPLACE sealed_record SET id = ?, kind = ?, epoch = ? WHERE number = ?"
                self._rows(sql, (known.secret_id, known.kind, known.epoch, number))
                mended += 1
        if lost:
            self._breaches.note(Breach(integrity.LOST_ROWS, lost, time.time()))
        return mended + lost


_OF_IDS: Final[dict[str, Callable[[Repair, Sequence[int]], int]]] = {
    integrity.KEYWORD_MISSING: Repair._add_words,
    integrity.KEYWORD_SURPLUS: Repair._remove_words,
    integrity.VECTOR_SURPLUS: Repair._remove_vectors,
    integrity.PIECES_SURPLUS: Repair._remove,
    integrity.PIECES_MISSING: Repair._cut_again,
    integrity.PIECES_STALE: Repair._cut_again,
    integrity.NOTES_MISSING: Repair._cut_again,
    integrity.NOTES_PARTIAL: Repair._cut_again,
    integrity.NOTES_SURPLUS: Repair._remove_notes,
    integrity.MENTIONS_PARTIAL: Repair._cut_again,
    integrity.MENTIONS_SURPLUS: Repair._remove_mentions,
    integrity.PARTS_SURPLUS: Repair._remove_parts,
    integrity.NAMES_LOST: Repair._restore_names,
}
"""Repairs of breaches that `integrity.selects` finds; each gets the ids of some wrong rows."""

_OF_ALL: Final[dict[str, Callable[[Repair], int]]] = {
    integrity.KEYWORD_BROKEN: Repair._lay_out_words,
    integrity.VECTOR_UNUSABLE: Repair._remove_unusable_vectors,
    integrity.VECTOR_TABLES: Repair._match_vector_tables,
    integrity.CACHE_UNUSABLE: Repair._remove_unusable_cached,
    integrity.PIECES_DAMAGED: Repair._remove_altered_pieces,
    integrity.INDEX_BROKEN: Repair._reindex,
    integrity.TEXTS_LOST: Repair._restore_texts,
    integrity.RECORDS_DAMAGED: Repair._restore_records,
}
"""Repairs of breaches that only reading finds; each repairs all rows at once."""
