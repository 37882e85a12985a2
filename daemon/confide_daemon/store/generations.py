"""Generations of vectors as SQL: one table `vector_<id>` for each (provider, model, dimensions), and the cache of vectors by text.

A generation is a plain table with a row for each piece, not sqlite-vec's `vec0`: that keeps its rows in chains of pages, where one
vector takes 25 us to read (here 3), in blocks of 1,024 rows for each project (1.5 MiB for a project of one note), and what is deleted
never gets smaller. sqlite-vec still computes the distances, so a search of the table is as exact.
"""

# ruff: noqa: S608 - only table names with a number of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from confide_daemon.embed.protocol import Vectors
from confide_daemon.store.connection import carried
from confide_daemon.store.rows import Generation, Waiting, model_name

Rows = Callable[[str, Sequence[Any]], list[Any]]

# How many vectors are kept in case their text or their model comes back: 4 MB at 384 dimensions, or in a larger space as many as it has
# pieces, so that a model that was tried and given up does not have to be paid for twice.
CACHED_VECTORS = 2_000
# A vector tells something of its text, and texts of deleted documents are not kept for ever either.
CACHED_S = 90 * 86_400.0


def listed(rows: Rows) -> list[Generation]:
    """All generations, the oldest first."""
    sql = "SELECT id, provider, model, dimensions, state = 'live' FROM generation ORDER BY id"
    return [Generation(row[0], row[1], row[2], row[3], bool(row[4])) for row in rows(sql, ())]


def add(
    rows: Rows, provider: str, model: str, dimensions: int, *, live: bool, now: float, fresh: bool = False
) -> Generation:
    """A new, empty generation with its own vector table; a fresh one finds nothing in the cache."""
    if fresh:
        rows("DELETE FROM vector_cache WHERE model = ?", (model_name(provider, model, dimensions),))
    found = rows(
        "INSERT INTO generation (provider, model, dimensions, state, created_at) VALUES (?, ?, ?, ?, ?) RETURNING id",
        (provider, model, dimensions, "live" if live else "building", now),
    )
    identity = int(found[0][0])
    _create(rows, f"vector_{identity}")
    # To count them, and to find who has none, without walking over the vectors themselves.
    rows(f"CREATE INDEX vector_{identity}_chunk ON vector_{identity} (chunk)", ())
    return Generation(identity, provider, model, dimensions, live)


def _create(rows: Rows, table: str) -> None:
    rows(f"CREATE TABLE {table} (chunk INTEGER PRIMARY KEY, embedding BLOB NOT NULL)", ())


def lay_out_plainly(rows: Rows) -> None:
    """Turns vec0 tables, as they were before, into plain ones; the caller has a transaction around it."""
    sql = "SELECT name FROM sqlite_schema WHERE name GLOB 'vector_[0-9]*' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
    for (table,) in rows(sql, ()):
        _create(rows, "vector_plain")
        rows(f"INSERT INTO vector_plain SELECT chunk, embedding FROM {table} ORDER BY chunk", ())
        rows(f"DROP TABLE {table}", ())
        rows(f"ALTER TABLE vector_plain RENAME TO {table}", ())
        rows(f"CREATE INDEX {table}_chunk ON {table} (chunk)", ())


def make_live(rows: Rows, generation: int, *, now: float, keep: bool = False) -> None:
    """Swaps the generation in; the one that was live is dropped, or kept beside it."""
    for other in listed(rows):
        if other.live and other.id != generation and not keep:
            drop(rows, other.id, now=now)
    rows("UPDATE generation SET state = 'building' WHERE state = 'live'", ())
    rows("UPDATE generation SET state = 'live' WHERE id = ?", (generation,))


def drop(rows: Rows, generation: int, *, now: float) -> None:
    """Drops the generation; its newest vectors stay in the cache."""
    for other in listed(rows):
        if other.id == generation:
            _keep(rows, other, "TRUE", (), now=now)
            rows(f"DROP TABLE vector_{generation}", ())
            rows("DELETE FROM generation WHERE id = ?", (generation,))


