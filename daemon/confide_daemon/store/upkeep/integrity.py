"""Integrity checks of a space's database, as SQL.

Documents, their revisions and sealed records are the source; chunks, keyword rows and vectors are
derived from them. `glance` compares derived rows with their sources by id; `examine` reads
everything, slice by slice. A fault that a check finds (a "breach") is named by one of the constants
below, recorded in the table `breach`, and fixed by `repair`.
"""

# ruff: noqa: S608 - only names and numbers of our own are put into SQL; every value is a parameter

from __future__ import annotations

import contextlib
import json
import random
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from confide_crypto.errors import RecordError
from confide_crypto.sealing.record import SealedRecord
from confide_daemon.errors import DamagedError, StorageError
from confide_daemon.store.database import AMONG, Rows, Table
from confide_daemon.store.rows import Breach
from confide_daemon.store.tables.document_tables import UNCUTTABLE
from confide_daemon.store.tables.pieces import piece_hash
from confide_memory.documents import text_hash

# These names reveal no content, so they may appear in logs, in a status and in the table `breach`.
KEYWORD_MISSING: Final = "pieces without keyword rows"
KEYWORD_SURPLUS: Final = "keyword rows without pieces"
KEYWORD_BROKEN: Final = "a broken keyword index"
VECTOR_SURPLUS: Final = "vectors without pieces"
VECTOR_UNUSABLE: Final = "unusable vectors"
VECTOR_TABLES: Final = "vector tables that belong to no model, or lack"
VECTORS_FOREIGN: Final = "vectors that their model does not give"
CACHE_UNUSABLE: Final = "unusable vectors in the cache"
PIECES_SURPLUS: Final = "pieces without documents"
PIECES_MISSING: Final = "documents with missing pieces"
PIECES_STALE: Final = "documents whose pieces are of another text"
PIECES_DAMAGED: Final = "damaged pieces"
UNCUT: Final = "documents that cannot be cut"
PARTS_SURPLUS: Final = "transcript parts without documents"
NOTES_MISSING: Final = "notes that are not listed"
NOTES_PARTIAL: Final = "notes that lack tags or relations"
NOTES_SURPLUS: Final = "listed notes without documents"
MENTIONS_PARTIAL: Final = "documents that lack tags or links"
MENTIONS_SURPLUS: Final = "tags or links without documents"
RECORDS_DAMAGED: Final = "damaged sealed records"
INDEX_BROKEN: Final = "table indexes that disagree with their tables"
NAMES_LOST: Final = "rows whose document or project is lost"
TEXTS_LOST: Final = "documents whose newest text is lost"
PAGES: Final = "pages that cannot be read"
LOST_ROWS: Final = "rows lost with their pages"
FILE_LOST: Final = "database file, missing when the space was opened"

# Losses that only a user, or a device that compares its files again, can restore.
LOSSES: Final = (TEXTS_LOST, LOST_ROWS, FILE_LOST)
ACCEPTED: Final = (LOST_ROWS, FILE_LOST)
"""Losses that nothing repairs: an operator confirms that he has seen them."""

CLOCK_SEEN: Final = "clock_seen"
CLOCK_CONFIRMED: Final = "clock_confirmed"
APART_S: Final = 20 * 3600.0
"""Time between two checks of the clock: somewhat less than a day, since the daily maintenance makes
them.
"""

SLICE: Final = 2000  # rows of chunks or vectors: some 20 ms
SAMPLED: Final = 64  # vectors in the sample of each `glance`
# Float32 rounding of a unit vector is a thousand times less.
_UNIT_TOLERANCE: Final = 1e-2

_VECTOR_TABLE: Final = re.compile(r"vector_(\d+)")
# Messages of SQLite's integrity_check about an index that disagrees with its table, and about rows
# that violate a constraint of it.
_INDEX_WORDS: Final = ("missing from index", "wrong # of entries in index", "non-unique entry in index")


# The full-text table has a row for each chunk, with the chunk's id. Negative row ids are background
# rows, which belong to no chunk.
KEYWORD_TABLE: Final = "keyword"
_KEYWORD_IDS: Final = "SELECT id FROM keyword_docsize WHERE id > 0"
_BACKGROUND: Final = "SELECT count(*) FROM keyword_docsize WHERE id < 0"
_BACKGROUND_ROWS: Final = 256


