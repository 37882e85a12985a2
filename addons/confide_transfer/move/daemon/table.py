"""A space on its way from one daemon to another, as SQL: its revisions with author and time as they are, and what else is no text.

Nothing that is derived is carried: pieces, vectors and notes are made anew from the texts.
"""

# ruff: noqa: S608 - only words of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
import zlib
from typing import Any, Final, NamedTuple

from confide_daemon.store.database import Table
from confide_daemon.store.rows import Origin
from confide_daemon.store.tables.classes import lines_as_json, lines_in
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import day_of, has_clash, source_of

_MICRO: Final = 1_000_000
_REVISIONS: Final = """FROM revision r JOIN document d ON d.id = r.document JOIN project p ON p.id = d.project"""
_BARE: Final = "NOT EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id)"


class MovedRevision(NamedTuple):
    """A revision as it is carried; `time` in microseconds since 1970, which a float of seconds gives and takes back unchanged."""

    change: int  # its id where it comes from; 0 where it arrives
    project: str
    path: str
    revision: int
    hash: str  # "" of one that deleted the document
    author: str
    time: int
    packed: bytes | None  # zlib of UTF-8; None: not asked for, or deleted
    size: int = 0  # of that
    origin: Origin | None = None  # None: where it comes from nobody has kept that


class MovedDocument(NamedTuple):
    """What is known of a document beside its revisions."""

    id: int  # where it comes from
    project: str
    path: str
    revision: int
    author: str
    time: int
    bare: bool  # deleted so long ago that no revision is kept: only its number must not come to mean another text
    uses: int
    used: int
    trusted: tuple[str, ...] = ()  # hashes of the parts that a person has trusted


class MovedSession(NamedTuple):
    """How far a transcript has come, and the paths of its documents in order."""

    id: int
    project: str
    agent: str
    session: str
    version: int
    offset: int
    head: str
    mark: str
    forgotten: bool
    time: int
    parts: tuple[str, ...]


class MovedLink(NamedTuple):
    one: str
    other: str
    time: int


def micros(seconds: float) -> int:
    """A moment in whole microseconds."""
    return round(seconds * _MICRO)


