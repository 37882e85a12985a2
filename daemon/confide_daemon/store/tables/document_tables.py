"""SQL for documents, their revisions, projects, transcripts, and the changes that devices identify
by an id.
"""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from confide_daemon.errors import DamagedError, SpaceFullError
from confide_daemon.store.database import AMONG, Table, within
from confide_daemon.store.rows import (
    ChangeRow,
    DocumentRow,
    Filter,
    ListedRow,
    OperationRow,
    Piece,
    ProjectRow,
    RevisionEntry,
    RevisionRow,
    SourceCount,
    TextOrigin,
    TranscriptRow,
)
from confide_daemon.store.tables.class_table import NOBODYS, lines_as_json
from confide_daemon.store.tables.keyword import condition_of
from confide_daemon.store.tables.receipt_table import NUMBERS
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import NOTES, TASKS, has_clash, source_of, text_hash
from confide_memory.tools.written_days import StatedDay, days_of_path

UNCUTTABLE: Final = "~"
"""Prefix of the `chunking` column for a document that cannot be cut into chunks; the reason
follows. It sorts after the names of all chunking settings.
"""
OPERATIONS_KEPT_S = 90 * 86400.0
"""Time for which a change is known by its id. A device that returns later does not send its waiting
changes by itself.
"""
_HOUR_S = 3600
_RECALLS_KEPT_H = 24 * 400
"""Somewhat more than the year that pages show: 9,600 rows for a project that is searched in every
hour of it.
"""

_DOCUMENT = """SELECT d.id, p.name, d.path, d.revision, d.hash, d.deleted, d.author, d.updated_at, d.source, d.day, d.chunking, d.clash,
    d.made, d.class FROM document d JOIN project p ON p.id = d.project"""
_PAIR = "SELECT min(a.id, b.id), max(a.id, b.id)"
_OF_NAMES = "FROM project a, project b WHERE a.name = ? AND b.name = ?"

_SORTS: Final = {
    "updated": "d.updated_at DESC, d.path",
    "path": "d.path",
    "size": "(SELECT coalesce(s.bytes, length(s.text), 0) FROM revision s WHERE s.document = d.id AND s.number = d.revision) DESC, d.path",
}
"""SQL orders of a list of documents (PROTOCOL.md 9)."""
_BELOW = "d.source = 'memory' AND (? = '' OR d.path = ? OR substr(d.path, 1, length(?) + 1) = ? || '/')"


def _below(path: str) -> tuple[str, str, str, str]:
    return path, path, path, path


