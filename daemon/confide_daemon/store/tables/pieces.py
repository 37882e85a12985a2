"""Pieces of documents as SQL, each with its row of the full text, and which of them stay when a document is cut again."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from confide_daemon.store.connection import carried
from confide_daemon.store.database import Database, Table
from confide_daemon.store.rows import DocumentRow, HitRow, Piece, PieceChanges, Place
from confide_daemon.store.tables.keyword import KeywordTable
from confide_daemon.store.tables.vectors import VectorTables

# Above this, exact alignment costs more than the ids it would save.
ALIGNED_PIECES = 2000


def piece_hash(text: str) -> bytes:
    """What makes two pieces the same text: they share a vector."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class PieceTable(Table):
    """The pieces that documents are cut into."""

    def __init__(self, database: Database, keywords: KeywordTable, vectors: VectorTables) -> None:
        super().__init__(database)
        self._keywords = keywords
        self._vectors = vectors

    def add(self, document: DocumentRow, pieces: Sequence[Piece], *, now: float) -> None:
        """Adds pieces behind those of the document, whose text has grown at its end."""
        sql = "SELECT coalesce(max(position), -1) + 1 FROM chunk WHERE document = ?"
        first = int(self._one(sql, (document.id,)))
        for position, piece in enumerate(pieces, first):
            self._add(document, position, piece, piece_hash(piece.text), now=now)
        sql = "UPDATE document SET cut_hash = hash, pieces = ? WHERE id = ?"
        self._rows(sql, (first + len(pieces), document.id))

    def replace(
        self, document: DocumentRow, pieces: Sequence[Piece], *, chunking: str, now: float, words: str = ""
    ) -> PieceChanges:
        """Makes these the pieces of the document; those with unchanged text keep their ids and vectors. `words`: see `KeywordTable.add`."""
        other_words = self._one("SELECT words FROM document WHERE id = ?", (document.id,)) != words
        present = self._rows(
            "SELECT id, hash, position, start_line, end_line, heading FROM chunk WHERE document = ? ORDER BY position",
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
                if row[2:] != (position, piece.start_line, piece.end_line, piece.heading):
                    self._rows(
                        "UPDATE chunk SET position = ?, start_line = ?, end_line = ?, heading = ? WHERE id = ?",
                        (position, piece.start_line, piece.end_line, piece.heading, row[0]),
                    )
                if row[5] != piece.heading or document.chunking != chunking or other_words:
                    self._keywords.update(row[0], document.path, piece.heading, piece.text, words)
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
            """INSERT INTO chunk (document, position, start_line, end_line, heading, tokens, hash, text, added_at)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id""",
            (*place, piece.tokens, digest, piece.text, now),
        )
        self._keywords.add(identity, document.path, piece.heading, piece.text, words)

    def remove(self, pieces: Sequence[int], *, now: float) -> None:
        """Drops pieces with all that is derived from them."""
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

    def places(self, pieces: Sequence[int]) -> list[Place]:
        if not pieces:
            return []
        sql = """SELECT c.id, c.document, c.position, d.day, p.name, d.source, d.pieces FROM carray(?) j
                 CROSS JOIN chunk c ON c.id = j.value CROSS JOIN document d ON d.id = c.document CROSS JOIN project p ON p.id = d.project"""
        return [Place._make(row) for row in self._rows(sql, (carried(pieces),))]

    def hits(self, pieces: Sequence[int]) -> dict[int, HitRow]:
        if not pieces:
            return {}
        sql = """SELECT c.id, c.document, c.position, c.start_line, c.end_line, c.heading, c.tokens, c.text, p.name, d.path,
                 d.source, d.author, d.updated_at, d.words, d.importance, coalesce(u.uses, 0)
                 FROM carray(?) j CROSS JOIN chunk c ON c.id = j.value CROSS JOIN document d ON d.id = c.document
                 CROSS JOIN project p ON p.id = d.project LEFT JOIN document_use u ON u.document = d.id"""
        return {row[0]: HitRow._make(row) for row in self._rows(sql, (carried(pieces),))}

    def texts_around(self, pieces: Sequence[int], *, reach: int) -> dict[tuple[int, int], str]:
        """The texts of the pieces and of so many before and after each in its document, by (document, position)."""
        if not pieces:
            return {}
        sql = """SELECT n.document, n.position, n.text FROM carray(?) j CROSS JOIN chunk c ON c.id = j.value
                 CROSS JOIN chunk n ON n.document = c.document AND n.position BETWEEN c.position - ? AND c.position + ?"""
        found = self._rows(sql, (carried(pieces), reach, reach))
        return {(document, position): text for document, position, text in found}


def match_pieces(old: Sequence[bytes], new: Sequence[bytes]) -> dict[int, int]:
    """Which old piece each new one with the same text is: {new position: old position}, each old piece once.

    Runs are aligned where that is cheap, so that of equal pieces those in their place stay; what is left is matched by hash in order.
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
