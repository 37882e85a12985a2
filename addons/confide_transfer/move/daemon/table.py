"""The SQL of a move: reads and writes revisions with their author and time, and the data of a space
that is not text.

Derived data is not moved, since the target computes chunks, vectors and notes from the texts.
"""

# ruff: noqa: S608 - only words of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
from typing import Final

from confide_daemon.store.database import Table
from confide_daemon.store.rows import TextOrigin
from confide_daemon.store.tables.class_table import lines_as_json, lines_in
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import has_clash, source_of
from confide_memory.tools.written_days import days_of_path
from confide_transfer.move.shared.moved import MovedDocument, MovedLink, MovedRevision, MovedSession

_MICRO: Final = 1_000_000
_REVISIONS: Final = """FROM revision r JOIN document d ON d.id = r.document JOIN project p ON p.id = d.project"""
_NAMED: Final = "FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND d.path = ?"
_BARE: Final = "NOT EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id)"


def micros(seconds: float) -> int:
    """Convert seconds to whole microseconds. Dividing the result by a million gives exactly the
    same float.
    """
    return round(seconds * _MICRO)


class MovingTable(Table):
    """Reads and writes the rows of a space in pages, each of which starts after a given id."""

    def revisions(self, after: int, *, texts: bool, most: int, most_bytes: int) -> list[MovedRevision]:
        """Return the revisions that follow the change with number `after`, in order: at least one
        if there is any, then as many as the limits allow.

        `most` limits their number, and `most_bytes` the total size of their compressed texts. With
        `texts`, the texts are included.
        """
        last = after
        if texts:
            total = 0
            lengths = "SELECT change, coalesce(length(text), 0)"
            sizes = f"{lengths} FROM revision WHERE change > ? ORDER BY change LIMIT ?"
            for change, size in self._rows(sizes, (after, most)):
                total += size
                if last > after and total > most_bytes:
                    break
                last = change
        text = "r.text" if texts else "NULL"
        until = "AND r.change <= ?" if texts else ""
        sql = f"""SELECT r.change, p.name, d.path, r.number, r.hash, r.author, r.created_at, coalesce(length(r.text), 0), {text},
                  coalesce(r.made, d.made_before, 'untrusted'), coalesce(r.by, d.made_before, 'untrusted'), r.doubted {_REVISIONS}
                  WHERE r.change > ? {until} ORDER BY r.change LIMIT ?"""
        rows = self._rows(sql, (after, *((last,) if texts else ()), most))
        return [MovedRevision._make((*row[:6], micros(row[6]), *row[7:11], lines_in(row[11]))) for row in rows]

    def revision_count(self) -> int:
        return int(self._one("SELECT count(*) FROM revision") or 0)

    def take(self, one: MovedRevision, text: str | None, origin: TextOrigin) -> tuple[int, bool]:
        """Store a revision with its author and time, or update it if it exists.

        Return the id of its document, and whether it is now the document's newest revision. `text`
        is the decompressed `one.packed`; the caller has compared it with the hash.
        """
        seconds = one.time / _MICRO
        day = self._lay_out(one, 0)
        sql = f"SELECT d.id, d.revision {_NAMED}"
        document, newest = self._rows(sql, (one.project, one.path))[0]
        clash = text is not None and source_of(one.path) == "memory" and has_clash(text)
        size = len(text.encode()) if text is not None else 0
        class_ = UNTRUSTED if origin.doubted else origin.made
        sql = """INSERT INTO revision (document, number, hash, text, author, created_at, clash, bytes, by, made, doubted, class)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                 ON CONFLICT (document, number) DO UPDATE SET hash = excluded.hash, text = excluded.text, author = excluded.author,
                 created_at = excluded.created_at, clash = excluded.clash, bytes = excluded.bytes, by = excluded.by,
                 made = excluded.made, doubted = excluded.doubted, class = excluded.class"""
        values = (document, one.revision, one.hash, one.packed, one.author, seconds, clash, size)
        self._rows(sql, (*values, origin.by, origin.made, lines_as_json(origin.doubted), class_))
        if one.revision < newest:
            return int(document), False
        sql = """UPDATE document SET revision = ?, hash = ?, deleted = ?, author = ?, updated_at = ?, clash = ?,
                 day = coalesce(nullif(?, ''), date(?, 'unixepoch')), moment = CASE ? WHEN '' THEN ? END,
                 last_day = NULL, made = ?, class = ? WHERE id = ?"""
        newer = (one.revision, one.hash, text is None, one.author, seconds, clash, day, seconds, day, seconds)
        self._rows(sql, (*newer, origin.made, class_, document))
        return int(document), True

    def _lay_out(self, one: MovedRevision | MovedDocument, revision: int) -> str:
        """Create the document as deleted at that revision if it does not exist.

        Return the day that its path names, or "".
        """
        self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (one.project,))
        sql = """INSERT INTO document (project, path, revision, hash, deleted, author, updated_at, source, day, moment)
                 SELECT id, ?, ?, '', 1, ?, ?, ?, coalesce(nullif(?, ''), date(?, 'unixepoch')),
                 CASE ? WHEN '' THEN ? END FROM project WHERE name = ?
                 ON CONFLICT DO NOTHING"""
        seconds, span = one.time / _MICRO, days_of_path(one.path)
        day = span.first.isoformat() if span else ""
        source = source_of(one.path)
        self._rows(sql, (one.path, revision, one.author, seconds, source, *(day, seconds) * 2, one.project))
        return day

    def _document(self, project: str, path: str) -> int | None:
        found = self._one(f"SELECT d.id {_NAMED}", (project, path))
        return None if found is None else int(found)

    def drop(self, project: str, path: str, revision: int) -> None:
        """Delete a revision because the source has deleted it."""
        document = self._document(project, path)
        self._rows("DELETE FROM revision WHERE number = ? AND document = ?", (revision, document))

    def documents(self, after: int, *, limit: int) -> list[MovedDocument]:
        """Return the documents with an id above `after` that have use counts, trusted parts, or no
        revision left.
        """
        sql = f"""SELECT d.id, p.name, d.path, d.revision, d.author, d.updated_at, {_BARE}, coalesce(u.uses, 0), coalesce(u.used_at, 0),
                  (SELECT json_group_array(t.hash) FROM trusted_text t WHERE t.document = d.id)
                  FROM document d JOIN project p ON p.id = d.project LEFT JOIN document_use u ON u.document = d.id
                  WHERE d.id > ? AND (u.uses > 0 OR {_BARE} OR EXISTS (SELECT 1 FROM trusted_text t WHERE t.document = d.id))
                  ORDER BY d.id LIMIT ?"""
        return [
            MovedDocument._make((*row[:5], micros(row[5]), bool(row[6]), row[7], micros(row[8]), json.loads(row[9])))
            for row in self._rows(sql, (after, limit))
        ]

    def take_document(self, one: MovedDocument) -> None:
        """Store a document's data other than its revisions."""
        if one.bare:
            self._lay_out(one, one.revision)
        if (document := self._document(one.project, one.path)) is None:
            return
        for trusted in one.trusted:
            sql = "INSERT INTO trusted_text (document, hash, at, by) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            self._rows(sql, (document, trusted, one.time / _MICRO, one.author))
        if one.uses:
            sql = """INSERT INTO document_use (document, uses, used_at) VALUES (?, ?, ?)
                     ON CONFLICT (document) DO UPDATE SET uses = excluded.uses, used_at = excluded.used_at"""
            self._rows(sql, (document, one.uses, one.used / _MICRO))

    def sessions(self, after: int, *, limit: int) -> list[MovedSession]:
        """Return the transcripts with an id above `after`, with the positions that they were read
        to and their documents.
        """
        sql = """SELECT t.id, p.name, t.agent, t.session, t.version, t."offset", t.head, t.mark, t.forgotten, t.updated_at
                 FROM transcript t JOIN project p ON p.id = t.project WHERE t.id > ? ORDER BY t.id LIMIT ?"""
        parts = """SELECT d.path FROM transcript_part t JOIN document d ON d.id = t.document
                   WHERE t.transcript = ? ORDER BY t.position"""
        return [
            MovedSession._make(
                (*row[:8], bool(row[8]), micros(row[9]), [path for (path,) in self._rows(parts, row[:1])])
            )
            for row in self._rows(sql, (after, limit))
        ]

    def take_session(self, one: MovedSession) -> None:
        """Store the position that a transcript was read to, and the list of its documents."""
        self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (one.project,))
        sql = """INSERT INTO transcript (project, agent, session, version, "offset", head, mark, forgotten, updated_at)
                 SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM project WHERE name = ?
                 ON CONFLICT (project, agent, session) DO UPDATE SET version = excluded.version, "offset" = excluded."offset",
                 head = excluded.head, mark = excluded.mark, forgotten = excluded.forgotten, updated_at = excluded.updated_at
                 RETURNING id"""
        values = (one.agent, one.session, one.version, one.offset, one.head, one.mark, one.forgotten)
        identity = self._rows(sql, (*values, one.time / _MICRO, one.project))[0][0]
        self._rows("DELETE FROM transcript_part WHERE transcript = ?", (identity,))
        for position, path in enumerate(one.parts, start=1):
            sql = f"INSERT INTO transcript_part (document, transcript, position) SELECT d.id, ?, ? {_NAMED}"
            self._rows(sql, (identity, position, one.project, path))

    def links(self) -> list[MovedLink]:
        """Return the links between projects, ordered by name."""
        sql = """SELECT a.name, b.name, l.made_at FROM project_link l JOIN project a ON a.id = l.one
                 JOIN project b ON b.id = l.other ORDER BY a.name, b.name"""
        return [MovedLink(min(row[:2]), max(row[:2]), micros(row[2])) for row in self._rows(sql)]
