"""The pieces of notes as SQL: what tells whether two notes say the same, and which tags are in use."""

# ruff: noqa: S608 - only a number of our own is put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from confide_daemon.embed.protocol import Vectors
from confide_daemon.store.rows import NotePiece, NotePlace

Rows = Callable[[str, Sequence[Any]], list[Any]]

AMONG = "IN (SELECT value FROM json_each(?))"


def first_pieces(rows: Rows, documents: Sequence[int], *, first: int) -> list[NotePiece]:
    """The first pieces of notes, in order."""
    sql = f"""SELECT c.id, c.document, c.position, c.hash, c.tokens, c.text FROM chunk c JOIN note n ON n.document = c.document
              WHERE c.document {AMONG} AND c.position < ? ORDER BY c.document, c.position"""
    return [NotePiece(*row) for row in rows(sql, (json.dumps(list(documents)), first))]


def vectors(rows: Rows, generation: int, pieces: Sequence[int]) -> dict[int, Vectors]:
    """The vectors that pieces have."""
    sql = f"SELECT v.chunk, v.embedding FROM json_each(?) j CROSS JOIN vector_{generation} v ON v.chunk = j.value"
    found = rows(sql, (json.dumps(sorted(pieces)),))
    return {piece: np.frombuffer(packed, dtype=np.float32) for piece, packed in found}


def places(rows: Rows, projects: frozenset[str] | None) -> list[NotePlace]:
    """Where the notes of the projects lie, the newest text first."""
    values: list[Any] = []
    where = ""
    if projects is not None:
        where = f"WHERE p.name {AMONG}"
        values.append(json.dumps(sorted(projects)))
    sql = f"""SELECT n.document, p.name, n.task, n.updated_at FROM note n JOIN project p ON p.id = n.project {where}
              ORDER BY n.updated_at DESC, n.created_at DESC, n.document DESC"""
    return [NotePlace(*row) for row in rows(sql, values)]


def count(rows: Rows, projects: frozenset[str] | None, *, most: int) -> int:
    """How many notes the projects have, counted up to `most`."""
    where, values = "TRUE", []
    if projects is not None:
        where = f"n.project IN (SELECT id FROM project WHERE name {AMONG})"
        values = [json.dumps(sorted(projects))]
    return int(rows(f"SELECT count(*) FROM (SELECT 1 FROM note n WHERE {where} LIMIT ?)", (*values, most))[0][0])


def superseded(rows: Rows, documents: Sequence[int], projects: frozenset[str] | None) -> set[int]:
    """Those of the notes that another note of the projects says it supersedes."""
    values: list[Any] = [json.dumps(list(documents))]
    reached = ""
    if projects is not None:
        reached = f"JOIN project p ON p.id = a.project AND p.name {AMONG}"
        values.insert(0, json.dumps(sorted(projects)))
    sql = f"""SELECT DISTINCT b.document FROM note b JOIN note_relation r ON r.other = b.id AND r.kind = 'supersedes'
              JOIN note a ON a.document = r.document AND a.document != b.document {reached} WHERE b.document {AMONG}"""
    return {row[0] for row in rows(sql, values)}


def tags_among(rows: Rows, words: Sequence[str], projects: frozenset[str] | None) -> list[str]:
    """Those of the words, folded, that notes of the projects have for tags; in the order given."""
    values: list[Any] = [json.dumps(list(words))]
    reached = ""
    if projects is not None:
        reached = f"AND p.name {AMONG}"
        values.append(json.dumps(sorted(projects)))
    sql = f"""SELECT j.value FROM json_each(?) j WHERE EXISTS (SELECT 1 FROM note_tag t JOIN note n ON n.document = t.document
              JOIN project p ON p.id = n.project WHERE t.tag = j.value {reached}) ORDER BY j.key"""
    return [row[0] for row in rows(sql, values)]
