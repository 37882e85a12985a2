"""SQL for chunks of documents and their vectors. Unchanged chunks stay when a document is cut
again. There is one table `vector_<id>` for each generation of vectors (provider, model,
dimensions), and a cache of vectors by text.

A vector table is a plain table with a row for each chunk, not sqlite-vec's `vec0`. That keeps its
rows in chains of pages, where one vector takes 25 us to read (here 3), in blocks of 1,024 rows for
each project (1.5 MiB for a project of one note), and deletions never make it smaller. sqlite-vec
still computes the distances, so a search of the table is as exact.
"""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import difflib
import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from confide_daemon.embedding.embedder import Vectors, is_blank
from confide_daemon.store.database import AMONG, VECTORS, Database, Rows, Table, id_array
from confide_daemon.store.rows import DocumentRow, Filter, HitRow, Piece, PieceChanges, PiecePlace, WaitingPiece
from confide_daemon.store.tables.keyword import KeywordTable, allowed_documents, piece_header
from confide_daemon.store.tables.vector_scan import SLICE, VectorScan

# Vectors that the cache keeps in case their text or model returns: 4 MB at 384 dimensions. A larger
# space keeps as many as it has chunks, so that a model that was tried and given up need not be paid
# for twice.
CACHED_VECTORS = 2_000
# A higher limit for recent vectors: a folder that is deleted and comes back (a checkout, a disk
# that was unmounted) leaves few chunks to derive the limit from. 43,000 vectors of 384 dimensions.
RECENT_BYTES = 64 * 1024 * 1024
RECENT_S = 7 * 86_400.0
# Additions between two counts of the cache; it may exceed its limit by so many.
COUNTED_AFTER = 256
_ANY_TIME = float("inf")
VECTOR_ITEM_BYTES = 4
# A vector reveals something of its text, and texts of deleted documents are not kept forever
# either.
CACHED_S = 90 * 86_400.0
# Candidates from the codes whose true cosines are computed, more in a large space (`vector_scan`
# gives the recall).
RESCORED = 192
RESCORED_SHARE = 1600


@dataclass(frozen=True, slots=True)
class Generation:
    """A set of vectors made by one embedding model. The live generation serves searches; others are
    being built or kept in reserve.
    """

    id: int
    provider: str
    model: str
    dimensions: int
    live: bool

    @property
    def name(self) -> str:
        """The name provider/model/dimensions. Only vectors with the same name can be compared."""
        return model_name(self.provider, self.model, self.dimensions)


def model_name(provider: str, model: str, dimensions: int) -> str:
    """Return the name provider/model/dimensions. Only vectors with the same name can be compared."""
    return f"{provider}/{model}/{dimensions}"