class Integrity(Table):
    def glance(self) -> list[Breach]:
        """Compare ids of derived and source rows, and check a sample of the vectors; return the
        faults found. All of it runs in one transaction, since a generation of vectors may be
        dropped at any time.

        At 100,000 chunks it takes 0.1 s.
        """
        with self._database.reading():
            return glance(self._rows)

    def examine(self) -> Iterator[list[Breach]]:
        """Read every page and every text, in slices that each have a transaction of their own.
        Yield the faults found in each slice.

        An unreadable page is reported as a fault, not raised as an error.
        """
        slices = _examine(self._rows)
        while True:
            with self._database.reading():
                found = next(slices, None)
            if found is None:
                return
            yield found


def glance(rows: Rows) -> list[Breach]:
    """Run the checks of `Integrity.glance` in the caller's transaction."""
    counts = {what: int(rows(f"SELECT count(*) FROM ({sql})", ())[0][0]) for what, sql in selects(rows).items()}
    counts[VECTOR_TABLES] = len(stray_tables(rows)) + len(tableless(rows))
    counts[KEYWORD_BROKEN] = int(not has_background(rows))
    counts[VECTOR_UNUSABLE] = sum(_count_in_sample(rows, *one) for one in with_tables(rows).items())
    return [Breach(what, count) for what, count in counts.items() if count]


def _count_in_sample(rows: Rows, generation: int, dimensions: int) -> int:
    """Count the unusable vectors in a random sample."""
    ((first, last),) = rows(f"SELECT min(chunk), max(chunk) FROM vector_{generation}", ())
    if first is None:
        return 0
    places = random.sample(range(first, last + 1), min(SAMPLED, last - first + 1))
    sql = f"SELECT chunk, embedding FROM vector_{generation} WHERE chunk {AMONG}"
    return len(_unusable(rows(sql, (json.dumps(places),)), dimensions))


def selects(rows: Rows) -> dict[str, str]:
    """Return the SQL that selects the ids of wrong rows, by the name of the fault. Only faults that
    a comparison of ids finds are included.
    """
    # Separate queries, since one table that cannot be read makes a whole query fail.
    found: dict[str, str] = {}
    if has_background(rows):
        found[KEYWORD_MISSING] = f"SELECT id FROM chunk EXCEPT {_KEYWORD_IDS}"
        found[KEYWORD_SURPLUS] = f"{_KEYWORD_IDS} EXCEPT SELECT id FROM chunk"
    vectors = [
        f"SELECT chunk AS id FROM vector_{one} INDEXED BY vector_{one}_chunk WHERE chunk NOT IN (SELECT id FROM chunk)"
        for one in with_tables(rows)
    ]
    if vectors:
        found[VECTOR_SURPLUS] = " UNION ".join(vectors)
    return found | _FIXED


