"""Generations of vectors as SQL: one table `vector_<id>` for each (provider, model, dimensions), and the cache of vectors by text."""

# ruff: noqa: S608 - only table names with a number of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from confide_daemon.embed.protocol import Vectors
from confide_daemon.store.protocol import Generation, Waiting

Rows = Callable[[str, Sequence[Any]], list[Any]]

# How many vectors of vanished pieces are kept in case they come back: 30 MiB at 384 dimensions.
CACHED_VECTORS = 20_000
# sqlite-vec's own limit for nearest neighbours.
MOST_NEIGHBOURS = 4096


def listed(rows: Rows) -> list[Generation]:
    """All generations, the oldest first."""
    sql = "SELECT id, provider, model, dimensions, state = 'live' FROM generation ORDER BY id"
    return [Generation(row[0], row[1], row[2], row[3], bool(row[4])) for row in rows(sql, ())]


def add(rows: Rows, provider: str, model: str, dimensions: int, *, live: bool, now: float) -> Generation:
    """A new, empty generation with its own vector table."""
    found = rows(
        "INSERT INTO generation (provider, model, dimensions, state, created_at) VALUES (?, ?, ?, ?, ?) RETURNING id",
        (provider, model, dimensions, "live" if live else "building", now),
    )
    identity = int(found[0][0])
    rows(
        f"CREATE VIRTUAL TABLE vector_{identity} USING vec0("
        f"chunk INTEGER PRIMARY KEY, project INTEGER PARTITION KEY, embedding FLOAT[{int(dimensions)}])",
        (),
    )
    return Generation(identity, provider, model, dimensions, live)


def make_live(rows: Rows, generation: int, *, now: float) -> None:
    """Swaps the generation in and drops the one that was live."""
    for other in listed(rows):
        if other.live and other.id != generation:
            drop(rows, other.id, now=now)
    rows("UPDATE generation SET state = 'live' WHERE id = ?", (generation,))


def drop(rows: Rows, generation: int, *, now: float) -> None:
    """Drops the generation; its newest vectors stay in the cache."""
    for other in listed(rows):
        if other.id == generation:
            _keep(rows, other, "TRUE", (), now=now)
            rows(f"DROP TABLE vector_{generation}", ())
            rows("DELETE FROM generation WHERE id = ?", (generation,))


def remove_pieces(rows: Rows, pieces: Sequence[int], *, now: float) -> None:
    """Drops the vectors of pieces that are about to go; they stay in the cache."""
    gone = json.dumps(list(pieces))
    for generation in listed(rows):
        _keep(rows, generation, "c.id IN (SELECT value FROM json_each(?))", (gone,), now=now)
        for piece in pieces:
            rows(f"DELETE FROM vector_{generation.id} WHERE chunk = ?", (piece,))


def _keep(rows: Rows, generation: Generation, which: str, values: Sequence[Any], *, now: float) -> None:
    rows(
        f"""INSERT OR REPLACE INTO vector_cache (model, hash, vector, kept_at)
            SELECT ?, c.hash, v.embedding, ? FROM chunk c JOIN vector_{generation.id} v ON v.chunk = c.id
            WHERE {which} ORDER BY c.id DESC LIMIT {CACHED_VECTORS}""",
        (generation.name, now, *values),
    )
    surplus = int(rows("SELECT count(*) FROM vector_cache", ())[0][0]) - CACHED_VECTORS
    if surplus > 0:
        rows(
            """DELETE FROM vector_cache WHERE (model, hash) IN
               (SELECT model, hash FROM vector_cache ORDER BY kept_at LIMIT ?)""",
            (surplus,),
        )


def waiting(rows: Rows, generation: int, *, after: int, limit: int) -> list[Waiting]:
    """Pieces without a vector, by id."""
    sql = f"""SELECT c.id, c.hash, c.text, c.added_at FROM chunk c LEFT JOIN vector_{generation}_rowids v ON v.rowid = c.id
              WHERE c.id > ? AND v.rowid IS NULL ORDER BY c.id LIMIT ?"""
    return [Waiting(*row) for row in rows(sql, (after, limit))]


def waiting_count(rows: Rows, generation: int) -> int:
    """How many pieces have no vector."""
    sql = f"SELECT (SELECT count(*) FROM chunk) - (SELECT count(*) FROM vector_{generation}_rowids)"
    return int(rows(sql, ())[0][0])


def known_vectors(rows: Rows, generation: Generation, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
    """Vectors of equal texts: of pieces that are there, or were."""
    cached = "SELECT vector FROM vector_cache WHERE model = ? AND hash = ?"
    present = f"""SELECT v.embedding FROM vector_{generation.id} v WHERE v.chunk = (
        SELECT c.id FROM chunk c JOIN vector_{generation.id}_rowids r ON r.rowid = c.id WHERE c.hash = ? LIMIT 1)"""
    known: dict[bytes, Vectors] = {}
    for digest in set(hashes):
        found = rows(cached, (generation.name, digest)) or rows(present, (digest,))
        if found:
            known[digest] = np.frombuffer(found[0][0], dtype=np.float32)
    return known


def add_vectors(rows: Rows, generation: int, vectors: Sequence[tuple[int, Vectors]]) -> list[tuple[int, Vectors]]:
    """Stores vectors for the pieces that still exist and have none; which those were."""
    sql = f"""SELECT d.project FROM chunk c JOIN document d ON d.id = c.document
              WHERE c.id = ? AND c.id NOT IN (SELECT rowid FROM vector_{generation}_rowids)"""
    stored: list[tuple[int, Vectors]] = []
    for piece, vector in vectors:
        for (project,) in rows(sql, (piece,)):
            values = (piece, project, np.ascontiguousarray(vector, dtype=np.float32).tobytes())
            rows(f"INSERT INTO vector_{generation} (chunk, project, embedding) VALUES (?, ?, ?)", values)
            stored.append((piece, vector))
    return stored


def nearest(
    rows: Rows, generation: int, vector: Vectors, documents: Sequence[int] | None, *, limit: int
) -> list[tuple[int, float]]:
    """(piece, cosine) by sqlite-vec's exact search, nearest first; of some documents, None: of all."""
    sql = f"SELECT chunk, distance FROM vector_{generation} WHERE embedding MATCH ? AND k = ?"
    values: list[Any] = [vector.tobytes(), min(limit, MOST_NEIGHBOURS)]
    if documents is not None:
        sql += " AND chunk IN (SELECT id FROM chunk WHERE document IN (SELECT value FROM json_each(?)))"
        values.append(json.dumps(list(documents)))
    return [(piece, _cosine(distance)) for piece, distance in rows(sql, values)]


def cosines(rows: Rows, generation: int, vector: Vectors, pieces: Sequence[int]) -> dict[int, float]:
    """The true cosine of each piece that has a vector."""
    sql = f"""SELECT chunk, vec_distance_l2(embedding, ?) FROM vector_{generation}
              WHERE chunk IN (SELECT value FROM json_each(?))"""
    found = rows(sql, (vector.tobytes(), json.dumps(list(pieces))))
    return {piece: _cosine(distance) for piece, distance in found}


def _cosine(distance: float) -> float:
    """Of unit vectors, from their L2 distance."""
    return 1.0 - distance * distance / 2.0
