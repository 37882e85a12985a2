"""The store on encrypted SQLite: documents and pieces in tables, keywords in FTS5, vectors in one sqlite-vec table for each generation."""

# ruff: noqa: S608 - only table names with a number of our own are put into SQL; every value is a parameter

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import apsw

from confide_daemon.chunks import Piece
from confide_daemon.clash import has_clash
from confide_daemon.documents import day_of, source_of, text_hash
from confide_daemon.embed.protocol import Vectors
from confide_daemon.errors import DamagedError
from confide_daemon.store import (
    disk,
    generations,
    history,
    keyword,
    note_pieces,
    operations,
    projects,
    rekeying,
    salvage,
    transcripts,
    usage,
)
from confide_daemon.store.connection import carried, connect, migrate, storage_errors, transaction
from confide_daemon.store.damage import KEYWORDS, PAGES, VECTORS, Damage
from confide_daemon.store.filters import allowed_documents, permitted
from confide_daemon.store.pieces import iso_day, match_pieces, piece_hash
from confide_daemon.store.remembered import Remembered
from confide_daemon.store.rows import (
    DocumentRow,
    Filter,
    Generation,
    HitRow,
    OperationRow,
    PieceChanges,
    Place,
    ProjectRow,
    RevisionEntry,
    RevisionRow,
    SourceCount,
    TranscriptRow,
    Waiting,
)
from confide_daemon.store.scan import SLICE, VectorScan
from confide_daemon.store.sealed_records import SqliteSealedRecords
from confide_daemon.store.sqlite_notes import SqliteNotes
from confide_daemon.store.sqlite_rewriting import SqliteRewriting
from confide_daemon.store.sqlite_upkeep import SqliteUpkeep

# Candidates of the codes whose true cosines are read, more in a large space (store/codes.py has the recall that gives).
RESCORED = 192
RESCORED_SHARE = 1600
DOCUMENT = """SELECT d.id, p.name, d.path, d.revision, d.hash, d.deleted, d.author, d.updated_at, d.source, d.day, d.chunking, d.clash
    FROM document d JOIN project p ON p.id = d.project"""