_FIXED: Final = {
    PIECES_SURPLUS: "SELECT c.id FROM chunk c LEFT JOIN document d ON d.id = c.document WHERE d.id IS NULL OR d.deleted",
    PIECES_MISSING: """SELECT d.id FROM document d LEFT JOIN (SELECT document, count(*) AS present FROM chunk GROUP BY document) c
                       ON c.document = d.id WHERE NOT d.deleted AND d.chunking IS NOT NULL AND d.pieces <> coalesce(c.present, 0)""",
    PIECES_STALE: "SELECT id FROM document WHERE NOT deleted AND hash <> '' AND cut_hash <> hash AND chunking IS NOT NULL",
    UNCUT: f"SELECT id FROM document INDEXED BY document_cut WHERE deleted = 0 AND chunking >= '{UNCUTTABLE}'",
    NOTES_MISSING: f"""SELECT id FROM document d WHERE NOT deleted AND chunking < '{UNCUTTABLE}' AND hash <> ''
                      AND (path GLOB 'memory/notes/?*' OR path GLOB 'memory/tasks/?*/?*') AND id NOT IN (SELECT document FROM note)""",
    NOTES_PARTIAL: """SELECT d.id FROM note n JOIN document d ON d.id = n.document
                      LEFT JOIN (SELECT document, count(*) AS present FROM note_tag INDEXED BY note_tags_of GROUP BY document) t
                      ON t.document = n.document
                      LEFT JOIN (SELECT document, count(*) AS present FROM note_relation INDEXED BY note_relations GROUP BY document) r
                      ON r.document = n.document
                      WHERE NOT d.deleted AND d.chunking IS NOT NULL AND n.parts <> coalesce(t.present, 0) + coalesce(r.present, 0)""",
    NOTES_SURPLUS: """SELECT document AS id FROM note WHERE document NOT IN (SELECT id FROM document WHERE NOT deleted)
                      UNION SELECT document FROM note_tag WHERE document NOT IN (SELECT document FROM note)
                      UNION SELECT document FROM note_relation WHERE document NOT IN (SELECT document FROM note)""",
    MENTIONS_PARTIAL: """SELECT d.id FROM document d
                         LEFT JOIN (SELECT document, count(*) AS present FROM document_name INDEXED BY document_names_of GROUP BY 1) n
                         ON n.document = d.id
                         LEFT JOIN (SELECT document, count(*) AS present FROM document_tag INDEXED BY document_tags_of GROUP BY document) t
                         ON t.document = d.id
                         LEFT JOIN (SELECT document, count(*) AS present FROM document_link GROUP BY document) l ON l.document = d.id
                         WHERE NOT d.deleted AND d.chunking IS NOT NULL
                         AND d.mentions <> coalesce(n.present, 0) + coalesce(t.present, 0) + coalesce(l.present, 0)""",
    MENTIONS_SURPLUS: """SELECT document AS id FROM (SELECT document FROM document_name UNION SELECT document FROM document_tag
                         UNION SELECT document FROM document_link) WHERE document NOT IN (SELECT id FROM document WHERE NOT deleted)""",
    PARTS_SURPLUS: """SELECT document AS id FROM transcript_part WHERE document NOT IN (SELECT id FROM document)
                      OR transcript NOT IN (SELECT id FROM transcript)""",
    NAMES_LOST: """SELECT id FROM document WHERE project NOT IN (SELECT id FROM project)
                   UNION SELECT -document FROM revision WHERE document NOT IN (SELECT id FROM document)""",
    TEXTS_LOST: """SELECT d.id FROM document d WHERE NOT d.deleted AND NOT EXISTS
                   (SELECT 1 FROM revision r WHERE r.document = d.id AND r.number = d.revision AND r.hash = d.hash AND d.hash <> '')""",
}


def has_background(rows: Rows) -> bool:
    """Return True if the full-text table exists and FTS5's internal rows in it are complete."""
    if not rows("SELECT 1 FROM sqlite_schema WHERE name = ?", (KEYWORD_TABLE,)):
        return False
    return int(rows(_BACKGROUND, ())[0][0]) == _BACKGROUND_ROWS


def with_tables(rows: Rows) -> dict[int, int]:
    """Return {generation id: dimensions} of all sets of vectors whose table exists."""
    tables = _vector_tables(rows)
    return {one: size for one, size in rows("SELECT id, dimensions FROM generation", ()) if f"vector_{one}" in tables}


def _vector_tables(rows: Rows) -> set[str]:
    found = rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'vector_[0-9]*'", ())
    return {name for (name,) in found if _VECTOR_TABLE.fullmatch(name)}


def stray_tables(rows: Rows) -> list[str]:
    known = {f"vector_{identity}" for (identity,) in rows("SELECT id FROM generation", ())}
    return sorted(_vector_tables(rows) - known)


def tableless(rows: Rows) -> list[int]:
    """Return the generation ids of all sets of vectors whose table, or its index, is missing."""
    names = {name for (name,) in rows("SELECT name FROM sqlite_schema WHERE name GLOB 'vector_[0-9]*'", ())}
    identities = [identity for (identity,) in rows("SELECT id FROM generation", ())]
    return [one for one in identities if not {f"vector_{one}", f"vector_{one}_chunk"} <= names]


def _examine(rows: Rows) -> Iterator[list[Breach]]:
    yield _check_readable(lambda: glance(rows))
    for (table,) in rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name", ()):
        yield _check_readable(lambda table=table: check_table(rows, table))  # type: ignore[misc]
    for scan in (PIECES, TEXTS, RECORDS, *(vectors_of(*one) for one in with_tables(rows).items()), CACHE):
        slices = scan.slices(rows)
        found: list[Breach] | None = []
        while found is not None:
            yield found
            found = _next(scan, slices)


def _next(scan: IntegrityScan, slices: Iterator[list[Any]]) -> list[Breach] | None:
    try:
        wrong = next(slices, None)
    except DamagedError:  # which ends the slices
        return [Breach(PAGES, 1)]
    return None if wrong is None else [Breach(scan.what, len(wrong))] if wrong else []


