"""The vectors of the live generation in memory, for searching at memory speed.

sqlite-vec finds the nearest of 10,000 vectors in 7 ms, and needs 25 us for the vector of one given piece, because its rows lie in
chains of pages; here both are one product of a matrix and a vector, about 1 ms. What is here is a copy: it is filled from the
database, follows what was committed, and a search goes to the database whenever the copy is not there (being loaded, too large,
another generation). Plaintext vectors are in memory only while the space is open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from confide_daemon.embed.protocol import Vectors

# 43,000 pieces at 384 dimensions. A larger space is searched in the database.
SCAN_BYTES = 64 * 1024 * 1024


class VectorScan:
    """One for each open space, shared by its connections. Changes come after their commit, and may come twice."""

    def __init__(self, *, limit_bytes: int = SCAN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._generation: int | None = None
        self._refused: int | None = None  # a generation that was too large
        self._rows: Vectors = np.empty((0, 0), dtype=np.float32)
        self._ids = np.empty(0, dtype=np.int64)
        self._at: dict[int, int] = {}

    def serves(self, generation: int) -> bool:
        """Whether the generation can be searched here."""
        return self._generation == generation

    def wants(self, generation: int) -> bool:
        """Whether it is worth loading the generation."""
        return self._generation != generation and self._refused != generation

    def load(self, generation: int, dimensions: int, read: Callable[[], Iterable[tuple[int, bytes]]]) -> None:
        """Fills the copy. `read` must see everything committed when it is called; changes wait meanwhile and follow."""
        with self._lock:
            self._generation = None
            rows = [(piece, packed) for piece, packed in read()]
            if len(rows) * dimensions * 4 > self._limit_bytes:
                self._refused = generation
                return
            self._ids = np.array([piece for piece, _ in rows], dtype=np.int64)
            packed = b"".join(vector for _, vector in rows)
            self._rows = np.frombuffer(packed, dtype=np.float32).reshape(len(rows), dimensions).copy()
            self._at = {piece: row for row, (piece, _) in enumerate(rows)}
            self._generation = generation

    def add(self, generation: int, vectors: Sequence[tuple[int, Vectors]]) -> None:
        """Takes in new vectors, or drops the copy when it gets too large."""
        with self._lock:
            if self._generation != generation:
                return
            new = [(piece, vector) for piece, vector in vectors if piece not in self._at]
            needed = len(self._at) + len(new)
            if needed * self._rows.shape[1] * 4 > self._limit_bytes:
                self._forget()
                self._refused = generation
                return
            if needed > len(self._ids):
                self._grow(needed)
            for piece, vector in new:
                row = len(self._at)
                self._rows[row], self._ids[row], self._at[piece] = vector, piece, row

    def remove(self, pieces: Iterable[int]) -> None:
        """Drops vectors; the last one takes the place of each."""
        with self._lock:
            for piece in pieces:
                row = self._at.pop(piece, None)
                if row is None:
                    continue
                last = len(self._at)
                if row != last:
                    self._rows[row], self._ids[row] = self._rows[last], self._ids[last]
                    self._at[int(self._ids[row])] = row

    def nearest(
        self, generation: int, vector: Vectors, limit: int, allowed: Callable[[], Sequence[int]] | None
    ) -> list[tuple[int, float]] | None:
        """(piece, cosine) of the nearest, best first; None when the generation is not here.

        Args:
            allowed: gives the pieces that may be found; None: all.
        """
        with self._lock:
            if self._generation != generation:
                return None
            count = len(self._at)
            if allowed is None:
                ids, cosines = self._ids[:count], self._rows[:count] @ vector
            else:
                rows = [self._at[piece] for piece in allowed() if piece in self._at]
                ids, cosines = self._ids[rows], self._rows[rows] @ vector
            if len(cosines) > limit:
                best = np.argpartition(cosines, len(cosines) - limit)[-limit:]
                ids, cosines = ids[best], cosines[best]
            # Ties in the order of the pieces, so that the same question always gets the same answer.
            order = np.lexsort((ids, -cosines))
            return list(zip(ids[order].tolist(), cosines[order].tolist(), strict=True))

    def cosines(self, generation: int, vector: Vectors, pieces: Sequence[int]) -> dict[int, float] | None:
        """The cosine of each piece that is here; None when the generation is not."""
        with self._lock:
            if self._generation != generation:
                return None
            present = [piece for piece in pieces if piece in self._at]
            values = self._rows[[self._at[piece] for piece in present]] @ vector
            return dict(zip(present, values.tolist(), strict=True))

    def _grow(self, needed: int) -> None:
        capacity = max(needed, len(self._ids) * 3 // 2, 1024)
        rows = np.empty((capacity, self._rows.shape[1]), dtype=np.float32)
        ids = np.empty(capacity, dtype=np.int64)
        count = len(self._at)
        rows[:count], ids[:count] = self._rows[:count], self._ids[:count]
        self._rows, self._ids = rows, ids

    def _forget(self) -> None:
        self._generation = None
        self._rows = np.empty((0, 0), dtype=np.float32)
        self._ids = np.empty(0, dtype=np.int64)
        self._at = {}