def iso_day(moment: float) -> str:
    """Return the UTC day of a time given in seconds since 1970."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def _columns_of(stated: StatedDay | None, changed_at: float) -> tuple[str, str | None, float | None]:
    """Return the columns `day`, `last_day` and `moment` of a document that states these days."""
    if stated is None:
        return iso_day(changed_at), None, changed_at
    first, last = (day.isoformat() for day in stated.span)
    return first, last if last != first else None, stated.moment


def _names(projects: frozenset[str]) -> str:
    return json.dumps(sorted(projects))


class DocumentTable(Table):
    """Documents with their newest and earlier revisions."""

    def find(self, project: str, path: str) -> DocumentRow | None:
        """Return the document with this path, deleted or not; None if there never was one."""
        rows = self._rows(f"{_DOCUMENT} WHERE p.name = ? AND d.path = ?", (project, path))
        return _document(rows[0]) if rows else None

    def list_documents(self, projects: frozenset[str] | None) -> list[DocumentRow]:
        """Return all documents of the projects (None: all), ordered by project and path. Deleted
        documents are included.
        """
        where = "" if projects is None else f" WHERE p.name {AMONG}"
        values = () if projects is None else (_names(projects),)
        return [_document(row) for row in self._rows(f"{_DOCUMENT}{where} ORDER BY p.name, d.path", values)]

    def following(
        self, projects: frozenset[str] | None, after: tuple[str, str], *, sources: frozenset[str] | None, limit: int
    ) -> list[DocumentRow]:
        """Return up to `limit` documents after a given (project, path), in that order. Deleted
        documents are left out. `projects`, `sources`: only of these; None: of all.

        The cost depends on the size of the page, not on the number of documents.
        """
        first, path = after
        names = (
            str(name) for (name,) in self._rows("SELECT name FROM project WHERE name >= ? ORDER BY name", (first,))
        )
        wanted = "" if sources is None else f" AND d.source {AMONG}"
        sql = f"{_DOCUMENT} WHERE p.name = ? AND d.path > ? AND d.deleted = 0{wanted} ORDER BY d.path LIMIT ?"
        found: list[DocumentRow] = []
        for name in names:
            if projects is None or name in projects:
                above = path if name == first else ""
                values = () if sources is None else (_names(sources),)
                rows = self._rows(sql, (name, above, *values, limit - len(found)))
                found += map(_document, rows)
                if len(found) >= limit:
                    break
        return found

    def by_id(self, identities: Sequence[int]) -> list[DocumentRow]:
        return [
            _document(row) for row in self._rows(f"{_DOCUMENT} WHERE d.id {AMONG}", (json.dumps(list(identities)),))
        ]

    def filter_documents(self, documents: Sequence[int], allowed: Filter) -> list[int]:
        """Return the given documents that match the filter."""
        where, values = condition_of(self._rows, allowed)
        sql = f"""SELECT d.id FROM document d JOIN project p ON p.id = d.project
                  WHERE NOT d.deleted AND d.id {AMONG} AND {where}"""
        return [row[0] for row in self._rows(sql, (json.dumps(list(documents)), *values))]

    def counts(self, projects: frozenset[str] | None) -> dict[str, SourceCount]:
        sql = """SELECT d.source, count(DISTINCT d.id), count(c.id) FROM document d JOIN project p ON p.id = d.project
                 LEFT JOIN chunk c ON c.document = d.id WHERE d.deleted = 0"""
        reached, values = within("p.name", projects)
        return {row[0]: SourceCount(row[1], row[2]) for row in self._rows(f"{sql}{reached} GROUP BY d.source", values)}

    def has_transcripts(self) -> bool:
        """Return True if any transcript is stored that is not deleted. Every search calls this, so
        it must be fast.
        """
        sql = "SELECT 1 FROM document WHERE source = 'sessions' AND deleted = 0 LIMIT 1"
        return self._database.result_cache.get("transcripts", lambda: bool(self._rows(sql)))

    def count_uses(self, uses: Mapping[int, int], *, now: float) -> None:
        """Add to the counts of how often documents were read or shown, by document id. Call it in a
        write transaction.
        """
        for document, count in uses.items():
            self._rows(
                """INSERT INTO document_use (document, uses, used_at) SELECT id, ?, ? FROM document WHERE id = ?
                   ON CONFLICT (document) DO UPDATE SET uses = uses + excluded.uses, used_at = excluded.used_at""",
                (count, now, document),
            )
            self._rows(
                """INSERT INTO recall (hour, project, source, uses) SELECT ?, project, source, ? FROM document WHERE id = ?
                   ON CONFLICT (hour, project, source) DO UPDATE SET uses = uses + excluded.uses""",
                (int(now // _HOUR_S), count, document),
            )
        self._rows("DELETE FROM recall WHERE hour < ?", (int(now // _HOUR_S) - _RECALLS_KEPT_H,))

    def save(
        self, project: str, path: str, text: str | None, *, author: str, now: float, origin: TextOrigin = NOBODYS
    ) -> DocumentRow:
        """Store a new revision of the document; `text` None deletes the document. Raises
        SpaceFullError if the space has reached its quota.
        """
        if text is not None:
            self._require_room(project, path)
        content_hash = "" if text is None else text_hash(text)
        packed = None if text is None else zlib.compress(text.encode())
        clash = text is not None and source_of(path) == "memory" and has_clash(text)
        span = days_of_path(path)
        self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (project,))
        self._rows(
            """INSERT INTO document (project, path, revision, hash, deleted, author, updated_at, source, day, clash, made, class)
               SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM project WHERE name = ?
               ON CONFLICT (project, path) DO UPDATE SET revision = max(revision + 1, excluded.revision), hash = excluded.hash,
               deleted = excluded.deleted, author = excluded.author, updated_at = excluded.updated_at, day = excluded.day,
               clash = excluded.clash, made = excluded.made,
               class = excluded.class""",
            (
                path,
                self.number_behind(0),
                content_hash,
                text is None,
                author,
                now,
                source_of(path),
                span.first.isoformat() if span else iso_day(now),  # `date` says more, once the text is cut
                clash,
                origin.made,
                UNTRUSTED if origin.doubted else origin.made,
                project,
            ),
        )
        row = self.find(project, path)
        assert row is not None
        size = len((text or "").encode())
        self._rows(
            """INSERT INTO revision (document, number, hash, text, author, created_at, clash, bytes, by, made, doubted, class)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(row.id, row.revision, content_hash, packed, author, now, clash, size),
                *(origin.by, origin.made, lines_as_json(origin.doubted), row.class_),
            ),
        )
        return row

    def date(self, document: DocumentRow, stated: StatedDay | None, pieces: Sequence[Piece]) -> None:
        """Store the day or days that a document is about, and those that its chunks state.

        `stated`: the day stated in the document; None: it states none, and counts as of the day of
        its last change.
        """
        days = [piece.days for piece in pieces if piece.days is not None]
        both = f"{min(first for first, _ in days)} {max(last for _, last in days)}" if days else None
        sql = "UPDATE document SET day = ?, last_day = ?, moment = ?, piece_days = ? WHERE id = ?"
        self._rows(sql, (*_columns_of(stated, document.updated_at), both, document.id))

    def number_behind(self, revision: int) -> int:
        """Return the number for the revision after `revision` (0: for the first).

        After a restore from a backup, it skips all numbers that may have been used between the
        backup and the restore.
        """
        restores = self._one("SELECT restores FROM life ORDER BY number DESC LIMIT 1")
        return max(revision, int(restores or 0) * NUMBERS) + 1

    def _require_room(self, project: str, path: str) -> None:
        self._database.require_room()
        most = self._database.quota.documents
        # Ids only grow, so the count cannot have reached the limit before the ids do.
        if most and (self._one("SELECT max(id) FROM document") or 0) >= most:
            row = self.find(project, path)
            is_new = row is None or row.deleted
            if is_new and self._one("SELECT count(*) FROM document WHERE deleted = 0") >= most:
                raise SpaceFullError(f"it has {most:,} documents", "documents")

    def revision(self, document: int, number: int) -> RevisionRow | None:
        sql = "SELECT number, hash, text, author, created_at FROM revision WHERE document = ? AND number = ?"
        rows = self._rows(sql, (document, number))
        if not rows:
            return None
        found, content_hash, packed, author, created_at = rows[0]
        try:
            text = None if packed is None else zlib.decompress(packed).decode()
        except (zlib.error, UnicodeDecodeError):
            raise DamagedError(
                "the text of this revision is damaged", hint="confide history lists the others; a backup may have it"
            ) from None
        return RevisionRow(found, content_hash, text, author, created_at)

    def hash_at(self, document: int, number: int) -> str | None:
        """Return the hash of a revision's text; "" if the revision is a deletion, None if it does
        not exist.
        """
        rows = self._rows("SELECT hash FROM revision WHERE document = ? AND number = ?", (document, number))
        return str(rows[0][0]) if rows else None

    def number_of(self, document: int, content: str) -> int:
        """Return the number of the newest revision whose text has this hash (`content`), or 0 if
        none has.
        """
        sql = "SELECT coalesce(max(number), 0) FROM revision WHERE document = ? AND hash = ? AND text IS NOT NULL"
        return int(self._rows(sql, (document, content))[0][0])

    def newest_until(self, document: int, *, below: int, moment: float) -> int:
        """Return the number of the newest revision before `below` that was made at or before
        `moment` (seconds since 1970), or 0 if there is none.
        """
        sql = "SELECT max(number) FROM revision WHERE document = ? AND number < ? AND created_at <= ?"
        return int(self._one(sql, (document, below, moment)) or 0)

    def newest_of(self, document: int, hashes: Collection[str], *, after: int, author: str | None = None) -> int:
        """Return the number of the newest revision after `after` whose text has one of these
        hashes, or 0 if there is none. `author` None: of any author.
        """
        if not hashes:
            return 0
        by = "" if author is None else " AND author = ?"
        sql = f"SELECT max(number) FROM revision WHERE document = ? AND number > ? AND hash {AMONG}{by}"
        values = (document, after, json.dumps(list(hashes)), *(() if author is None else (author,)))
        return self._rows(sql, values)[0][0] or 0

    def revisions(self, document: int, *, limit: int) -> list[RevisionEntry]:
        """Return up to `limit` revisions of a document, newest first, without their texts."""
        sql = """SELECT r.number, r.hash, r.author, r.created_at, r.text IS NULL, r.clash, r.bytes,
                 coalesce(r.class, d.made_before, 'untrusted'), CASE WHEN r.bytes IS NULL THEN r.text END
                 FROM revision r JOIN document d ON d.id = r.document WHERE r.document = ? ORDER BY r.number DESC LIMIT ?"""
        return [_entry(row) for row in self._rows(sql, (document, limit))]

    def before(self, document: int, number: int) -> int:
        """Return the number of the revision before this one, or 0 if it is the first. Numbers may
        have gaps.
        """
        return int(
            self._one("SELECT max(number) FROM revision WHERE document = ? AND number < ?", (document, number)) or 0
        )

    def drop_revision(self, document: int, number: int) -> None:
        """Delete a revision that is not the newest, as when its text is only the beginning of the
        next one's.
        """
        self._rows("DELETE FROM revision WHERE document = ? AND number = ?", (document, number))

    def drop_revisions(self, document: int, *, below: int) -> None:
        """Delete all revisions of a document below this number."""
        self._rows("DELETE FROM revision WHERE document = ? AND number < ?", (document, below))

    def clashing(self, projects: frozenset[str] | None, *, limit: int) -> list[tuple[str, str, int]]:
        """Return (project, path, revision) of documents whose text contains a conflict, ordered by
        project and path.
        """
        sql = "SELECT p.name, d.path, d.revision FROM document d JOIN project p ON p.id = d.project WHERE d.clash AND NOT d.deleted"
        reached, values = within("p.name", projects)
        found = self._rows(f"{sql}{reached} ORDER BY p.name, d.path LIMIT ?", (*values, limit))
        return [(row[0], row[1], row[2]) for row in found]

    def page(self, project: str, *, below: str, limit: int, offset: int = 0, sort: str = "updated") -> list[ListedRow]:
        """Return a page of a project's memory documents. Deleted documents are left out.

        Args:
            below: a path, or the folder that contains the documents; "" for all.
            limit: the number of documents on the page.
            offset: the number of documents before the page.
            sort: the order, a key of `_SORTS`.
        """
        order = _SORTS[sort]
        # The short rows of documents select the page; their details are read for its documents
        # only.
        sql = f"""WITH last AS MATERIALIZED (SELECT d.id FROM document d JOIN project p ON p.id = d.project
                  WHERE p.name = ? AND NOT d.deleted AND {_BELOW} ORDER BY {order} LIMIT ? OFFSET ?)
                  SELECT d.id, d.path, d.revision, d.author, d.updated_at, d.clash, coalesce(r.bytes, length(r.text), 0), n.id, n.title,
                  d.class FROM last CROSS JOIN document d ON d.id = last.id JOIN revision r ON r.document = d.id AND r.number = d.revision
                  LEFT JOIN note n ON n.document = d.id ORDER BY {order}"""
        rows = self._rows(sql, (project, *_below(below), limit, offset))
        return [ListedRow(*row) for row in rows]

    def page_at(
        self, project: str, *, below: str, moment: float, limit: int, offset: int
    ) -> tuple[list[tuple[ListedRow, bool]], int]:
        """Return a page of a project's memory as it was at `moment` (seconds since 1970), ordered
        by path, and the total number of documents. Each document has True beside it if its text is
        the same today.
        """
        sql = f"""WITH past AS MATERIALIZED (SELECT d.id, (SELECT max(number) FROM revision WHERE document = d.id
                    AND created_at <= ?) AS number FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND {_BELOW})
                  SELECT d.id, d.path, r.number, r.author, r.created_at, r.clash, coalesce(r.bytes, length(r.text), 0), n.id, n.title,
                  coalesce(r.class, d.made_before, 'untrusted'), NOT d.deleted AND r.hash = d.hash, count(*) OVER ()
                  FROM past JOIN document d ON d.id = past.id JOIN revision r ON r.document = past.id AND r.number = past.number
                  LEFT JOIN note n ON n.document = d.id WHERE r.text IS NOT NULL ORDER BY d.path LIMIT ? OFFSET ?"""
        rows = self._rows(sql, (moment, project, *_below(below), limit, offset))
        total = int(rows[0][-1]) if rows else offset
        return [(ListedRow(*row), bool(is_current)) for *row, is_current, _ in rows], total

    def count_lost(self, project: str, *, below: str, since: float) -> int:
        """Count the memory documents that were deleted at or after `since` (seconds since 1970) and
        can no longer be restored, since their revisions were removed.
        """
        sql = f"""SELECT count(*) FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND d.deleted
                  AND d.updated_at >= ? AND {_BELOW} AND NOT EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id)"""
        return int(self._rows(sql, (project, since, *_below(below)))[0][0])

    def newest_files(self, project: str, *, limit: int) -> list[DocumentRow]:
        """Return up to `limit` files in `memory/`, last changed first. Notes and wholly untrusted
        files are left out.
        """
        sql = f"""{_DOCUMENT} WHERE p.name = ? AND d.path >= 'memory/' AND d.path < 'memory0' AND NOT d.deleted
                  AND substr(d.path, 1, {len(NOTES)}) <> '{NOTES}' AND substr(d.path, 1, {len(TASKS)}) <> '{TASKS}'
                  AND d.made <> 'untrusted' ORDER BY d.updated_at DESC, d.path LIMIT ?"""
        return [_document(row) for row in self._rows(sql, (project, limit))]

    def count_below(self, project: str, *, below: str, before: str | None = None) -> int:
        """Count the documents that `page` would return without a limit. `before`: only those whose
        paths sort before it; None: all.
        """
        sql = f"""SELECT count(*) FROM document d JOIN project p ON p.id = d.project
                  WHERE p.name = ? AND NOT d.deleted AND {_BELOW}"""
        values: tuple[str, ...] = (project, *_below(below))
        if before is not None:
            sql, values = f"{sql} AND d.path < ?", (*values, before)
        return int(self._rows(sql, values)[0][0])

    def folders(self, project: str, *, below: str, limit: int) -> list[tuple[str, int]]:
        """Return the folders directly within the folder `below`, ordered by name: (path, number of
        documents at any depth).
        """
        prefix = f"{below}/" if below else ""
        sql = f"""SELECT substr(rest, 1, instr(rest, '/') - 1), count(*) FROM
                  (SELECT substr(d.path, ?) AS rest FROM document d JOIN project p ON p.id = d.project
                  WHERE p.name = ? AND NOT d.deleted AND {_BELOW}) WHERE instr(rest, '/') > 0 GROUP BY 1 ORDER BY 1 LIMIT ?"""
        found = self._rows(sql, (len(prefix) + 1, project, *_below(below), limit))
        return [(f"{prefix}{name}", number) for name, number in found]

    def changes(
        self, project: str, *, below: str, since: float, limit: int, until: float = float("inf")
    ) -> list[ChangeRow]:
        """Return up to `limit` revisions of a project's memory made between two times (seconds
        since 1970), newest first.
        """
        if until != float("inf"):
            sql = f"""SELECT r.document, d.path, r.number, r.author, r.created_at, r.text IS NULL, r.clash,
                      coalesce(r.bytes, length(r.text), 0), r.change, n.id FROM document d JOIN project p ON p.id = d.project
                      JOIN revision r ON r.document = d.id LEFT JOIN note n ON n.document = d.id
                      WHERE p.name = ? AND d.updated_at >= ? AND r.created_at BETWEEN ? AND ? AND {_BELOW}
                      ORDER BY r.created_at DESC, r.change DESC LIMIT ?"""
            rows = self._rows(sql, (project, since, since, until, *_below(below), limit))
            return [ChangeRow(*row) for row in rows]
        # The newest revisions belong to the last changed documents, and rows of documents are
        # short.
        sql = f"""WITH last AS MATERIALIZED (SELECT d.id, d.path FROM document d JOIN project p ON p.id = d.project
                  WHERE p.name = ? AND d.updated_at >= ? AND {_BELOW} ORDER BY d.updated_at DESC LIMIT ?)
                  SELECT r.document, last.path, r.number, r.author, r.created_at, r.text IS NULL, r.clash,
                  coalesce(r.bytes, length(r.text), 0), r.change, n.id FROM last JOIN revision r ON r.document = last.id
                  LEFT JOIN note n ON n.document = last.id WHERE r.created_at >= ? ORDER BY r.created_at DESC, r.change DESC LIMIT ?"""
        rows = self._rows(sql, (project, since, *_below(below), limit, since, limit))
        return [ChangeRow(*row) for row in rows]

    def changes_after(self, project: str, *, below: str, after: int, since: float, limit: int) -> list[ChangeRow]:
        """Return documents of a project's memory that have changed after change number `after` and
        at or after `since` (seconds since 1970). Each appears once, with its newest revision, in
        the order of changes.
        """
        sql = f"""SELECT r.document, d.path, r.number, r.author, r.created_at, r.text IS NULL, r.clash,
                  coalesce(r.bytes, length(r.text), 0), r.change, n.id FROM revision r JOIN document d ON d.id = r.document
                  JOIN project p ON p.id = d.project LEFT JOIN note n ON n.document = d.id
                  WHERE r.change > ? AND r.number = d.revision AND r.created_at >= ? AND p.name = ? AND {_BELOW}
                  ORDER BY r.change LIMIT ?"""
        return [ChangeRow(*row) for row in self._rows(sql, (after, since, project, *_below(below), limit))]

    def deleted_paths(self, project: str, *, limit: int) -> list[str]:
        """Return the paths of up to `limit` deleted memory files that can be restored, last deleted
        first.
        """
        sql = """SELECT d.path FROM document d JOIN project p ON p.id = d.project
                 WHERE p.name = ? AND d.deleted AND d.source = 'memory' AND EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id)
                 ORDER BY d.updated_at DESC, d.path LIMIT ?"""
        return [path for (path,) in self._rows(sql, (project, limit))]

    def deleted_files(self, project: str) -> list[str]:
        """Return the paths of all deleted documents of a project, even of those that can no longer
        be restored.
        """
        sql = "SELECT d.path FROM document d JOIN project p ON p.id = d.project WHERE d.deleted AND p.name = ?"
        return [path for (path,) in self._rows(sql, (project,))]

    def deleted_notes(self, projects: frozenset[str] | None, *, limit: int) -> list[DocumentRow]:
        """Return up to `limit` deleted notes that can be restored, last deleted first. `projects`
        None: of all projects.
        """
        where = "d.deleted AND (d.path GLOB 'memory/notes/?*' OR d.path GLOB 'memory/tasks/?*/?*')"
        where += " AND EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id)"
        reached, values = within("p.name", projects)
        sql = f"{_DOCUMENT} WHERE {where}{reached} ORDER BY d.updated_at DESC, d.id DESC LIMIT ?"
        return [_document(row) for row in self._rows(sql, (*values, limit))]

    def forget_deleted(self, before: float, *, limit: int) -> int:
        """Remove the texts of up to `limit` documents that were deleted before a time (seconds
        since 1970). Return the number of these documents.

        The row of each document stays, without text or hash. It keeps the number of the newest
        revision, so that a number which a device remembers never identifies another text.
        """
        sql = """SELECT d.id FROM document d WHERE d.deleted AND d.updated_at < ?
                 AND EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id) ORDER BY d.updated_at LIMIT ?"""
        found = [identity for (identity,) in self._rows(sql, (before, limit))]
        for table in ("revision", "doubted_text", "trusted_text"):
            self._rows(f"DELETE FROM {table} WHERE document {AMONG}", (json.dumps(found),))
        return len(found)

    def drop_texts(self, document: int) -> None:
        """Remove all revisions of a document for good, and their hashes in other tables. The row of
        the document stays, as in `forget_deleted`.
        """
        texts = "SELECT hash FROM revision WHERE document = ?1"
        for column in ("hash", "previous"):
            self._rows(f"UPDATE operation SET asked = '', {column} = '' WHERE {column} IN ({texts})", (document,))
        for table in ("revision", "doubted_text", "trusted_text", "document_use"):
            self._rows(f"DELETE FROM {table} WHERE document = ?", (document,))

    def leave_uncut(self, document: int, *, chunking: str) -> None:
        """Mark a document as cut with these chunking settings, although it keeps its old chunks:
        its text is lost.
        """
        self._rows("UPDATE document SET chunking = ?, pieces = NULL WHERE id = ?", (chunking, document))

    def documents_to_cut(self, chunking: str, *, limit: int) -> list[DocumentRow]:
        """Return up to `limit` documents to cut into chunks: those without chunks, or with chunks
        made by other settings than `chunking`. Deleted documents and those that cannot be cut are
        left out.
        """
        # Every step of the indexer runs this, so it searches ranges of an index instead of scanning
        # it.
        some = "SELECT id FROM document INDEXED BY document_cut WHERE deleted = 0 AND chunking"
        behind = f"{some} > ? AND chunking < '{UNCUTTABLE}'"
        sql = f"{_DOCUMENT} WHERE d.id IN ({some} IS NULL UNION ALL {some} < ? UNION ALL {behind} LIMIT ?)"
        return [_document(row) for row in self._rows(sql, (chunking, chunking, limit))]

    def documents_without_current_chunks(self, chunking: str, *, limit: int) -> list[DocumentRow]:
        """Return up to `limit` documents whose chunks were not made from their newest text. Deleted
        documents and those that cannot be cut are left out.
        """
        some = "SELECT id FROM document INDEXED BY document_cut WHERE deleted = 0 AND chunking"
        stale = f"cut_hash IS NOT hash AND chunking < '{UNCUTTABLE}'"
        other = f"{some} < ? AND {stale} UNION ALL {some} > ? AND {stale}"
        sql = f"{_DOCUMENT} WHERE d.id IN ({some} IS NULL UNION ALL {other} LIMIT ?)"
        return [_document(row) for row in self._rows(sql, (chunking, chunking, limit))]

    def has_own_pieces(self, document: int) -> bool:
        """Return True if the document's chunks were made from its newest text, with whatever
        chunking settings.
        """
        return bool(self._one("SELECT cut_hash = hash FROM document WHERE id = ?", (document,)))

    def note_uncuttable(self, document: int, why: str) -> None:
        """Record that a document cannot be cut into chunks. `why`: a word for the reason that
        reveals nothing of the text.
        """
        self._rows("UPDATE document SET chunking = ?, pieces = NULL WHERE id = ?", (f"{UNCUTTABLE}{why}", document))

    def uncuttable(self, *, after: int, limit: int) -> list[DocumentRow]:
        """Return up to `limit` documents that could not be cut at the last attempt, with ids above
        `after`. Deleted documents are left out.
        """
        some = f"SELECT id FROM document INDEXED BY document_cut WHERE deleted = 0 AND chunking >= '{UNCUTTABLE}'"
        sql = f"{_DOCUMENT} WHERE d.id IN ({some}) AND d.id > ? ORDER BY d.id LIMIT ?"
        return [_document(row) for row in self._rows(sql, (after, limit))]

    def count_uncuttable(self) -> dict[str, int]:
        """Return how many documents cannot be cut into chunks, by reason. Deleted documents are
        left out.
        """
        sql = f"""SELECT substr(chunking, 2), count(*) FROM document INDEXED BY document_cut
                  WHERE deleted = 0 AND chunking >= '{UNCUTTABLE}' GROUP BY chunking"""
        return dict(self._rows(sql))