class SqliteStore(SqliteNotes, SqliteRewriting, SqliteSealedRecords, SqliteUpkeep):
    """One connection to the database file of a space; see `Store`."""

    def __init__(
        self, connection: apsw.Connection, scan: VectorScan, *, path: Path, key: bytes, damage: Damage | None = None
    ) -> None:
        self._db = connection
        self._scan = scan
        self._path = path
        self._key = key
        self._damage = damage or Damage()
        self._after_commit: list[Callable[[], None]] = []
        self._waits_after: dict[int, int] = {}  # generation: pieces up to there have vectors
        self._remembered = Remembered()

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
    ) -> SqliteStore:
        """Opens the file, which a writer makes and upgrades.

        Args:
            scan: the space's vectors in memory, shared by all its connections.
            damage: what of it cannot be read, shared as well.

        Raises:
            StorageError: wrong key, damaged, newer, not writable, full.
        """
        if writer:
            rekeying.sweep(path)
            salvage.sweep(path)
        connection = connect(path, key, writer=writer)
        try:
            if writer:
                migrate(connection, now=now)
                with storage_errors("upgrade the database"), transaction(connection):
                    generations.lay_out_plainly(lambda sql, values: connection.execute(sql, tuple(values)).fetchall())
        except BaseException:
            connection.close()
            raise
        return cls(connection, scan or VectorScan(), path=path, key=key, damage=damage)

    def close(self) -> None:
        """Closes the connection; the last one folds the log into the file."""
        with storage_errors("close the database"):
            disk.close(self._db)

    def interrupt(self) -> None:
        """Makes what runs now fail."""
        with contextlib.suppress(apsw.ConnectionClosedError):
            self._db.interrupt()

    # ---------------------------------------------------------------- transactions

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, on disk when it ends."""
        self._remembered.forget()
        self._after_commit.clear()
        with storage_errors("write to the database"), transaction(self._db):
            yield
        for follow in self._after_commit:
            follow()
        self._after_commit.clear()

    @contextmanager
    def writing_derived(self) -> Iterator[None]:
        """One transaction that a power cut may undo: the log is not forced to the disk for it."""
        self.check_room()
        self._rows("PRAGMA synchronous = NORMAL")
        try:
            with self.writing():
                yield
        finally:
            self._rows("PRAGMA synchronous = FULL")

    def check_room(self) -> None:
        """Raises StorageError where the last room on the disk has to be left to documents."""
        disk.check_room_for_derived(self._db)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One view for several reads."""
        with storage_errors("read the database"):
            self._db.execute("BEGIN DEFERRED")
            try:
                with self._remembered.view(self._db):
                    yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            with storage_errors("read the database"):
                return self._db.execute(sql, tuple(values)).fetchall()
        except DamagedError:
            self._damage.note(PAGES)
            raise

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        rows = self._rows(sql, values)
        return rows[0][0] if rows else None

    # ---------------------------------------------------------------- documents

    def document(self, project: str, path: str) -> DocumentRow | None:
        """The document of that name, deleted or not."""
        rows = self._rows(f"{DOCUMENT} WHERE p.name = ? AND d.path = ?", (project, path))
        return _document(rows[0]) if rows else None

    def documents(self, projects: frozenset[str] | None) -> list[DocumentRow]:
        """All documents of the projects, deleted ones included, by name."""
        if projects is None:
            return [_document(row) for row in self._rows(f"{DOCUMENT} ORDER BY p.name, d.path")]
        names = json.dumps(sorted(projects))
        sql = f"{DOCUMENT} WHERE p.name IN (SELECT value FROM json_each(?)) ORDER BY p.name, d.path"
        return [_document(row) for row in self._rows(sql, (names,))]

    def documents_following(
        self, projects: frozenset[str] | None, after: tuple[str, str], *, sources: frozenset[str] | None, limit: int
    ) -> list[DocumentRow]:
        """Living documents from the first above `after`."""
        first, path = after
        names = (
            str(name) for (name,) in self._rows("SELECT name FROM project WHERE name >= ? ORDER BY name", (first,))
        )
        wanted = "" if sources is None else " AND d.source IN (SELECT value FROM json_each(?))"
        sql = f"{DOCUMENT} WHERE p.name = ? AND d.path > ? AND d.deleted = 0{wanted} ORDER BY d.path LIMIT ?"
        found: list[DocumentRow] = []
        for name in names:
            if projects is None or name in projects:
                above = path if name == first else ""
                values = () if sources is None else (json.dumps(sorted(sources)),)
                rows = self._rows(sql, (name, above, *values, limit - len(found)))
                found += map(_document, rows)
                if len(found) >= limit:
                    break
        return found

    def documents_by_id(self, identities: Sequence[int]) -> list[DocumentRow]:
        """Those of them that there are."""
        sql = f"{DOCUMENT} WHERE d.id IN (SELECT value FROM json_each(?))"
        return [_document(row) for row in self._rows(sql, (json.dumps(list(identities)),))]

    def revision(self, document: int, number: int) -> RevisionRow | None:
        """One revision of a document."""
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

    def save(self, project: str, path: str, text: str | None, *, author: str, now: float) -> DocumentRow:
        """A new revision; None deletes the document."""
        content_hash = "" if text is None else text_hash(text)
        packed = None if text is None else zlib.compress(text.encode())
        clash = text is not None and source_of(path) == "memory" and has_clash(text)
        day = day_of(path) or iso_day(now)
        self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (project,))
        self._rows(
            """INSERT INTO document (project, path, revision, hash, deleted, author, updated_at, source, day, clash)
               SELECT id, ?, 1, ?, ?, ?, ?, ?, ?, ? FROM project WHERE name = ?
               ON CONFLICT (project, path) DO UPDATE SET revision = revision + 1, hash = excluded.hash,
               deleted = excluded.deleted, author = excluded.author, updated_at = excluded.updated_at, day = excluded.day,
               clash = excluded.clash""",
            (path, content_hash, text is None, author, now, source_of(path), day, clash, project),
        )
        row = self.document(project, path)
        assert row is not None
        self._rows(
            """INSERT INTO revision (document, number, hash, text, author, created_at, clash, bytes)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            (row.id, row.revision, content_hash, packed, author, now, clash, len((text or "").encode())),
        )
        return row

    # ---------------------------------------------------------------- history and projects

    def revisions(self, document: int, *, limit: int) -> list[RevisionEntry]:
        """The newest revisions, newest first."""
        return history.revisions(self._rows, document, limit=limit)

    def clashing(self, projects: frozenset[str] | None, *, limit: int) -> list[tuple[str, str, int]]:
        """The documents that hold a clash."""
        return history.clashing(self._rows, projects, limit=limit)

    def deleted_paths(self, project: str, *, limit: int) -> list[str]:
        """The deleted files that can come back."""
        return history.deleted_paths(self._rows, project, limit=limit)

    def deleted_files(self, project: str) -> list[str]:
        """The paths of all deleted documents."""
        sql = "SELECT d.path FROM document d JOIN project p ON p.id = d.project WHERE d.deleted AND p.name = ?"
        return [path for (path,) in self._rows(sql, (project,))]

    def deleted_notes(self, projects: frozenset[str] | None, *, limit: int) -> list[DocumentRow]:
        """The deleted notes that can come back."""
        where = "d.deleted AND (d.path GLOB 'memory/notes/?*' OR d.path GLOB 'memory/tasks/?*/?*')"
        where += " AND EXISTS (SELECT 1 FROM revision r WHERE r.document = d.id)"
        values: list[Any] = []
        if projects is not None:
            where += " AND p.name IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(sorted(projects)))
        sql = f"{DOCUMENT} WHERE {where} ORDER BY d.updated_at DESC, d.id DESC LIMIT ?"
        return [_document(row) for row in self._rows(sql, (*values, limit))]

    def forget_deleted(self, before: float, *, limit: int) -> int:
        """Removes the texts of what was deleted before then."""
        return history.forget_deleted(self._rows, before, limit=limit)

    def projects(self, names: frozenset[str] | None, sources: frozenset[str] | None, *, limit: int) -> list[ProjectRow]:
        """The projects with what they hold."""
        return projects.listed(self._rows, names, sources, limit=limit)

    def links(self) -> list[tuple[str, str]]:
        """Every pair of linked projects."""
        return projects.links(self._rows)

    def add_link(self, one: str, other: str, *, now: float) -> None:
        """Links two projects."""
        projects.add_link(self._rows, one, other, now=now)

    def remove_link(self, one: str, other: str) -> None:
        """Ends a link."""
        projects.remove_link(self._rows, one, other)

    # ---------------------------------------------------------------- operations

    def operation(self, identity: str) -> OperationRow | None:
        """The change made under this id."""
        return operations.find(self._rows, identity)

    def add_operation(self, row: OperationRow, *, now: float) -> None:
        """Notes a change with the id it was made under."""
        operations.add(self._rows, row, now=now)

    # ---------------------------------------------------------------- transcripts

    def transcript(self, project: str, agent: str, session: str) -> TranscriptRow | None:
        """How far a session is."""
        return transcripts.find(self._rows, project, agent, session)

    def save_transcript(self, row: TranscriptRow, *, now: float) -> int:
        """Notes how far a session is."""
        return transcripts.save(self._rows, row, now=now)

    def transcript_parts(self, transcript: int) -> list[str]:
        """Its documents."""
        return transcripts.parts(self._rows, transcript)

    def add_transcript_part(self, transcript: int, document: int) -> None:
        """A further document of it."""
        transcripts.add_part(self._rows, transcript, document)

    def drop_transcript_parts(self, transcript: int) -> None:
        """None of them is its any more."""
        transcripts.drop_parts(self._rows, transcript)

    def drop_revision(self, document: int, number: int) -> None:
        """Forgets an older revision."""
        transcripts.drop_revision(self._rows, document, number)

    # ---------------------------------------------------------------- pieces

    def add_pieces(self, document: DocumentRow, pieces: Sequence[Piece], *, now: float) -> None:
        """Pieces behind those that are there."""
        sql = "SELECT coalesce(max(position), -1) + 1 FROM chunk WHERE document = ?"
        first = int(self._one(sql, (document.id,)))
        for position, piece in enumerate(pieces, first):
            self._add_piece(document, position, piece, piece_hash(piece.text), now=now)
        sql = "UPDATE document SET cut_hash = hash, pieces = ? WHERE id = ?"
        self._rows(sql, (first + len(pieces), document.id))

    def replace_pieces(
        self, document: DocumentRow, pieces: Sequence[Piece], *, chunking: str, now: float, words: str = ""
    ) -> PieceChanges:
        """The pieces of the document from now on; see `Store`."""
        other_words = self._one("SELECT words FROM document WHERE id = ?", (document.id,)) != words
        present = self._rows(
            "SELECT id, hash, position, start_line, end_line, heading FROM chunk WHERE document = ? ORDER BY position",
            (document.id,),
        )
        hashes = [piece_hash(piece.text) for piece in pieces]
        kept = match_pieces([row[1] for row in present], hashes)
        staying = {present[index][0] for index in kept.values()}
        self._remove_pieces([row[0] for row in present if row[0] not in staying], now=now)
        added = 0
        for position, (piece, digest) in enumerate(zip(pieces, hashes, strict=True)):
            if position in kept:
                row = present[kept[position]]
                if row[2:] != (position, piece.start_line, piece.end_line, piece.heading):
                    self._rows(
                        "UPDATE chunk SET position = ?, start_line = ?, end_line = ?, heading = ? WHERE id = ?",
                        (position, piece.start_line, piece.end_line, piece.heading, row[0]),
                    )
                if row[5] != piece.heading or document.chunking != chunking or other_words:
                    keyword.update(self._rows, row[0], document.path, piece.heading, piece.text, words)
                continue
            self._add_piece(document, position, piece, digest, now=now, words=words)
            added += 1
        sql = "UPDATE document SET chunking = ?, cut_hash = ?, pieces = ?, words = ? WHERE id = ?"
        self._rows(sql, (chunking, document.hash, len(pieces), words, document.id))
        return PieceChanges(added, len(kept), len(present) - len(staying))

    def _add_piece(
        self, document: DocumentRow, position: int, piece: Piece, digest: bytes, *, now: float, words: str = ""
    ) -> None:
        place = (document.id, position, piece.start_line, piece.end_line, piece.heading)
        identity = self._one(
            """INSERT INTO chunk (document, position, start_line, end_line, heading, tokens, hash, text, added_at)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id""",
            (*place, piece.tokens, digest, piece.text, now),
        )
        keyword.add(self._rows, identity, document.path, piece.heading, piece.text, words)

    def _remove_pieces(self, pieces: Sequence[int], *, now: float) -> None:
        if not pieces:
            return
        generations.remove_pieces(self._rows, pieces, now=now)
        keyword.remove(self._rows, pieces)
        self._rows("DELETE FROM chunk WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(pieces)),))
        self._after_commit.append(lambda: self._scan.remove(pieces))

    def leave_uncut(self, document: int, *, chunking: str) -> None:
        """It keeps the pieces it has."""
        self._rows("UPDATE document SET chunking = ?, pieces = NULL WHERE id = ?", (chunking, document))

    def cut_otherwise(self, chunking: str, *, limit: int) -> list[DocumentRow]:
        """Living documents that were cut by other settings, or not yet."""
        # Asked at every step of the indexing: as ranges of an index, which is not walked through for them.
        some = "SELECT id FROM document INDEXED BY document_cut WHERE deleted = 0 AND chunking"
        sql = f"{DOCUMENT} WHERE d.id IN ({some} IS NULL UNION ALL {some} < ? UNION ALL {some} > ? LIMIT ?)"
        return [_document(row) for row in self._rows(sql, (chunking, chunking, limit))]

    # ---------------------------------------------------------------- vectors

    def generations(self) -> list[Generation]:
        """All generations, the oldest first."""
        return self._remembered.get("generations", lambda: generations.listed(self._rows))

    def add_generation(
        self, provider: str, model: str, dimensions: int, *, live: bool, now: float, fresh: bool = False
    ) -> Generation:
        """A new, empty generation with its own vector table."""
        return generations.add(self._rows, provider, model, dimensions, live=live, now=now, fresh=fresh)

    def make_live(self, generation: int, *, now: float, keep: bool = False) -> None:
        """Swaps the generation in; the one that was live is dropped, or kept beside it."""
        generations.make_live(self._rows, generation, now=now, keep=keep)

    def drop_generation(self, generation: int, *, now: float) -> None:
        """Drops the generation; its newest vectors stay in the cache."""
        generations.drop(self._rows, generation, now=now)

    def retire_vectors(self, generation: Generation, *, limit: int, keep: bool, now: float) -> int:
        """Takes some vectors out of a generation."""
        return generations.retire(self._rows, generation, limit=limit, keep=keep, now=now)

    def waiting(self, generation: int, *, after: int, limit: int) -> list[Waiting]:
        """Pieces without a vector, by id."""
        return generations.waiting(self._rows, generation, after=after, limit=limit)

    def waiting_count(self, generation: int) -> int:
        """How many pieces have no vector."""
        return self._remembered.get(("waiting", generation), lambda: generations.waiting_count(self._rows, generation))

    def waiting_among(self, generation: int, projects: frozenset[str]) -> int:
        """How many pieces of some projects have no vector."""
        return generations.waiting_among(self._rows, generation, projects)

    def oldest_waiting(self, generation: int) -> float | None:
        """When the piece that waits longest was added."""
        # Every search during indexing asks this, and what is below the first that waited the last time has its vector by now.
        found = self.waiting(generation, after=self._waits_after.get(generation, 0), limit=1)
        found = found or self.waiting(generation, after=0, limit=1)
        self._waits_after[generation] = found[0].id - 1 if found else 0
        return found[0].added_at if found else None

    def known_vectors(self, generation: Generation, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Vectors of equal texts: of pieces that are there, or were."""
        return generations.known_vectors(self._rows, generation, hashes)

    def keep_vectors(self, generation: Generation, vectors: Sequence[tuple[bytes, Vectors]], *, now: float) -> None:
        """Puts vectors into the cache."""
        generations.keep_vectors(self._rows, generation, vectors, now=now)

    def tokens_used(self, month: str) -> list[tuple[str, str, int]]:
        """(provider, model, tokens) of a month."""
        return usage.used(self._rows, month)

    def count_tokens(self, month: str, provider: str, model: str, tokens: int) -> None:
        """Adds tokens to a month."""
        usage.count(self._rows, month, provider, model, tokens)

    def add_vectors(self, generation: int, vectors: Sequence[tuple[int, Vectors]]) -> int:
        """Stores vectors for the pieces that still exist and have none."""
        stored = generations.add_vectors(self._rows, generation, vectors)
        self._after_commit.append(lambda: self._scan.add(generation, stored))
        return len(stored)

    def warm(self, generation: int) -> bool:
        """Brings a slice of the generation's vectors into memory; whether there is more to bring."""
        found = [one for one in self.generations() if one.id == generation]
        after = self._scan.next_slice(generation, found[0].dimensions) if found else None
        if after is None:
            return False
        with self.reading():
            if all(one.id != generation for one in self.generations()):  # dropped meanwhile
                self._scan.abandon(generation)
                return False
            rows = generations.read_slice(self._rows, generation, after=after, limit=SLICE)
        self._scan.load(generation, rows)
        return bool(rows)

    # ---------------------------------------------------------------- search

    def keyword_candidates(self, match: str, allowed: Filter, *, limit: int) -> list[tuple[int, float]]:
        """The best pieces by BM25."""
        if not match or KEYWORDS in self._damage.parts:
            return []
        documents = self._allowed(allowed)
        with self._leg(KEYWORDS):
            return keyword.candidates(self._rows, match, documents, limit=limit)

    def vector_candidates(
        self, generation: int, vector: Vectors, allowed: Filter, *, limit: int
    ) -> list[tuple[int, float]]:
        """The nearest pieces: of the codes in memory the best by their vectors, or by exact search when they are not there."""
        if VECTORS in self._damage.parts:
            return []
        documents = self._allowed(allowed)
        codes = self._scan.codes(generation)
        with self._leg(VECTORS):
            if codes is None:
                return generations.nearest(self._rows, generation, vector, documents, limit=limit)
            pieces = codes.nearest(
                vector, max(RESCORED + len(codes) // RESCORED_SHARE, limit + limit // 2), documents
            ).tolist()
            found = generations.cosines(self._rows, generation, vector, pieces)
        # They come by rising piece, and ties stay so: the same question always gets the same answer.
        return sorted(found.items(), key=itemgetter(1), reverse=True)[:limit]

    def cosines(self, generation: int, vector: Vectors, pieces: Sequence[int]) -> dict[int, float]:
        """The true cosine of each piece that has a vector."""
        if VECTORS in self._damage.parts:
            return {}
        with self._leg(VECTORS):
            return generations.cosines(self._rows, generation, vector, pieces)

    def vectors(self, generation: int, pieces: Sequence[int]) -> dict[int, Vectors]:
        """The vectors of pieces."""
        if VECTORS in self._damage.parts:
            return {}
        with self._leg(VECTORS):
            return note_pieces.vectors(self._rows, generation, pieces)

    def _allowed(self, allowed: Filter) -> Sequence[int] | None:
        return self._remembered.get(allowed, lambda: allowed_documents(self._rows, allowed))

    def permitted(self, documents: Sequence[int], allowed: Filter) -> list[int]:
        """Those of the documents that pass."""
        return permitted(self._rows, documents, allowed)

    @contextmanager
    def _leg(self, part: str) -> Iterator[None]:
        """Tells the others when this leg of searches cannot be read."""
        try:
            yield
        except DamagedError:
            self._damage.note(part)
            raise

    def places(self, pieces: Sequence[int]) -> list[Place]:
        """Where the pieces stand."""
        if not pieces:
            return []
        sql = """SELECT c.id, c.document, c.position, d.day, p.name, d.source, d.pieces FROM carray(?) j
                 CROSS JOIN chunk c ON c.id = j.value CROSS JOIN document d ON d.id = c.document CROSS JOIN project p ON p.id = d.project"""
        return [Place._make(row) for row in self._rows(sql, (carried(pieces),))]

    def hits(self, pieces: Sequence[int]) -> dict[int, HitRow]:
        """The pieces with their documents."""
        if not pieces:
            return {}
        sql = """SELECT c.id, c.document, c.position, c.start_line, c.end_line, c.heading, c.tokens, c.text, p.name, d.path,
                 d.source, d.author, d.updated_at, d.words, d.importance, coalesce(u.uses, 0)
                 FROM carray(?) j CROSS JOIN chunk c ON c.id = j.value CROSS JOIN document d ON d.id = c.document
                 CROSS JOIN project p ON p.id = d.project LEFT JOIN document_use u ON u.document = d.id"""
        return {row[0]: HitRow._make(row) for row in self._rows(sql, (carried(pieces),))}

    def pieces_of(self, document: int, *, limit: int) -> list[int]:
        """The first pieces of a document."""
        sql = "SELECT id FROM chunk WHERE document = ? ORDER BY position LIMIT ?"
        return [row[0] for row in self._rows(sql, (document, limit))]

    def texts_around(self, pieces: Sequence[int], *, reach: int) -> dict[tuple[int, int], str]:
        """The texts of pieces and of those beside them in their documents."""
        if not pieces:
            return {}
        sql = """SELECT n.document, n.position, n.text FROM carray(?) j CROSS JOIN chunk c ON c.id = j.value
                 CROSS JOIN chunk n ON n.document = c.document AND n.position BETWEEN c.position - ? AND c.position + ?"""
        found = self._rows(sql, (carried(pieces), reach, reach))
        return {(document, position): text for document, position, text in found}

    # ---------------------------------------------------------------- counts and health

    def piece_count(self) -> int:
        """How many pieces there are."""
        return int(self._one("SELECT count(*) FROM chunk"))

    def counts(self, projects: frozenset[str] | None) -> dict[str, SourceCount]:
        """Living documents and pieces by source."""
        sql = """SELECT d.source, count(DISTINCT d.id), count(c.id) FROM document d JOIN project p ON p.id = d.project
                 LEFT JOIN chunk c ON c.document = d.id WHERE d.deleted = 0"""
        values: tuple[str, ...] = ()
        if projects is not None:
            sql += " AND p.name IN (SELECT value FROM json_each(?))"
            values = (json.dumps(sorted(projects)),)
        return {row[0]: SourceCount(row[1], row[2]) for row in self._rows(sql + " GROUP BY d.source", values)}

    def has_transcripts(self) -> bool:
        """Whether any living document is one."""
        sql = "SELECT 1 FROM document WHERE source = 'sessions' AND deleted = 0 LIMIT 1"
        return self._remembered.get("transcripts", lambda: bool(self._rows(sql)))

    def project_names(self) -> list[str]:
        """The projects that hold a living document."""
        sql = "SELECT p.name FROM project p WHERE EXISTS (SELECT 1 FROM document d WHERE d.project = p.id AND NOT d.deleted)"
        return [row[0] for row in self._rows(sql + " ORDER BY p.name")]

    def size_bytes(self) -> int:
        """The size of the database, free pages apart."""
        pages = int(self._one("PRAGMA page_count")) - int(self._one("PRAGMA freelist_count"))
        return pages * int(self._one("PRAGMA page_size"))


def _document(row: tuple[Any, ...]) -> DocumentRow:
    identity, project, path, revision, content, deleted, *rest, clash = row
    values = (identity, project, path, revision, content, bool(deleted), *rest, bool(clash))
    return DocumentRow(*values)
