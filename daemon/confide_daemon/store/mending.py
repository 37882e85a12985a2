"""How each breach of `store.health` is put right, as SQL, in steps that let other writes and searches go on between them.

What is derived and cannot be repaired is dropped, and made again by what makes it anyway: missing vectors are the indexer's queue, and a
document whose `chunking` is NULL is cut again.
"""

# ruff: noqa: S608 - only names and numbers of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confide_daemon.errors import DamagedError
from confide_daemon.store import breaches, health, recovery
from confide_daemon.store.connection import migrations
from confide_daemon.store.health import MIRRORS, RECORDS, SLICE, TEXTS
from confide_daemon.store.rows import Breach, Healed

Rows = Callable[[str, Sequence[Any]], list[Any]]
Remove = Callable[[Sequence[int]], None]


def heal(rows: Rows, remove: Remove) -> Healed:
    """All that a health.glance finds, put right at once."""
    found = health.glance(rows)
    done = {breach.what: 0 for breach in found}
    for what in done:
        while count := mend(rows, remove, what, limit=SLICE):
            done[what] += count
    words = done.get(health.KEYWORD_MISSING, 0) + done.get(health.KEYWORD_SURPLUS, 0)
    return Healed(words, done.get(health.VECTOR_SURPLUS, 0))


def mend(rows: Rows, remove: Remove, what: str, *, limit: int) -> int:
    """Puts some of a breach right; of how many, 0 when no more can be done.

    Args:
        remove: drops pieces with all that is derived from them.

    Raises:
        DamagedError: it takes a salvage.
    """
    if what == health.PAGES:
        raise DamagedError("cannot repair the database: a part of it cannot be read")
    mender = _MENDERS.get(what)
    return mender(rows, remove, limit) if mender else 0


def _found(rows: Rows, what: str, limit: int) -> list[int]:
    select = health.selects(rows).get(what)
    return [identity for (identity,) in rows(f"SELECT id FROM ({select}) LIMIT ?", (limit,))] if select else []


def _mend_keyword_missing(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.KEYWORD_MISSING, limit)
    sql = """SELECT c.id, d.path, c.heading, c.text, d.words FROM chunk c JOIN document d ON d.id = c.document
             WHERE c.id IN (SELECT value FROM json_each(?))"""
    pieces = rows(sql, (json.dumps(found),))
    for mirror in MIRRORS:
        mirror.remove(rows, found)
        for piece in pieces:
            mirror.add(rows, *piece)
    return len(pieces)


def _mend_keyword_surplus(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.KEYWORD_SURPLUS, limit)
    for mirror in MIRRORS:
        mirror.remove(rows, found)
    return len(found)


def _mend_keyword_broken(rows: Rows, _remove: Remove, _limit: int) -> int:
    """Empty tables in place of all; their rows are missing then, and come back piece by piece."""
    broken = [one for one in MIRRORS if not health.has_background(rows, one) or health.check_table(rows, one.table)]
    for mirror in broken:
        rows(f"DROP TABLE IF EXISTS {mirror.table}", ())
        _lay_out(rows, mirror.table)
    return len(broken)


def _lay_out(rows: Rows, table: str) -> None:
    """The table as the newest migration that speaks of it makes it, its background rows included."""
    whole = "\n".join(sql for _, sql in migrations())
    for pattern in (rf"^CREATE VIRTUAL TABLE {table} .*?;$", rf"^WITH RECURSIVE[^;]*?INSERT INTO {table} .*?;$"):
        statements = re.findall(pattern, whole, re.MULTILINE | re.DOTALL)
        rows(statements[-1], ())


def _mend_vector_surplus(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.VECTOR_SURPLUS, limit)
    for generation in health.with_tables(rows):
        rows(f"DELETE FROM vector_{generation} WHERE chunk IN (SELECT value FROM json_each(?))", (json.dumps(found),))
    return len(found)


def _mend_vectors(rows: Rows, _remove: Remove, _limit: int) -> int:
    """Drops every health.unusable vector, and those of equal texts: they may come from the same one."""
    dropped = 0
    for generation, dimensions in health.with_tables(rows).items():
        after: int | None = 0
        while after is not None:
            sql = f"SELECT chunk, embedding FROM vector_{generation} WHERE chunk > ? ORDER BY chunk LIMIT ?"
            found = rows(sql, (after, SLICE))
            wrong = json.dumps(health.unusable(found, dimensions))
            gone = rows(
                f"""DELETE FROM vector_{generation} WHERE chunk IN (SELECT value FROM json_each(?1)) OR chunk IN
                    (SELECT id FROM chunk WHERE hash IN (SELECT hash FROM chunk WHERE id IN (SELECT value FROM json_each(?1))))
                    RETURNING chunk""",
                (wrong,),
            )
            dropped += len(gone)
            after = found[-1][0] if found else None
    return dropped


def _mend_tables(rows: Rows, _remove: Remove, _limit: int) -> int:
    lacking, stray = health.tableless(rows), health.stray_tables(rows)
    for identity in lacking:
        rows("DELETE FROM generation WHERE id = ?", (identity,))
    # With the generations gone, what is left of their tables belongs to none.
    for table in health.stray_tables(rows):
        rows(f"DROP TABLE {table}", ())
    return len(lacking) + len(stray)