def _document(row: tuple[Any, ...]) -> DocumentRow:
    identity, project, path, revision, content, deleted, *rest, clash, made, class_ = row
    values = (identity, project, path, revision, content, bool(deleted), *rest, bool(clash), made, class_)
    return DocumentRow(*values)


def _entry(row: tuple[Any, ...]) -> RevisionEntry:
    number, content_hash, author, created_at, deleted, clash, size, class_, packed = row
    if packed is not None:  # written before sizes were kept
        size = len(zlib.decompress(packed))
    return RevisionEntry(number, content_hash, author, created_at, bool(deleted), bool(clash), size or 0, class_)


class ProjectTable(Table):
    """The projects of a space and the links between them."""

    def list_projects(
        self, names: frozenset[str] | None, sources: frozenset[str] | None, *, limit: int
    ) -> list[ProjectRow]:
        """Return up to `limit` projects that have documents, last changed first. `names`,
        `sources`: only these projects, and only documents of these sources; None: all.
        """
        reached, values = "", []
        if names is not None:
            reached, values = f" AND project IN (SELECT id FROM project WHERE name {AMONG})", [_names(names)]
        chosen, more = within("source", sources)
        # Grouping in the order of the index takes half the time of sorting.
        sql = f"""SELECT p.name, files, changed_at FROM (SELECT project, count(*) files, max(updated_at) changed_at FROM document
                  WHERE NOT deleted{reached}{chosen} GROUP BY project) JOIN project p ON p.id = project
                  ORDER BY changed_at DESC, p.name LIMIT ?"""
        return [ProjectRow(*row) for row in self._rows(sql, (*values, *more, limit))]

    def names(self) -> list[str]:
        """Return the names of the projects that have documents; deleted ones do not count."""
        sql = "SELECT p.name FROM project p WHERE EXISTS (SELECT 1 FROM document d WHERE d.project = p.id AND NOT d.deleted)"
        return [row[0] for row in self._rows(sql + " ORDER BY p.name")]

    def links(self) -> list[tuple[str, str]]:
        sql = (
            "SELECT a.name, b.name FROM project_link l JOIN project a ON a.id = l.one JOIN project b ON b.id = l.other"
        )
        return [(row[0], row[1]) for row in self._rows(f"{sql} ORDER BY a.name, b.name")]

    def add_link(self, one: str, other: str, *, now: float) -> None:
        """Link two projects, which need not have documents yet."""
        for name in (one, other):
            self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
        self._rows(f"INSERT INTO project_link {_PAIR}, ? {_OF_NAMES} ON CONFLICT DO NOTHING", (now, one, other))

    def remove_link(self, one: str, other: str) -> None:
        """Remove the link between two projects, if it exists."""
        self._rows(f"DELETE FROM project_link WHERE (one, other) IN ({_PAIR} {_OF_NAMES})", (one, other))