class VectorTables(Table):
    """The vectors of chunks: one set ("generation") for each embedding model, a cache by text, and
    compact codes of the set in use in memory (`VectorScan`).
    """

    def __init__(self, database: Database, scan: VectorScan) -> None:
        super().__init__(database)
        self._scan = scan
        self._waits_after: dict[int, int] = {}  # generation: last chunk up to which all have vectors
        self._cache_since = COUNTED_AFTER  # additions to the cache since its last count

    def generations(self) -> list[Generation]:
        return self._database.result_cache.get("generations", self._generations)

    def _generations(self) -> list[Generation]:
        sql = "SELECT id, provider, model, dimensions, state = 'live' FROM generation ORDER BY id"
        return [Generation(row[0], row[1], row[2], row[3], bool(row[4])) for row in self._rows(sql)]

    def add_generation(
        self, provider: str, model: str, dimensions: int, *, live: bool, now: float, fresh: bool = False
    ) -> Generation:
        """Create an empty set of vectors for a model (a generation), with its own table. `live`:
        True to use it for searches at once. `fresh`: True to also remove the model's vectors from
        the cache.
        """
        if fresh:
            self._rows("DELETE FROM vector_cache WHERE model = ?", (model_name(provider, model, dimensions),))
        found = self._rows(
            "INSERT INTO generation (provider, model, dimensions, state, created_at) VALUES (?, ?, ?, ?, ?) RETURNING id",
            (provider, model, dimensions, "live" if live else "building", now),
        )
        identity = int(found[0][0])
        _create(self._rows, f"vector_{identity}")
        # Counts vectors and finds chunks without one, without reading the vectors.
        self._rows(f"CREATE INDEX vector_{identity}_chunk ON vector_{identity} (chunk)")
        return Generation(identity, provider, model, dimensions, live)

    def calibration(self, name: str) -> bytes | None:
        """Return the stored measurements of a model's cosines, or None if it was never measured.
        `name`: provider/model/dimensions.
        """
        newest = next((one for one in reversed(self.generations()) if one.name == name), None)
        if newest is None:
            return None
        (found,) = self._rows("SELECT calibration FROM generation WHERE id = ?", (newest.id,))[0]
        return None if found is None else bytes(found)

    def keep_calibration(self, name: str, measured: bytes) -> None:
        """Store the measurements of a model's cosines with each of the model's sets of vectors.
        `name`: provider/model/dimensions.
        """
        for one in self.generations():
            if one.name == name:
                self._rows("UPDATE generation SET calibration = ? WHERE id = ?", (measured, one.id))

    def make_live(self, generation: int, *, now: float, keep: bool = False) -> None:
        """Use this set of vectors for searches. `keep`: True to keep the previous set in reserve,
        False to drop it.
        """
        for other in self.generations():
            if other.live and other.id != generation and not keep:
                self.drop(other.id, now=now)
        self._rows("UPDATE generation SET state = 'building' WHERE state = 'live'")
        self._rows("UPDATE generation SET state = 'live' WHERE id = ?", (generation,))

    def drop(self, generation: int, *, now: float) -> None:
        """Drop a set of vectors and its table; its newest vectors stay in the cache."""
        for other in self.generations():
            if other.id == generation:
                self._cache_from(other, "TRUE", (), now=now)
                self._rows(f"DROP TABLE vector_{generation}")
                self._rows("DELETE FROM generation WHERE id = ?", (generation,))

    def retire(self, generation: Generation, *, limit: int, keep: bool, now: float) -> int:
        """Remove up to `limit` vectors of a set, newest first; return their number. `keep`: True to
        move them to the cache. Repeated calls remove a large set in steps.
        """
        table = f"vector_{generation.id}"
        last = self._rows(f"SELECT chunk FROM {table} ORDER BY chunk DESC LIMIT 1 OFFSET ?", (limit - 1,))
        first = int(last[0][0]) if last else 0
        if keep:
            self._cache_from(generation, "c.id >= ?", (first,), now=now)
        return len(self._rows(f"DELETE FROM {table} WHERE chunk >= ? RETURNING chunk", (first,)))

    def remove(self, pieces: Sequence[int], *, now: float) -> None:
        """Remove the vectors of chunks that are about to be removed. The vectors stay in the cache."""
        gone = json.dumps(list(pieces))
        held = self.generations()
        # Only the newest generation of a name counts: it may be a recomputation, made because the
        # earlier vectors do not fit their model.
        newest = {generation.name: generation.id for generation in held}
        for generation in held:
            if newest[generation.name] == generation.id:
                self._cache_from(generation, f"c.id {AMONG}", (gone,), now=now, limit=len(pieces))
            self._rows(f"DELETE FROM vector_{generation.id} WHERE chunk {AMONG}", (gone,))
        self._database.after_commit(lambda: self._scan.remove(pieces))

    def keep(self, generation: Generation, vectors: Sequence[tuple[bytes, Vectors]], *, now: float) -> None:
        """Add vectors to the cache, each with the hash of its text. `generation`: the set that they
        belong to.
        """
        for digest, vector in vectors:
            packed = _pack(vector)
            self._rows(
                "INSERT OR REPLACE INTO vector_cache (model, hash, vector, kept_at) VALUES (?, ?, ?, ?)",
                (generation.name, digest, packed, now),
            )
        self._thin_out_sometimes(len(vectors), _recent_limit(generation.dimensions), now=now)

    def _cache_from(
        self, generation: Generation, which: str, values: Sequence[Any], *, now: float, limit: int | None = None
    ) -> None:
        """Copy the newest of these vectors to the cache: `limit`, or as many as the cache may hold."""
        most = max(_recent_limit(generation.dimensions), self._lasting_limit()) if limit is None else limit
        kept = self._rows(
            f"""INSERT OR REPLACE INTO vector_cache (model, hash, vector, kept_at)
                SELECT ?, c.hash, v.embedding, ? FROM chunk c JOIN vector_{generation.id} v ON v.chunk = c.id
                WHERE {which} ORDER BY c.id DESC LIMIT {most} RETURNING id""",
            (generation.name, now, *values),
        )
        self._thin_out_sometimes(len(kept), _recent_limit(generation.dimensions), now=now)

    def forget(self, documents: Sequence[int]) -> None:
        """Remove the vectors of these documents for good, also from the cache, so that nothing
        derived from their texts is left.
        """
        gone = json.dumps(list(documents))
        self._rows(f"DELETE FROM vector_cache WHERE hash IN (SELECT hash FROM chunk WHERE document {AMONG})", (gone,))
        for generation in self.generations():
            self._rows(
                f"DELETE FROM vector_{generation.id} WHERE chunk IN (SELECT id FROM chunk WHERE document {AMONG})",
                (gone,),
            )

    def thin_out(self, *, now: float) -> None:
        """Remove expired vectors from the cache. Only a space without other writes needs this call."""
        self._thin_out(max((_recent_limit(one.dimensions) for one in self.generations()), default=0), now=now)

    def _lasting_limit(self) -> int:
        return max(CACHED_VECTORS, int(self._rows("SELECT count(*) FROM chunk")[0][0]))

    def _thin_out_sometimes(self, kept: int, most: int, *, now: float) -> None:
        """Thin out the cache after every COUNTED_AFTER additions: counting takes a millisecond, and
        deleting a folder may run thousands of transactions.
        """
        self._cache_since += kept
        if self._cache_since >= COUNTED_AFTER:
            self._cache_since = 0
            self._thin_out(most, now=now)

    def _thin_out(self, most: int, *, now: float) -> None:
        """Remove expired vectors from the cache, and the oldest above its limits: `most`, or for
        those older than RECENT_S the lasting limit.
        """
        self._rows("DELETE FROM vector_cache WHERE kept_at < ?", (now - CACHED_S,))
        held = int(self._rows("SELECT count(*) FROM vector_cache")[0][0])
        lasting = self._lasting_limit()
        oldest = "SELECT id FROM vector_cache WHERE kept_at < ? ORDER BY kept_at, id LIMIT ?"
        for limit, before in ((max(most, lasting), _ANY_TIME), (lasting, now - RECENT_S)):
            if held > limit:
                sql = f"DELETE FROM vector_cache WHERE id IN ({oldest}) RETURNING id"
                held -= len(self._rows(sql, (before, held - limit)))

    def waiting(self, generation: int, *, after: int, limit: int) -> list[WaitingPiece]:
        """Return up to `limit` chunks that still need a vector from a generation's model, ordered
        by id, with ids above `after`.
        """
        few = self.waiting_count(generation) if not after else limit + 1
        # Few are the newest, as a rule: from the other end they are found without a look at the
        # rest, which takes 5 ms for 10,000 chunks, on the writer's thread.
        order, most = ("", limit) if few > limit else (" DESC", few)
        sql = f"""SELECT c.id, c.hash, c.text, c.added_at, c.tokens FROM chunk c
                  LEFT JOIN vector_{generation} v INDEXED BY vector_{generation}_chunk
                  ON v.chunk = c.id WHERE c.id > ? AND v.chunk IS NULL ORDER BY c.id{order} LIMIT ?"""
        found = [WaitingPiece(*row) for row in self._rows(sql, (after, most))] if most else []
        return found[::-1] if few <= limit else found

    def waiting_count(self, generation: int) -> int:
        sql = f"""SELECT (SELECT count(*) FROM chunk)
                  - (SELECT count(*) FROM vector_{generation} INDEXED BY vector_{generation}_chunk)"""
        # A damaged index may have vectors without chunks until it is repaired, so the difference
        # may be negative.
        return self._database.result_cache.get(("waiting", generation), lambda: max(0, int(self._one(sql))))

    def waiting_among(self, generation: int, projects: frozenset[str]) -> int:
        """Count the chunks of these projects that still need a vector from a generation's model."""
        sql = f"""SELECT count(*) FROM project p JOIN document d ON d.project = p.id JOIN chunk c ON c.document = d.id
                  WHERE p.name {AMONG} AND NOT EXISTS
                  (SELECT 1 FROM vector_{generation} v INDEXED BY vector_{generation}_chunk WHERE v.chunk = c.id)"""
        return int(self._rows(sql, (json.dumps(sorted(projects)),))[0][0])

    def oldest_waiting(self, generation: int) -> float | None:
        """Return when the longest waiting chunk was added, in seconds since 1970, or None if no
        chunk waits for a vector.
        """
        # Every search during indexing calls this; chunks below the last result have their vectors
        # by now.
        found = self.waiting(generation, after=self._waits_after.get(generation, 0), limit=1)
        found = found or self.waiting(generation, after=0, limit=1)
        self._waits_after[generation] = found[0].id - 1 if found else 0
        return found[0].added_at if found else None

    def known_vectors(self, generation: Generation, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Return vectors that exist already for texts with these hashes, from other chunks or from
        the cache.
        """
        cached = "SELECT vector FROM vector_cache WHERE model = ? AND hash = ?"
        present = f"""SELECT v.embedding FROM chunk c JOIN vector_{generation.id} v ON v.chunk = c.id
            WHERE c.hash = ? LIMIT 1"""
        known: dict[bytes, Vectors] = {}
        for digest in set(hashes):
            found = self._rows(present, (digest,)) or self._rows(cached, (generation.name, digest))
            if found:
                known[digest] = _unpack(found[0][0], generation.dimensions)
        return known

    def add(self, generation: int, vectors: Sequence[tuple[int, Vectors]]) -> int:
        """Store vectors by chunk id, for chunks that still exist and have none yet; return how many
        were stored.
        """
        sql = f"""INSERT INTO vector_{generation} (chunk, embedding) SELECT id, ? FROM chunk WHERE id = ?
                  ON CONFLICT (chunk) DO NOTHING RETURNING (SELECT document FROM chunk c WHERE c.id = ?)"""
        stored: list[tuple[int, int, Vectors]] = []
        for piece, vector in vectors:
            found = self._rows(sql, (_pack(vector), piece, piece))
            stored += [(piece, document, vector) for (document,) in found]
        searched = [one for one in stored if not is_blank(one[2])]
        self._database.after_commit(lambda: self._scan.add(generation, searched))
        return len(stored)

    def add_known(self, generation: Generation, documents: Sequence[int]) -> int:
        """Give the chunks of these documents vectors that exist already for equal texts; return how
        many chunks got one.
        """
        sql = f"""SELECT c.id, c.hash FROM chunk c WHERE c.document {AMONG} AND NOT EXISTS
                  (SELECT 1 FROM vector_{generation.id} v INDEXED BY vector_{generation.id}_chunk WHERE v.chunk = c.id)"""
        lacking = self._rows(sql, (json.dumps(list(documents)),))
        known = self.known_vectors(generation, [digest for _, digest in lacking])
        return self.add(generation.id, [(piece, known[digest]) for piece, digest in lacking if digest in known])

    def sample(self, generation: int, count: int, *, seed: float) -> list[tuple[str, bytes]]:
        """Return the text and packed vector of up to `count` consecutive chunks. `seed` (0 to 1)
        selects where they begin.
        """
        last = int(self._one(f"SELECT max(chunk) FROM vector_{generation}") or 0)
        sql = f"""SELECT c.text, v.embedding FROM vector_{generation} v JOIN chunk c ON c.id = v.chunk
                  WHERE v.chunk > ? AND v.embedding <> x'' ORDER BY v.chunk LIMIT ?"""
        return self._rows(sql, (max(0, int(last * seed) - count), count))

    def of_pieces(self, generation: int, pieces: Sequence[int]) -> dict[int, Vectors]:
        """Return the vectors of these chunks, by chunk id. Chunks without a vector are left out."""
        if VECTORS in self._database.damage.parts:
            return {}
        sql = f"""SELECT v.chunk, v.embedding FROM json_each(?) j CROSS JOIN vector_{generation} v ON v.chunk = j.value
                  WHERE v.embedding <> x''"""
        with self._database.leg(VECTORS):
            found = self._rows(sql, (json.dumps(sorted(pieces)),))
            return {piece: np.frombuffer(packed, dtype=np.float32) for piece, packed in found}

    def warm(self, generation: int) -> bool:
        """Load the next slice of the vectors' codes into memory, outside of any transaction; return
        True if more are left. Searches also work without the codes.
        """
        after = self._next_slice(generation)
        if after is None:
            return False
        with self._database.reading():
            if all(one.id != generation for one in self.generations()):  # dropped meanwhile
                self._scan.abandon(generation)
                return False
            rows = self._slice(generation, after)
        self._scan.load(generation, rows)
        return bool(rows)

    def warm_in_view(self, generation: int) -> None:
        """Load the codes of all vectors that are not in memory yet, in the caller's transaction, so
        that a search need not read the vectors from the database.
        """
        while (after := self._next_slice(generation)) is not None:
            self._scan.load(generation, self._slice(generation, after))

    def _next_slice(self, generation: int) -> int | None:
        found = [one for one in self.generations() if one.id == generation]
        return self._scan.next_slice(generation, found[0].dimensions) if found else None

    def _slice(self, generation: int, after: int) -> list[tuple[int, int, bytes]]:
        """Return (chunk, document, vector), by ascending chunk."""
        sql = f"""SELECT v.chunk, c.document, v.embedding FROM vector_{generation} v JOIN chunk c ON c.id = v.chunk
                  WHERE v.chunk > ? AND v.embedding <> x'' ORDER BY v.chunk LIMIT ?"""
        return self._rows(sql, (after, SLICE))

    def nearest(
        self, generation: int, vector: Vectors, allowed: Filter, *, limit: int, least: float | None = None
    ) -> list[tuple[int, float]]:
        """Return (chunk, cosine) of the allowed chunks nearest to a query's vector, nearest first.
        The codes in memory select candidates, whose true cosines are then computed. Without codes
        the search is exact.

        `least`: chunks with a lower cosine may be left out, so that fewer vectors are read; None:
        no such limit.
        """
        if VECTORS in self._database.damage.parts:
            return []
        documents = allowed_documents(self._database, allowed)
        codes = self._scan.codes(generation)
        with self._database.leg(VECTORS):
            if codes is None:
                return self._nearest_of_all(generation, vector, documents, limit)
            most = max(RESCORED + len(codes) // RESCORED_SHARE, limit + limit // 2)
            pieces = None
            if least is not None and documents is None:
                pieces = codes.close(vector, least, most=most)
            if pieces is None:
                pieces = codes.nearest(vector, most, documents)
            found = self._cosines(generation, vector, pieces.tolist())
        # Rows come by ascending chunk, and the sort is stable: the same query always gets the same
        # result.
        return sorted(found.items(), key=itemgetter(1), reverse=True)[:limit]

    def _nearest_of_all(
        self, generation: int, vector: Vectors, documents: Sequence[int] | None, limit: int
    ) -> list[tuple[int, float]]:
        """Return (chunk, cosine) by an exact search of the table, nearest first; within some
        documents (None: all).
        """
        sql = f"SELECT chunk, vec_distance_l2(embedding, ?) AS distance FROM vector_{generation} WHERE embedding <> x''"
        values: list[Any] = [vector.tobytes()]
        if documents is not None:
            sql += f" AND chunk IN (SELECT id FROM chunk WHERE document {AMONG})"
            values.append(json.dumps(list(documents)))
        sql += " ORDER BY distance, chunk LIMIT ?"
        values.append(limit)
        return [(piece, 1.0 - distance * distance / 2.0) for piece, distance in self._rows(sql, values)]

    def cosines(self, generation: int, vector: Vectors, pieces: Sequence[int]) -> dict[int, float]:
        """Return the true cosine between a vector and each of these chunks, by chunk id. Chunks
        without a vector are left out.
        """
        if VECTORS in self._database.damage.parts:
            return {}
        with self._database.leg(VECTORS):
            return self._cosines(generation, vector, pieces)

    def _cosines(self, generation: int, vector: Vectors, pieces: Sequence[int]) -> dict[int, float]:
        """Compute cosines from the L2 distances of unit vectors, 3 us each at 384 dimensions."""
        if not pieces:
            return {}
        sql = f"""SELECT v.chunk, vec_distance_l2(v.embedding, ?) FROM carray(?) j
                  CROSS JOIN vector_{generation} v ON v.chunk = j.value WHERE v.embedding <> x''"""
        found = self._rows(sql, (vector.tobytes(), id_array(pieces)))
        return {piece: 1.0 - distance * distance / 2.0 for piece, distance in found}


# Stored instead of a vector when the model did not understand the text: the chunk does not wait,
# and is compared with nothing.
_BLANK = b""


def _pack(vector: Vectors) -> bytes:
    return _BLANK if is_blank(vector) else np.ascontiguousarray(vector, dtype=np.float32).tobytes()


def _unpack(packed: bytes, dimensions: int) -> Vectors:
    return np.frombuffer(packed, dtype=np.float32) if packed else np.zeros(dimensions, dtype=np.float32)


def _recent_limit(dimensions: int) -> int:
    """Return the number of vectors with these dimensions that the cache may hold for some days."""
    return RECENT_BYTES // (dimensions * VECTOR_ITEM_BYTES)


class TokenTable(Table):
    """Counts of embedded tokens: one row for each model and month (such as 2026-11)."""

    def used_tokens(self, month: str) -> list[tuple[str, str, int]]:
        """Return (provider, model, number of tokens) for a month."""
        sql = "SELECT provider, model, tokens FROM embedding_use WHERE month = ? ORDER BY provider, model"
        return [(row[0], row[1], row[2]) for row in self._rows(sql, (month,))]

    def count(self, month: str, provider: str, model: str, tokens: int) -> None:
        """Add tokens to the count of a month and model. A negative number takes back tokens that
        were counted but not used.
        """
        self._rows(
            """INSERT INTO embedding_use (month, provider, model, tokens) VALUES (?, ?, ?, max(0, ?))
               ON CONFLICT DO UPDATE SET tokens = max(0, tokens + ?)""",
            (month, provider, model, tokens, tokens),
        )


def lay_out_plainly(rows: Rows) -> None:
    """Convert the `vec0` tables of older versions into plain tables, in the caller's transaction."""
    sql = "SELECT name FROM sqlite_schema WHERE name GLOB 'vector_[0-9]*' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
    for (table,) in rows(sql, ()):
        _create(rows, "vector_plain")
        rows(f"INSERT INTO vector_plain SELECT chunk, embedding FROM {table} ORDER BY chunk", ())
        rows(f"DROP TABLE {table}", ())
        rows(f"ALTER TABLE vector_plain RENAME TO {table}", ())
        rows(f"CREATE INDEX {table}_chunk ON {table} (chunk)", ())


def _create(rows: Rows, table: str) -> None:
    rows(f"CREATE TABLE {table} (chunk INTEGER PRIMARY KEY, embedding BLOB NOT NULL)", ())


# Above this, exact alignment costs more than the ids it would save.
ALIGNED_PIECES = 2000


def piece_hash(text: str) -> bytes:
    """Return the hash of a chunk's text. Chunks with the same hash share a vector."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class PieceTable(Table):
    """The chunks into which documents are cut."""

    def __init__(self, database: Database, keywords: KeywordTable, vectors: VectorTables) -> None:
        super().__init__(database)
        self._keywords = keywords
        self._vectors = vectors

    def add(self, document: DocumentRow, pieces: Sequence[Piece], *, now: float) -> None:
        """Append chunks to a document whose text has only grown at its end."""
        sql = "SELECT coalesce(max(position), -1) + 1 FROM chunk WHERE document = ?"
        first = int(self._one(sql, (document.id,)))
        for position, piece in enumerate(pieces, first):
            self._add(document, position, piece, piece_hash(piece.text), now=now)
        sql = "UPDATE document SET cut_hash = hash, pieces = ? WHERE id = ?"
        self._rows(sql, (first + len(pieces), document.id))

    def replace(
        self, document: DocumentRow, pieces: Sequence[Piece], *, chunking: str, now: float, words: str = ""
    ) -> PieceChanges:
        """Replace all chunks of a document. Chunks with unchanged text keep their ids and vectors.
        `words`: additional words by which the chunks are found.
        """
        other_words = self._one("SELECT words FROM document WHERE id = ?", (document.id,)) != words
        present = self._rows(
            """SELECT id, hash, position, start_line, end_line, heading, doubted, day, last_day FROM chunk
               WHERE document = ? ORDER BY position""",
            (document.id,),
        )
        hashes = [piece_hash(piece.text) for piece in pieces]
        kept = match_pieces([row[1] for row in present], hashes)
        staying = {present[index][0] for index in kept.values()}
        self.remove([row[0] for row in present if row[0] not in staying], now=now)
        added = 0
        for position, (piece, digest) in enumerate(zip(pieces, hashes, strict=True)):
            if position in kept:
                row = present[kept[position]]
                lines = (position, piece.start_line, piece.end_line, piece.heading)
                place = (*lines, int(piece.doubted), *_day_columns(piece))
                if row[2:] != place:
                    sql = """UPDATE chunk SET position = ?, start_line = ?, end_line = ?, heading = ?, doubted = ?, day = ?,
                             last_day = ? WHERE id = ?"""
                    self._rows(sql, (*place, row[0]))
                if (row[5], *row[7:]) != (piece.heading, *place[5:]) or document.chunking != chunking or other_words:
                    said = _with_days(words, document.path, piece)
                    self._keywords.update(row[0], document.path, piece.heading, piece.text, said)
                continue
            self._add(document, position, piece, digest, now=now, words=words)
            added += 1
        sql = "UPDATE document SET chunking = ?, cut_hash = ?, pieces = ?, words = ? WHERE id = ?"
        self._rows(sql, (chunking, document.hash, len(pieces), words, document.id))
        return PieceChanges(added, len(kept), len(present) - len(staying))

    def _add(
        self, document: DocumentRow, position: int, piece: Piece, digest: bytes, *, now: float, words: str = ""
    ) -> None:
        place = (document.id, position, piece.start_line, piece.end_line, piece.heading)
        identity = self._one(
            """INSERT INTO chunk (document, position, start_line, end_line, heading, tokens, hash, text, added_at, doubted, day,
               last_day) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id""",
            (*place, piece.tokens, digest, piece.text, now, int(piece.doubted), *_day_columns(piece)),
        )
        said = _with_days(words, document.path, piece)
        self._keywords.add(identity, document.path, piece.heading, piece.text, said)

    def remove(self, pieces: Sequence[int], *, now: float) -> None:
        """Remove chunks and all data derived from them."""
        if not pieces:
            return
        self._vectors.remove(pieces, now=now)
        self._keywords.remove(pieces)
        self._rows("DELETE FROM chunk WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(pieces)),))

    def count(self) -> int:
        return int(self._one("SELECT count(*) FROM chunk"))

    def of_document(self, document: int, *, limit: int) -> list[int]:
        sql = "SELECT id FROM chunk WHERE document = ? ORDER BY position LIMIT ?"
        return [row[0] for row in self._rows(sql, (document, limit))]

    def trusted_pieces(self, document: int, *, limit: int, is_from_end: bool) -> list[int]:
        """Return the ids of up to `limit` trusted chunks of a document, which may be shown without
        a query. `is_from_end`: True to begin with the last chunk, False with the first.
        """
        order = "DESC" if is_from_end else "ASC"
        sql = f"""SELECT c.id FROM chunk c JOIN document d ON d.id = c.document
                  WHERE c.document = ? AND c.doubted IS 0 AND d.made <> 'untrusted' ORDER BY c.position {order} LIMIT ?"""
        return [row[0] for row in self._rows(sql, (document, limit))]

    def doubted_lines(self, documents: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (document, first line, last line) of each untrusted chunk in these documents.
        Lines are counted from 1.
        """
        sql = f"""SELECT c.document, c.start_line, c.end_line FROM chunk c JOIN document d ON d.id = c.document
                  WHERE c.document {AMONG} AND (c.doubted IS NOT 0 OR d.made = 'untrusted')"""
        return [(row[0], row[1], row[2]) for row in self._rows(sql, (json.dumps(list(documents)),))]

    def places(self, pieces: Sequence[int], *, zone_s: int = 0) -> list[PiecePlace]:
        """Return the position of each of these chunks in its document, with the document's day,
        project and source. `zone_s`: seconds by which a day begins before UTC's.
        """
        if not pieces:
            return []
        sql = f"""SELECT c.id, c.document, c.position, {_DAY}, p.name, d.source, d.pieces, {_LAST_DAY}, {_STATES_DAY} FROM carray(?) j
                 CROSS JOIN chunk c ON c.id = j.value CROSS JOIN document d ON d.id = c.document CROSS JOIN project p ON p.id = d.project"""
        return [PiecePlace._make(row) for row in self._rows(sql, (zone_s, id_array(pieces)))]

    def of_days(self, first: str, last: str, allowed: Filter, *, zone_s: int, limit: int) -> list[int]:
        """Return the ids of up to `limit` chunks about some days (ISO, both included), newest
        first; transcripts come last. `zone_s`: seconds by which a day begins before UTC's.
        """
        documents = allowed_documents(self._database, replace(allowed, since=first, until=last, zone_s=zone_s))
        some = "NOT d.deleted" if documents is None else f"d.id {AMONG}"
        values = [] if documents is None else [json.dumps(list(documents))]
        sql = f"""SELECT c.id FROM document d JOIN chunk c ON c.document = d.id WHERE {some}
                  AND {_DAY} <= ? AND coalesce({_LAST_DAY}, {_DAY}) >= ?
                  ORDER BY d.source = 'sessions', c.id DESC LIMIT ?"""
        return [row[0] for row in self._rows(sql, (*values, zone_s, last, zone_s, first, limit))]

    def stating_days(self, *, most: int) -> int:
        """Count the chunks, up to `most`, in documents of which at least one chunk states a day of
        its own.
        """
        sql = """SELECT count(*) FROM (SELECT 1 FROM document d JOIN chunk c ON c.document = d.id
                 WHERE d.piece_days IS NOT NULL AND NOT d.deleted LIMIT ?)"""
        return self._database.result_cache.get(("stating", most), lambda: int(self._one(sql, (most,))))

    def hits(self, pieces: Sequence[int]) -> dict[int, HitRow]:
        if not pieces:
            return {}
        sql = """SELECT c.id, c.document, c.position, c.start_line, c.end_line, c.heading, c.tokens, c.text, p.name, d.path,
                 d.source, d.author, d.updated_at, d.words, d.importance, coalesce(u.uses, 0),
                 CASE WHEN c.doubted IS 0 THEN d.made ELSE 'untrusted' END
                 FROM carray(?) j CROSS JOIN chunk c ON c.id = j.value CROSS JOIN document d ON d.id = c.document
                 CROSS JOIN project p ON p.id = d.project LEFT JOIN document_use u ON u.document = d.id"""
        return {row[0]: HitRow._make(row) for row in self._rows(sql, (id_array(pieces),))}

    def of_other_classes(self, pieces: Iterable[int], classes: frozenset[str]) -> set[int]:
        """Return the ids of the given chunks whose trust class is not in `classes`."""
        asked = list(pieces)
        if not asked:
            return set()
        sql = f"""SELECT c.id FROM carray(?) j CROSS JOIN chunk c ON c.id = j.value CROSS JOIN document d ON d.id = c.document
                  WHERE CASE WHEN c.doubted IS 0 THEN d.made ELSE 'untrusted' END NOT {AMONG}"""
        return {row[0] for row in self._rows(sql, (id_array(asked), json.dumps(sorted(classes))))}

    def count_doubted(self, *, most: int) -> int:
        """Count the chunks, up to `most`, that have untrusted lines in an otherwise trusted
        document.
        """
        sql = "SELECT count(*) FROM (SELECT 1 FROM chunk WHERE doubted = 1 LIMIT ?)"
        return self._database.result_cache.get(("doubted", most), lambda: int(self._one(sql, (most,))))

    def texts_around(self, pieces: Sequence[int], *, reach: int) -> dict[tuple[int, int], str]:
        """Return the texts of these chunks and of the `reach` chunks before and after each, by
        (document, position).
        """
        if not pieces:
            return {}
        sql = """SELECT n.document, n.position, n.text FROM carray(?) j CROSS JOIN chunk c ON c.id = j.value
                 CROSS JOIN chunk n ON n.document = c.document AND n.position BETWEEN c.position - ? AND c.position + ?"""
        found = self._rows(sql, (id_array(pieces), reach, reach))
        return {(document, position): text for document, position, text in found}


# The first and the last day of a chunk `c` of a document `d`; the parameter is the zone.
_DAY = "coalesce(c.day, date(d.moment + ?, 'unixepoch'), d.day)"
_LAST_DAY = "CASE WHEN c.day IS NULL THEN d.last_day ELSE c.last_day END"
_STATES_DAY = "c.day IS NOT NULL OR d.moment IS NULL"


def _day_columns(piece: Piece) -> tuple[str | None, str | None]:
    first, last = piece.days or (None, None)
    return first, None if last == first else last


def _with_days(words: str, path: str, piece: Piece) -> str:
    """Return the words of a chunk's header with the day that the chunk is of, unless it is in the
    header as the index knows it.
    """
    first, last = piece.days or (None, None)
    if first is None or first != last:
        return words
    day = first.replace("-", " ")
    return words if day in piece_header(path, piece.heading, words) else f"{words} {day}".strip()


def match_pieces(old: Sequence[bytes], new: Sequence[bytes]) -> dict[int, int]:
    """Match new chunks with old ones that have the same text, given by the hashes of both. Return
    {new position: old position}; each old chunk is used once.

    Short lists are aligned, so that of equal chunks those in the same position match. The rest is
    matched by hash, in order.
    """
    matched: dict[int, int] = {}
    if Counter(old) == Counter(new) and list(old) == list(new):
        return {position: position for position in range(len(new))}
    if len(old) <= ALIGNED_PIECES and len(new) <= ALIGNED_PIECES:
        for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            for offset in range(block.size):
                matched[block.b + offset] = block.a + offset
    taken = set(matched.values())
    free: dict[bytes, deque[int]] = defaultdict(deque)
    for position, digest in enumerate(old):
        if position not in taken:
            free[digest].append(position)
    for position, digest in enumerate(new):
        if position not in matched and free[digest]:
            matched[position] = free[digest].popleft()
    return matched
