"""What was and what is left of it, as SQL: revisions, clashes, deleted documents."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.store.rows import RevisionEntry

Rows = Callable[[str, Sequence[Any]], list[Any]]


def revisions(rows: Rows, document: int, *, limit: int) -> list[RevisionEntry]:
    """The newest revisions of a document, newest first."""
    sql = """SELECT number, hash, author, created_at, text IS NULL, clash, bytes, CASE WHEN bytes IS NULL THEN text END
             FROM revision WHERE document = ? ORDER BY number DESC LIMIT ?"""
    return [_entry(row) for row in rows(sql, (document, limit))]


def _entry(row: tuple[Any, ...]) -> RevisionEntry:
    number, content_hash, author, created_at, deleted, clash, size, packed = row
    if packed is not None:  # written before sizes were kept
        size = len(zlib.decompress(packed))
    return RevisionEntry(number, content_hash, author, created_at, bool(deleted), bool(clash), size or 0)


def clashing(rows: Rows, projects: frozenset[str] | None, *, limit: int) -> list[tuple[str, str, int]]:
    """(project, path, revision) of the documents that hold a clash, by name."""
    sql = "SELECT p.name, d.path, d.revision FROM document d JOIN project p ON p.id = d.project WHERE d.clash AND NOT d.deleted"
    values: list[Any] = []
    if projects is not None:
        sql += " AND p.name IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(sorted(projects)))
    return [(row[0], row[1], row[2]) for row in rows(f"{sql} ORDER BY p.name, d.path LIMIT ?", (*values, limit))]


def deleted_paths(rows: Rows, project: str, *, limit: int) -> list[str]:
    """The memory files that were deleted and can come back, the last one first."""
    sql = """SELECT d.path FROM document d JOIN project p ON p.id = d.project
             WHERE p.name = ? AND d.deleted AND d.source = 'memory' AND EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id)
             ORDER BY d.updated_at DESC, d.path LIMIT ?"""
    return [path for (path,) in rows(sql, (project, limit))]


def forget_deleted(rows: Rows, before: float, *, limit: int) -> int:
    """Removes the revisions of documents that were deleted before a moment (seconds since 1970); of how many.

    The document's row stays, without a text or a hash: it holds the number of the newest revision, and one that a machine remembers from
    before must not come to mean another text.
    """
    sql = """SELECT d.id FROM document d WHERE d.deleted AND d.updated_at < ?
             AND EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id) ORDER BY d.updated_at LIMIT ?"""
    found = [identity for (identity,) in rows(sql, (before, limit))]
    rows("DELETE FROM revision WHERE document IN (SELECT value FROM json_each(?))", (json.dumps(found),))
    return len(found)