class OperationTable(Table):
    """Changes recorded by the id that the device gave them, so that a retry does not repeat a
    change.
    """

    def find(self, identity: str) -> OperationRow | None:
        """Return the change recorded with this id, or None if there is none within the last
        `OPERATIONS_KEPT_S` seconds.
        """
        sql = "SELECT id, asked, revision, hash, previous, lines FROM operation WHERE id = ?"
        found = self._rows(sql, (identity,))
        return OperationRow(*found[0]) if found else None

    def add(self, row: OperationRow, *, now: float) -> None:
        """Record a change in the transaction that makes it. Records that are too old are removed."""
        confirmed = "(SELECT value FROM mark WHERE name = 'clock_confirmed')"
        self._rows(f"DELETE FROM operation WHERE done_at < {confirmed} - ?", (OPERATIONS_KEPT_S,))
        sql = "INSERT INTO operation (id, asked, revision, hash, previous, lines, done_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._rows(sql, (row.id, row.asked, row.revision, row.hash, row.previous, row.lines, now))


_COLUMNS = 't.id, p.name, t.agent, t.session, t.version, t."offset", t.head, t.mark, t.forgotten'


class TranscriptTable(Table):
    """How far each session's transcript is stored, and the documents that hold it."""

    def find(self, project: str, agent: str, session: str) -> TranscriptRow | None:
        """Return how far a session's transcript is stored, or None if the session is unknown."""
        sql = f"""SELECT {_COLUMNS} FROM transcript t JOIN project p ON p.id = t.project
                  WHERE p.name = ? AND t.agent = ? AND t.session = ?"""
        found = self._rows(sql, (project, agent, session))
        if not found:
            return None
        return replace(TranscriptRow(*found[0]), forgotten=bool(found[0][-1]))

    def save(self, row: TranscriptRow, *, now: float) -> int:
        """Store how far a session's transcript is stored, in the transaction that adds its
        messages; return the id of the transcript.
        """
        self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (row.project,))
        sql = """INSERT INTO transcript (project, agent, session, version, "offset", head, mark, forgotten, updated_at)
                 SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM project WHERE name = ?
                 ON CONFLICT (project, agent, session) DO UPDATE SET version = excluded.version, "offset" = excluded."offset",
                 head = excluded.head, mark = excluded.mark, forgotten = excluded.forgotten, updated_at = excluded.updated_at
                 RETURNING id"""
        values = (row.agent, row.session, row.version, row.offset, row.head, row.mark, row.forgotten, now, row.project)
        return int(self._rows(sql, values)[0][0])

    def sessions(self, project: str) -> list[tuple[str, str]]:
        """Return (agent, session) of all sessions of a project whose transcripts may be stored
        here.
        """
        sql = """SELECT t.agent, t.session FROM transcript t JOIN project p ON p.id = t.project
                 WHERE p.name = ? AND NOT t.forgotten"""
        return [(agent, session) for agent, session in self._rows(sql, (project,))]

    def parts(self, transcript: int) -> list[str]:
        """Return the paths of the documents that hold a transcript, in order."""
        sql = """SELECT d.path FROM transcript_part t JOIN document d ON d.id = t.document
                 WHERE t.transcript = ? ORDER BY t.position"""
        return [path for (path,) in self._rows(sql, (transcript,))]

    def add_part(self, transcript: int, document: int) -> None:
        """Append a document to those that hold a transcript."""
        sql = """INSERT INTO transcript_part (document, transcript, position)
                 SELECT ?, ?, coalesce(max(position), 0) + 1 FROM transcript_part WHERE transcript = ?"""
        self._rows(sql, (document, transcript, transcript))

    def drop_parts(self, transcript: int) -> None:
        """Detach all documents from a transcript; the documents themselves stay."""
        self._rows("DELETE FROM transcript_part WHERE transcript = ?", (transcript,))
