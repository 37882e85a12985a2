"""The keyword leg as SQL: an FTS5 table with one row for each piece, its row id the piece's."""

# ruff: noqa: S608 - only constants of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.store.pieces import piece_header

Rows = Callable[[str, Sequence[Any]], list[Any]]

# A piece's header (path, headings, date) counts as much as its text.
HEADER_WEIGHT = 1.0


def add(rows: Rows, piece: int, path: str, heading: str, text: str) -> None:
    """The row of a new piece."""
    values = (piece, piece_header(path, heading), text)
    rows("INSERT INTO keyword (rowid, header, body) VALUES (?, ?, ?)", values)


def update(rows: Rows, piece: int, path: str, heading: str, text: str) -> None:
    """The row of a piece whose headings have changed."""
    values = (piece_header(path, heading), text, piece)
    rows("UPDATE keyword SET header = ?, body = ? WHERE rowid = ?", values)


def remove(rows: Rows, pieces: Sequence[int]) -> None:
    """Drops the rows of pieces."""
    rows("DELETE FROM keyword WHERE rowid IN (SELECT value FROM json_each(?))", (json.dumps(list(pieces)),))


def candidates(rows: Rows, match: str, documents: Sequence[int] | None, *, limit: int) -> list[tuple[int, float]]:
    """(piece, BM25 score, higher is better), best first; of some documents, None: of all."""
    if not match:
        return []
    rank = f"bm25(keyword, {HEADER_WEIGHT}, 1.0)"
    if documents is None:
        sql = f"SELECT rowid, -{rank} FROM keyword WHERE keyword MATCH ? ORDER BY {rank} LIMIT ?"
        return rows(sql, (match, limit))
    sql = f"""SELECT keyword.rowid, -{rank} FROM keyword CROSS JOIN chunk c ON c.id = keyword.rowid
              WHERE keyword MATCH ? AND c.document IN (SELECT value FROM json_each(?)) ORDER BY {rank} LIMIT ?"""
    return rows(sql, (match, json.dumps(list(documents)), limit))