def retire(rows: Rows, generation: Generation, *, limit: int, keep: bool, now: float) -> int:
    """Takes some vectors out of a generation, the newest first, into the cache or for good; how many."""
    table = f"vector_{generation.id}"
    last = rows(f"SELECT chunk FROM {table} ORDER BY chunk DESC LIMIT 1 OFFSET ?", (limit - 1,))
    first = int(last[0][0]) if last else 0
    if keep:
        _keep(rows, generation, "c.id >= ?", (first,), now=now)
    return len(rows(f"DELETE FROM {table} WHERE chunk >= ? RETURNING chunk", (first,)))


def remove_pieces(rows: Rows, pieces: Sequence[int], *, now: float) -> None:
    """Drops the vectors of pieces that are about to go; they stay in the cache."""
    gone = json.dumps(list(pieces))
    held = listed(rows)
    # The newest of a name may be one that is computed anew, because the vectors before it are not its model's.
    newest = {generation.name: generation.id for generation in held}
    for generation in held:
        if newest[generation.name] == generation.id:
            _keep(rows, generation, "c.id IN (SELECT value FROM json_each(?))", (gone,), now=now)
        rows(f"DELETE FROM vector_{generation.id} WHERE chunk IN (SELECT value FROM json_each(?))", (gone,))


def keep_vectors(rows: Rows, generation: Generation, vectors: Sequence[tuple[bytes, Vectors]], *, now: float) -> None:
    """Puts vectors into the cache, by the hash of their text."""
    for digest, vector in vectors:
        packed = np.ascontiguousarray(vector, dtype=np.float32).tobytes()
        rows(
            "INSERT OR REPLACE INTO vector_cache (model, hash, vector, kept_at) VALUES (?, ?, ?, ?)",
            (generation.name, digest, packed, now),
        )
    _thin_out(rows, now=now)


def _keep(rows: Rows, generation: Generation, which: str, values: Sequence[Any], *, now: float) -> None:
    rows(
        f"""INSERT OR REPLACE INTO vector_cache (model, hash, vector, kept_at)
            SELECT ?, c.hash, v.embedding, ? FROM chunk c JOIN vector_{generation.id} v ON v.chunk = c.id
            WHERE {which} ORDER BY c.id DESC LIMIT {_cache_limit(rows)}""",
        (generation.name, now, *values),
    )
    _thin_out(rows, now=now)


def _cache_limit(rows: Rows) -> int:
    return max(CACHED_VECTORS, int(rows("SELECT count(*) FROM chunk", ())[0][0]))


def _thin_out(rows: Rows, *, now: float) -> None:
    """Forgets what was kept for too long, and the oldest of what is too many."""
    rows("DELETE FROM vector_cache WHERE kept_at < ?", (now - CACHED_S,))
    surplus = int(rows("SELECT count(*) FROM vector_cache", ())[0][0]) - _cache_limit(rows)
    if surplus > 0:
        sql = "DELETE FROM vector_cache WHERE id IN (SELECT id FROM vector_cache ORDER BY kept_at, id LIMIT ?)"
        rows(sql, (surplus,))


def waiting(rows: Rows, generation: int, *, after: int, limit: int) -> list[Waiting]:
    """Pieces without a vector, by id."""
    sql = f"""SELECT c.id, c.hash, c.text, c.added_at, c.tokens FROM chunk c
              LEFT JOIN vector_{generation} v INDEXED BY vector_{generation}_chunk
              ON v.chunk = c.id WHERE c.id > ? AND v.chunk IS NULL ORDER BY c.id LIMIT ?"""
    return [Waiting(*row) for row in rows(sql, (after, limit))]


def waiting_count(rows: Rows, generation: int) -> int:
    """How many pieces have no vector."""
    sql = f"""SELECT (SELECT count(*) FROM chunk)
              - (SELECT count(*) FROM vector_{generation} INDEXED BY vector_{generation}_chunk)"""
    # Vectors without a piece, which a damaged index may have until it is healed, are no promise of more.
    return max(0, int(rows(sql, ())[0][0]))