def _check_readable(look: Callable[[], list[Breach]]) -> list[Breach]:
    try:
        return look()
    except DamagedError:
        return [Breach(PAGES, 1)]


def check_table(rows: Rows, table: str) -> list[Breach]:
    """Run SQLite's integrity check of a table and its indexes, or FTS5's own check of the full-text
    table; return the faults found.
    """
    if table == KEYWORD_TABLE:
        # Twice, since another connection may write between the two queries of one check.
        is_broken = all(_check_words(rows, table) for _ in range(2))
        return [Breach(KEYWORD_BROKEN, 1)] if is_broken else []
    said = _integrity(rows, table)
    if not said:
        return []
    if all(any(word in line for word in _INDEX_WORDS) for line in said):
        return [Breach(INDEX_BROKEN, len(said))]
    return [Breach(PAGES, len(said))]


def _integrity(rows: Rows, table: str) -> list[str]:
    return [line for (line,) in rows(f"PRAGMA integrity_check('{table}')", ()) if line != "ok"]


def _check_words(rows: Rows, table: str) -> list[str]:
    """Return the problems of a full-text table.

    FTS5 keeps the names of its blobs in memory. Unlike a query, its check does not notice that
    another connection has changed them, and then reports blobs as missing that were merged into
    others. So a query comes first.
    """
    with contextlib.suppress(StorageError):  # the check reports the problem
        rows(f"SELECT rowid FROM {table} WHERE rowid = 0", ())
    return _integrity(rows, table)


def _is_text(content: str, packed: object) -> bool:
    try:
        return isinstance(packed, bytes) and text_hash(zlib.decompress(packed).decode()) == content
    except (zlib.error, UnicodeDecodeError):
        return False


def _is_record(identity: object, kind: object, epoch: object, packed: object) -> bool:
    """Return True if the sealed record can be parsed and matches its row."""
    known = record_in(packed)
    return known is not None and (known.secret_id, known.kind, known.epoch) == (identity, kind, epoch)


def record_in(packed: object) -> SealedRecord | None:
    try:
        return SealedRecord.parse(packed) if isinstance(packed, bytes) else None
    except RecordError:
        return None


def _unusable_cached(found: Sequence[Any]) -> list[Any]:
    wrong: list[Any] = []
    for model in {row[2] for row in found}:
        size = model.rpartition("/")[2]
        wrong += _unusable([row for row in found if row[2] == model], int(size) if size.isdigit() else 0)
    return wrong


def _unusable(found: Sequence[Any], dimensions: int) -> list[Any]:
    """Return those rows (id, packed vector, …) whose vector has another length, is not finite, or
    has no unit length.

    An empty vector is valid (`tables.pieces`).
    """
    found = [row for row in found if row[1] != b""]
    fit = [row for row in found if isinstance(row[1], bytes) and len(row[1]) == 4 * dimensions and dimensions]
    fits = {row[0] for row in fit}
    wrong = [row for row in found if row[0] not in fits]
    if fit:
        vectors = np.frombuffer(b"".join(row[1] for row in fit), dtype=np.float32).reshape(len(fit), dimensions)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        # Not `>`, which is False for a NaN.
        wrong += [row for row, bad in zip(fit, ~(np.abs(lengths - 1) <= _UNIT_TOLERANCE), strict=True) if bad]
    return wrong


@dataclass(frozen=True, slots=True)
class IntegrityScan:
    """A check that reads rows in slices, ordered by id, and selects the wrong ones."""

    what: str  # the breach
    sql: str  # selects rows above an id, with a limit
    size: int
    wrong: Callable[[Sequence[Any]], list[Any]]
    generation: int | None = None  # generation of its table, which may be dropped between two slices

    def slices(self, rows: Rows) -> Iterator[list[Any]]:
        """Yield the wrong rows of each slice in turn."""
        after = 0
        while self.generation is None or self.generation in with_tables(rows):
            if not (found := rows(self.sql, (after, self.size))):
                return
            after = found[-1][0]
            yield self.wrong(found)