class MovingTable(Table):
    """What a space holds, row by row, in an order that goes on where it was left."""

    def revisions(self, after: int, *, texts: bool, most: int, most_bytes: int) -> list[MovedRevision]:
        """Behind a change, in order: one at least if there is any, then as many as fit. `most_bytes`: of packed texts together."""
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
        text = f"{'r.text' if texts else 'NULL'}, coalesce(length(r.text), 0)"
        until = "AND r.change <= ?" if texts else ""
        sql = f"""SELECT r.change, p.name, d.path, r.number, r.hash, r.author, r.created_at, {text},
                  coalesce(r.made, d.made_before, 'untrusted'), r.doubted, coalesce(r.by, d.made_before, 'untrusted') {_REVISIONS}
                  WHERE r.change > ? {until} ORDER BY r.change LIMIT ?"""
        rows = self._rows(sql, (after, *((last,) if texts else ()), most))
        return [
            MovedRevision._make((*row[:6], micros(row[6]), *row[7:9], Origin(row[9], lines_in(row[10]), row[11])))
            for row in rows
        ]

    def revision_count(self) -> int:
        """How many revisions there are."""
        return int(self._one("SELECT count(*) FROM revision") or 0)

    def take(self, one: MovedRevision, text: str | None, origin: Origin) -> tuple[int, bool]:
        """Keeps a revision as it was: the id of its document, and whether it is its newest now. One that is there is put right.

        `text`: what `one.packed` holds, which the caller has compared with its hash.
        """
        seconds = one.time / _MICRO
        self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (one.project,))
        day = day_of(one.path) or ""
        sql = """INSERT INTO document (project, path, revision, hash, deleted, author, updated_at, source, day)
                 SELECT id, ?, 0, '', 1, ?, ?, ?, coalesce(nullif(?, ''), date(?, 'unixepoch')) FROM project WHERE name = ?
                 ON CONFLICT DO NOTHING"""
        self._rows(sql, (one.path, one.author, seconds, source_of(one.path), day, seconds, one.project))
        sql = (
            "SELECT d.id, d.revision FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND d.path = ?"
        )
        document, newest = self._rows(sql, (one.project, one.path))[0]
        clash = text is not None and source_of(one.path) == "memory" and has_clash(text)
        size = len(text.encode()) if text is not None else 0
        class_ = UNTRUSTED if origin.doubted else origin.made
        values: tuple[Any, ...]
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
                 day = coalesce(nullif(?, ''), date(?, 'unixepoch')), made = ?, class = ? WHERE id = ?"""
        values = (one.revision, one.hash, text is None, one.author, seconds, clash, day, seconds)
        self._rows(sql, (*values, origin.made, class_, document))
        return int(document), True

    def drop(self, project: str, path: str, revision: int) -> None:
        """Forgets a revision that is not there any more where the space comes from."""
        sql = """DELETE FROM revision WHERE number = ? AND document =
                 (SELECT d.id FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND d.path = ?)"""
        self._rows(sql, (revision, project, path))

    def documents(self, after: int, *, limit: int) -> list[MovedDocument]:
        """Those of which more than revisions is known, by their ids behind `after`."""
        sql = f"""SELECT d.id, p.name, d.path, d.revision, d.author, d.updated_at, {_BARE}, coalesce(u.uses, 0), coalesce(u.used_at, 0),
                  (SELECT json_group_array(t.hash) FROM trusted_text t WHERE t.document = d.id)
                  FROM document d JOIN project p ON p.id = d.project LEFT JOIN document_use u ON u.document = d.id
                  WHERE d.id > ? AND (u.uses > 0 OR {_BARE} OR EXISTS (SELECT 1 FROM trusted_text t WHERE t.document = d.id))
                  ORDER BY d.id LIMIT ?"""
        return [
            MovedDocument._make(
                (*row[:5], micros(row[5]), bool(row[6]), row[7], micros(row[8]), tuple(json.loads(row[9])))
            )
            for row in self._rows(sql, (after, limit))
        ]

    def take_document(self, one: MovedDocument) -> None:
        """Notes what is known of a document beside its revisions."""
        seconds = one.time / _MICRO
        if one.bare:
            self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (one.project,))
            sql = """INSERT INTO document (project, path, revision, hash, deleted, author, updated_at, source, day)
                     SELECT id, ?, ?, '', 1, ?, ?, ?, coalesce(nullif(?, ''), date(?, 'unixepoch')) FROM project WHERE name = ?
                     ON CONFLICT DO NOTHING"""
            day = day_of(one.path) or ""
            values = (one.path, one.revision, one.author, seconds, source_of(one.path), day, seconds, one.project)
            self._rows(sql, values)
        for trusted in one.trusted:
            sql = """INSERT INTO trusted_text (document, hash, at, by)
                     SELECT d.id, ?, ?, ? FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND d.path = ?
                     ON CONFLICT DO NOTHING"""
            self._rows(sql, (trusted, seconds, one.author, one.project, one.path))
        if one.uses:
            sql = """INSERT INTO document_use (document, uses, used_at)
                     SELECT d.id, ?, ? FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND d.path = ?
                     ON CONFLICT (document) DO UPDATE SET uses = excluded.uses, used_at = excluded.used_at"""
            self._rows(sql, (one.uses, one.used / _MICRO, one.project, one.path))

    def sessions(self, after: int, *, limit: int) -> list[MovedSession]:
        """How far the transcripts are, by their ids behind `after`."""
        sql = """SELECT t.id, p.name, t.agent, t.session, t.version, t."offset", t.head, t.mark, t.forgotten, t.updated_at
                 FROM transcript t JOIN project p ON p.id = t.project WHERE t.id > ? ORDER BY t.id LIMIT ?"""
        parts = """SELECT d.path FROM transcript_part t JOIN document d ON d.id = t.document
                   WHERE t.transcript = ? ORDER BY t.position"""
        return [
            MovedSession._make(
                (*row[:8], bool(row[8]), micros(row[9]), tuple(path for (path,) in self._rows(parts, (row[0],))))
            )
            for row in self._rows(sql, (after, limit))
        ]

    def take_session(self, one: MovedSession) -> None:
        """Notes how far a transcript is, and which documents it is in."""
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
            sql = """INSERT INTO transcript_part (document, transcript, position)
                     SELECT d.id, ?, ? FROM document d JOIN project p ON p.id = d.project WHERE p.name = ? AND d.path = ?"""
            self._rows(sql, (identity, position, one.project, path))

    def links(self) -> list[MovedLink]:
        """The links between projects."""
        sql = """SELECT a.name, b.name, l.made_at FROM project_link l JOIN project a ON a.id = l.one
                 JOIN project b ON b.id = l.other ORDER BY a.name, b.name"""
        return [MovedLink(min(row[:2]), max(row[:2]), micros(row[2])) for row in self._rows(sql)]


def text_of(packed: bytes, most: int) -> str:
    """The text in what is packed. Raises ValueError: it is no zlib of UTF-8, or of a longer text than `most` bytes."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or unpacking.unused_data or len(data) > most:
        raise ValueError("not one packed text, or too large a one")
    return data.decode()