def waiting_among(rows: Rows, generation: int, projects: frozenset[str]) -> int:
    """How many pieces of these projects have no vector."""
    sql = f"""SELECT count(*) FROM project p JOIN document d ON d.project = p.id JOIN chunk c ON c.document = d.id
              WHERE p.name IN (SELECT value FROM json_each(?)) AND NOT EXISTS
              (SELECT 1 FROM vector_{generation} v INDEXED BY vector_{generation}_chunk WHERE v.chunk = c.id)"""
    return int(rows(sql, (json.dumps(sorted(projects)),))[0][0])


def known_vectors(rows: Rows, generation: Generation, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
    """Vectors of equal texts: of pieces that are there, or were."""
    cached = "SELECT vector FROM vector_cache WHERE model = ? AND hash = ?"
    present = f"""SELECT v.embedding FROM chunk c JOIN vector_{generation.id} v ON v.chunk = c.id
        WHERE c.hash = ? LIMIT 1"""
    known: dict[bytes, Vectors] = {}
    for digest in set(hashes):
        found = rows(present, (digest,)) or rows(cached, (generation.name, digest))
        if found:
            known[digest] = np.frombuffer(found[0][0], dtype=np.float32)
    return known


def add_vectors(rows: Rows, generation: int, vectors: Sequence[tuple[int, Vectors]]) -> list[tuple[int, int, Vectors]]:
    """Stores vectors for the pieces that still exist and have none; (piece, document, vector) of those."""
    sql = f"""INSERT INTO vector_{generation} (chunk, embedding) SELECT id, ? FROM chunk WHERE id = ?
              ON CONFLICT (chunk) DO NOTHING RETURNING (SELECT document FROM chunk c WHERE c.id = ?)"""
    stored: list[tuple[int, int, Vectors]] = []
    for piece, vector in vectors:
        found = rows(sql, (np.ascontiguousarray(vector, dtype=np.float32).tobytes(), piece, piece))
        stored += [(piece, document, vector) for (document,) in found]
    return stored


def read_slice(rows: Rows, generation: int, *, after: int, limit: int) -> list[tuple[int, int, bytes]]:
    """(piece, document, vector) by rising piece."""
    sql = f"""SELECT v.chunk, c.document, v.embedding FROM vector_{generation} v JOIN chunk c ON c.id = v.chunk
              WHERE v.chunk > ? ORDER BY v.chunk LIMIT ?"""
    return rows(sql, (after, limit))


def nearest(
    rows: Rows, generation: int, vector: Vectors, documents: Sequence[int] | None, *, limit: int
) -> list[tuple[int, float]]:
    """(piece, cosine) by exact search of the whole table, nearest first; of some documents, None: of all."""
    sql = f"SELECT chunk, vec_distance_l2(embedding, ?) AS distance FROM vector_{generation}"
    values: list[Any] = [vector.tobytes()]
    if documents is not None:
        sql += " WHERE chunk IN (SELECT id FROM chunk WHERE document IN (SELECT value FROM json_each(?)))"
        values.append(json.dumps(list(documents)))
    sql += " ORDER BY distance, chunk LIMIT ?"
    values.append(limit)
    return [(piece, _cosine(distance)) for piece, distance in rows(sql, values)]


def cosines(rows: Rows, generation: int, vector: Vectors, pieces: Sequence[int]) -> dict[int, float]:
    """The true cosine of each piece that has a vector: 3 us each at 384 dimensions."""
    if not pieces:
        return {}
    sql = f"""SELECT v.chunk, vec_distance_l2(v.embedding, ?) FROM carray(?) j
              CROSS JOIN vector_{generation} v ON v.chunk = j.value"""
    found = rows(sql, (vector.tobytes(), carried(pieces)))
    return {piece: 1.0 - distance * distance / 2.0 for piece, distance in found}  # as _cosine, without 300 calls


def _cosine(distance: float) -> float:
    """Of unit vectors, from their L2 distance."""
    return 1.0 - distance * distance / 2.0