PIECES: Final = IntegrityScan(
    PIECES_DAMAGED,
    "SELECT id, hash, text, document FROM chunk WHERE id > ? ORDER BY id LIMIT ?",
    SLICE,
    lambda found: [row for row in found if not isinstance(row[2], str) or piece_hash(row[2]) != row[1]],
)
TEXTS: Final = IntegrityScan(
    TEXTS_LOST,
    """SELECT d.id, d.hash, r.text FROM document d JOIN revision r ON r.document = d.id AND r.number = d.revision
       WHERE d.id > ? AND NOT d.deleted AND d.hash <> '' ORDER BY d.id LIMIT ?""",
    64,  # revisions: the largest has a megabyte
    lambda found: [row for row in found if not _is_text(*row[1:])],
)
RECORDS: Final = IntegrityScan(
    RECORDS_DAMAGED,
    "SELECT number, id, kind, epoch, record FROM sealed_record WHERE number > ? AND place IS NULL ORDER BY number LIMIT ?",
    16,  # sealed records: the largest has four
    lambda found: [row for row in found if not _is_record(*row[1:])],
)
CACHE: Final = IntegrityScan(
    CACHE_UNUSABLE,
    "SELECT id, vector, model FROM vector_cache WHERE id > ? ORDER BY id LIMIT ?",
    SLICE,
    _unusable_cached,
)


def vectors_of(generation: int, dimensions: int) -> IntegrityScan:
    sql = f"SELECT chunk, embedding FROM vector_{generation} WHERE chunk > ? ORDER BY chunk LIMIT ?"
    return IntegrityScan(VECTOR_UNUSABLE, sql, SLICE, lambda found: _unusable(found, dimensions), generation)


_KEPT: Final = 200


class BreachTable(Table):
    """The table of faults that the integrity checks found ("breaches"), with the times when they
    were found and repaired.
    """

    def note(self, breach: Breach) -> None:
        """Record a fault. While it is not repaired, the same fault has only one row, with the
        largest number of wrong rows.
        """
        sql = """INSERT INTO breach (what, rows, found_at, healed_at) VALUES (?, ?, ?, ?)
                 ON CONFLICT (what) WHERE healed_at IS NULL DO UPDATE SET rows = max(rows, excluded.rows)"""
        self._rows(sql, (breach.what, breach.rows, breach.found_at, breach.healed_at))
        sql = "DELETE FROM breach WHERE id <= (SELECT max(id) FROM breach) - ? AND healed_at IS NOT NULL"
        self._rows(sql, (_KEPT,))

    def settle(self, what: Sequence[str], *, now: float) -> None:
        sql = f"UPDATE breach SET healed_at = ? WHERE healed_at IS NULL AND what {AMONG}"
        self._rows(sql, (now, json.dumps(list(what))))

    def list_breaches(self, *, limit: int) -> list[Breach]:
        """Return up to `limit` recorded faults, newest first."""
        sql = "SELECT what, rows, found_at, healed_at FROM breach ORDER BY id DESC LIMIT ?"
        return [Breach(*row) for row in self._rows(sql, (limit,))]


class MarkTable(Table):
    """Named numbers of the maintenance: times and flags."""

    def find(self, name: str) -> float:
        """Return the number stored under a name, or 0 if there is none."""
        return float(self._one("SELECT value FROM mark WHERE name = ?", (name,)) or 0.0)

    def confirm_clock(self, now: float) -> float:
        """Record the clock's time; return the latest time that two checks, at least a day apart,
        have confirmed. Return 0 before the second check.

        Only data older than that time is removed for good. So a clock that is months ahead for a
        minute causes no loss.
        """
        seen = self.find(CLOCK_SEEN)
        if now < seen:
            self.put(CLOCK_CONFIRMED, min(self.find(CLOCK_CONFIRMED), now))
        elif now - seen >= APART_S:
            self.put(CLOCK_CONFIRMED, seen)
        if now < seen or now - seen >= APART_S:
            self.put(CLOCK_SEEN, now)
        return self.find(CLOCK_CONFIRMED)

    def names_with_prefix(self, beginning: str) -> list[str]:
        """Return the names that begin with this prefix, in order."""
        sql = "SELECT name FROM mark WHERE name >= ? AND substr(name, 1, ?) = ? ORDER BY name"
        return [name for (name,) in self._rows(sql, (beginning, len(beginning), beginning))]

    def remove(self, name: str) -> None:
        self._rows("DELETE FROM mark WHERE name = ?", (name,))

    def put(self, name: str, value: float) -> None:
        self._rows("INSERT OR REPLACE INTO mark (name, value) VALUES (?, ?)", (name, value))