def _mend_cache(rows: Rows, _remove: Remove, _limit: int) -> int:
    dropped, after = 0, 0
    while found := rows("SELECT id, vector, model FROM vector_cache WHERE id > ? ORDER BY id LIMIT ?", (after, SLICE)):
        wrong = health.unusable_cached(found)
        rows("DELETE FROM vector_cache WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(wrong),))
        dropped, after = dropped + len(wrong), found[-1][0]
    return dropped


def _mend_pieces_surplus(rows: Rows, remove: Remove, limit: int) -> int:
    found = _found(rows, health.PIECES_SURPLUS, limit)
    remove(found)
    return len(found)


def _mend_pieces_missing(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.PIECES_MISSING, limit)
    _cut_again(rows, found)
    return len(found)


def _mend_stale(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.PIECES_STALE, limit)
    _cut_again(rows, found)
    return len(found)


def _mend_pieces(rows: Rows, remove: Remove, _limit: int) -> int:
    """Drops them: a piece whose hash is that of the right text would be taken for unchanged when its document is cut again."""
    dropped, after = 0, 0
    while found := rows("SELECT id, hash, text, document FROM chunk WHERE id > ? ORDER BY id LIMIT ?", (after, SLICE)):
        wrong = [row for row in found if health.is_altered(row[1], row[2])]
        remove([row[0] for row in wrong])
        _cut_again(rows, sorted({row[3] for row in wrong}))
        dropped, after = dropped + len(wrong), found[-1][0]
    return dropped


def _mend_notes_missing(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.NOTES_MISSING, limit)
    _cut_again(rows, found)
    return len(found)


def _mend_notes_partial(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.NOTES_PARTIAL, limit)
    _cut_again(rows, found)
    return len(found)


def _mend_notes_surplus(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.NOTES_SURPLUS, limit)
    for table in ("note_relation", "note_tag", "note"):
        rows(f"DELETE FROM {table} WHERE document IN (SELECT value FROM json_each(?))", (json.dumps(found),))
    return len(found)


def _cut_again(rows: Rows, documents: Sequence[int]) -> None:
    sql = "UPDATE document SET chunking = NULL, cut_hash = NULL, pieces = NULL WHERE id IN (SELECT value FROM json_each(?))"
    rows(sql, (json.dumps(list(documents)),))


def _mend_parts(rows: Rows, _remove: Remove, limit: int) -> int:
    found = _found(rows, health.PARTS_SURPLUS, limit)
    rows("DELETE FROM transcript_part WHERE document IN (SELECT value FROM json_each(?))", (json.dumps(found),))
    return len(found)


def _mend_indexes(rows: Rows, _remove: Remove, _limit: int) -> int:
    broken = [table for (table,) in rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0", ())]
    broken = [
        table for table in broken if any(one.what == health.INDEX_BROKEN for one in health.check_table(rows, table))
    ]
    for table in broken:
        rows(f"REINDEX {table}", ())
    return len(broken)


def _mend_names(rows: Rows, _remove: Remove, limit: int) -> int:
    return recovery.name_again(rows, _found(rows, health.NAMES_LOST, limit))


def _mend_texts(rows: Rows, _remove: Remove, _limit: int) -> int:
    """From the pieces where they hold all of the text; else the document waits for a working copy that still has it."""
    mended = 0
    lost = [identity for (identity,) in rows(f"SELECT id FROM ({health.selects(rows)[health.TEXTS_LOST]})", ())]
    after: int | None = 0
    while after is not None:
        sql = """SELECT d.id, d.hash, r.text FROM document d JOIN revision r ON r.document = d.id AND r.number = d.revision
                 WHERE d.id > ? AND NOT d.deleted AND d.hash <> '' ORDER BY d.id LIMIT ?"""
        found = rows(sql, (after, TEXTS))
        lost += [row[0] for row in found if not health.is_text(row[1], row[2])]
        after = found[-1][0] if found else None
    for document in sorted(set(lost)):
        mended += recovery.text_again(rows, document)
    return mended


def _mend_records(rows: Rows, _remove: Remove, _limit: int) -> int:
    """What is listed of a record is read from it again; one that is none goes, so that a machine can store it once more."""
    mended, lost, after = 0, 0, 0
    while found := rows(health.RECORD_ROWS, (after, RECORDS)):
        for number, *row in found:
            if health.is_record(*row):
                continue
            known = health.record_in(row[-1])
            if known is None:
                rows("DELETE FROM sealed_record WHERE number = ?", (number,))
                lost += 1
            else:
                # Where its name is another row's by now, that one is as good.
                sql = "UPDATE OR REPLACE sealed_record SET id = ?, kind = ?, epoch = ? WHERE number = ?"
                rows(sql, (known.secret_id, known.kind, known.epoch, number))
                mended += 1
        after = found[-1][0]
    if lost:
        breaches.note(rows, Breach(health.LOST_ROWS, lost, time.time()))
    return mended + lost


_MENDERS: Final[dict[str, Callable[[Rows, Remove, int], int]]] = {
    health.KEYWORD_MISSING: _mend_keyword_missing,
    health.KEYWORD_SURPLUS: _mend_keyword_surplus,
    health.KEYWORD_BROKEN: _mend_keyword_broken,
    health.VECTOR_SURPLUS: _mend_vector_surplus,
    health.VECTOR_UNUSABLE: _mend_vectors,
    health.VECTOR_TABLES: _mend_tables,
    health.CACHE_UNUSABLE: _mend_cache,
    health.PIECES_SURPLUS: _mend_pieces_surplus,
    health.PIECES_MISSING: _mend_pieces_missing,
    health.PIECES_STALE: _mend_stale,
    health.PIECES_DAMAGED: _mend_pieces,
    health.NOTES_MISSING: _mend_notes_missing,
    health.NOTES_PARTIAL: _mend_notes_partial,
    health.NOTES_SURPLUS: _mend_notes_surplus,
    health.PARTS_SURPLUS: _mend_parts,
    health.INDEX_BROKEN: _mend_indexes,
    health.NAMES_LOST: _mend_names,
    health.TEXTS_LOST: _mend_texts,
    health.RECORDS_DAMAGED: _mend_records,
}
