"""The codes of the live generation in memory, for searching at memory speed.

They are a copy: filled from the database in slices, in step with what is committed, and a search goes to the database whenever they
are not there (being loaded, too large, another generation). They are in memory only while the space is open: 60 to 80 bytes for a piece
at 384 dimensions, 144 to 180 at 1,024. Searches take no lock: they go on with the value they began with while a newer one takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from confide_daemon.embed.protocol import Vectors
from confide_daemon.store.codes import Codes, Numbers, Words, pack

# 4 million pieces at 384 dimensions. A larger space is searched in the database.
SCAN_BYTES = 256 * 1024 * 1024
# Rows read from the database in one go while loading: 20 ms.
SLICE = 4096


@dataclass(slots=True)
class _Loading:
    """A copy that is being filled. What is committed meanwhile waits until the end."""

    generation: int
    dimensions: int
    after: int = 0  # the last piece that was read
    parts: list[tuple[Numbers, Numbers, Words]] = field(default_factory=list)
    added: list[tuple[Numbers, Numbers, Words]] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)

    def finished(self) -> Codes:
        codes = Codes.empty(self.dimensions)
        parts = [*self.parts, *self.added]
        if parts:
            ids, documents, words = (np.concatenate(part) for part in zip(*parts, strict=True))
            ids, first = np.unique(ids, return_index=True)
            codes = codes.with_rows(ids, documents[first], words[first])
        return codes.without(np.fromiter(self.removed, dtype=np.int64))


class VectorScan:
    """One for each open space, shared by its connections. Changes come after their commit, and may come twice."""

    def __init__(self, *, limit_bytes: int = SCAN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._changing = threading.Lock()
        self._live: tuple[int, Codes] | None = None
        self._loading: _Loading | None = None
        self._refused: int | None = None  # a generation that was too large

    @property
    def size_bytes(self) -> int:
        """The memory held for searching."""
        live = self._live
        return 0 if live is None else live[1].size_bytes

    def codes(self, generation: int) -> Codes | None:
        """The codes to search, None when the generation is not here."""
        live = self._live
        return live[1] if live is not None and live[0] == generation else None

    def next_slice(self, generation: int, dimensions: int) -> int | None:
        """Behind which piece the next slice is to be read, in a view that is opened after this; None: nothing is to be loaded.

        Another generation than the one here begins anew and takes its place at once: only one is ever live.
        """
        with self._changing:
            if self._live is not None and self._live[0] == generation:
                return None
            if self._refused == generation:
                return None
            if self._loading is None or self._loading.generation != generation:
                self._live = None
                self._loading = _Loading(generation, dimensions)
            return self._loading.after

    def load(self, generation: int, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Takes a slice of (piece, document, vector), by rising piece; an empty one is the end, and from then on the copy is searched."""
        ids, documents, words = _columns(rows)
        with self._changing:
            loading = self._loading
            if loading is None or loading.generation != generation:
                return
            if len(ids):
                if ids[0] > loading.after:  # another thread may have brought it already
                    loading.parts.append((ids, documents, words))
                    loading.after = int(ids[-1])
                    self._check(generation, sum(len(part[0]) for part in loading.parts), loading.dimensions)
                return
            self._live, self._loading = (generation, loading.finished()), None

    def abandon(self, generation: int) -> None:
        """The generation is no more: what was loaded of it goes."""
        with self._changing:
            if self._loading is not None and self._loading.generation == generation:
                self._loading = None

    def add(self, generation: int, vectors: Sequence[tuple[int, int, Vectors]]) -> None:
        """Takes in new (piece, document, vector), or drops the copy when it gets too large."""
        ids = np.array([piece for piece, _, _ in vectors], dtype=np.int64)
        if not len(ids):
            return
        documents = np.array([document for _, document, _ in vectors], dtype=np.int64)
        words = pack(np.stack([vector for _, _, vector in vectors]))
        ids, first = np.unique(ids, return_index=True)
        documents, words = documents[first], words[first]
        with self._changing:
            if self._loading is not None and self._loading.generation == generation:
                self._loading.added.append((ids, documents, words))
            codes = self.codes(generation)
            if codes is not None:
                new = codes.missing(ids)
                codes = codes.with_rows(ids[new], documents[new], words[new])
                self._live = (generation, codes)
                self._check(generation, len(codes), codes.dimensions)

    def remove(self, pieces: Iterable[int]) -> None:
        """Drops pieces."""
        ids = np.fromiter(pieces, dtype=np.int64)
        with self._changing:
            if self._loading is not None:
                self._loading.removed.update(ids.tolist())
            if self._live is not None:
                generation, codes = self._live
                self._live = (generation, codes.without(ids))

    def forget(self) -> None:
        """The vectors were put right in the database: the copy has to be loaded again."""
        with self._changing:
            self._live = self._loading = self._refused = None

    def _check(self, generation: int, count: int, dimensions: int) -> None:
        if count * (dimensions // 8 + 16) > self._limit_bytes:
            self._live = self._loading = None
            self._refused = generation


def _columns(rows: Sequence[tuple[int, int, bytes]]) -> tuple[Numbers, Numbers, Words]:
    if not rows:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.uint64)
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    documents = np.array([row[1] for row in rows], dtype=np.int64)
    vectors = np.frombuffer(b"".join(row[2] for row in rows), dtype=np.float32).reshape(len(rows), -1)
    return ids, documents, pack(vectors)
