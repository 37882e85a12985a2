"""An in-memory index of vectors as sign bits: one bit per dimension, so that a search scans all
vectors of a space in a millisecond.

A search has three steps:

- It selects the vectors with the fewest sign bits different from the query's. That number falls as
  the cosine grows (Charikar, "Similarity estimation techniques from rounding algorithms", STOC
  2002).
- It ranks these by the product of their signs with the query's own numbers, which halves the error.
  The numbers are quantized to five bit planes (as in RaBitQ, SIGMOD 2024, without its rotation,
  which gains nothing on MiniLM).
- The caller computes the true cosines of the rest.

The bits are stored column-major: the first 64-bit word of all vectors lies together, then the
second, and each step is a pass over them.

Recall@10 on 100,000 real and perturbed MiniLM vectors: 512 by differences alone 0.989, 512 by
products of 4,096 0.999; of the nearest 192: 0.82 and 0.94. On 1,000,000: 512 of 8,192 0.984, 784 of
20,833 0.994.

The codes of the live generation (`VectorScan`) are a copy. They are loaded from the database in
slices and follow its commits. While they are missing (loading, too large, another generation), a
search uses the database. They are in memory only while the space is open: 60 to 80 bytes for a
chunk at 384 dimensions, 144 to 180 at 1,024. Searches take no lock: each continues with the value
that it began with while a newer one replaces it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from confide_daemon.embedding.embedder import Vectors

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

WORD_BITS = 64
# Rows per step, so that the words, differences and counts of a step stay in the second-level cache
# (32,768 x 19 bytes).
BLOCK = 32_768
SPARE = 1024
SAMPLE, SAMPLED = 16, 200_000
# Rows that the first step passes to the second, at least; of a large space one in COARSE_SHARE. The
# second step takes 0.2 ms for them at 384 dimensions.
COARSE = 4096
COARSE_SHARE = 48
# Standard deviations above the mean that the number of differing signs of two near texts may have.
# The most was 2.2 with MiniLM in 15,000 pairs, and 8.6 with bge-small-en-v1.5 in 120,000, whose
# vectors all point one way.
DEVIATIONS = 9
# Bits per number of a query. Recall@10 of the second step alone, 128 left of 20,000: 2 bits 0.981,
# 3 0.996, 4 and more 0.997.
PLANES = 5
# Removed rows stay in the matrix while they are at most one in so many.
MOST_GONE = 8
# 4 million chunks at 384 dimensions. A larger space is searched in the database.
SCAN_BYTES = 256 * 1024 * 1024
# Rows per slice while loading: 20 ms.
SLICE = 4096


@dataclass(eq=False, slots=True)
class Codes:
    """The codes (sign bits of vectors) of some chunks, by ascending id. A change creates a new
    object, so a search with an older one is not disturbed.

    Only the newest object may be changed: it shares its arrays with the ones before it.
    """

    dimensions: int
    _words: Words  # (64-bit words of a vector, capacity)
    _ids: Numbers
    _documents: Numbers
    _count: int
    _removed_rows: Numbers  # rows whose pieces were removed

    @classmethod
    def empty(cls, dimensions: int) -> Codes:
        words = np.empty(((dimensions + WORD_BITS - 1) // WORD_BITS, 0), dtype=np.uint64)
        none = np.empty(0, dtype=np.int64)
        return cls(dimensions, words, none, none, 0, none)

    def __len__(self) -> int:
        return self._count - len(self._removed_rows)

    @property
    def size_bytes(self) -> int:
        return self._words.nbytes + self._ids.nbytes + self._documents.nbytes

    def with_rows(self, ids: Numbers, documents: Numbers, words: Words) -> Codes:
        """Return these codes and those of additional chunks, none of which may be present yet
        (`missing`). `words`: the new codes, from `pack`.
        """
        if not len(ids):
            return self
        total = self._count + len(ids)
        rising = np.all(ids[1:] > ids[:-1]) and (not self._count or ids[0] > self._ids[self._count - 1])
        if not rising:
            return self._merge(ids, documents, words)
        held = (self._words, self._ids, self._documents)
        if total > len(self._ids):
            held = self._room(total + total // 4 + SPARE)
        held[0][:, self._count : total] = words.T
        held[1][self._count : total] = ids
        held[2][self._count : total] = documents
        return Codes(self.dimensions, *held, total, self._removed_rows)

    def _room(self, room: int) -> tuple[Words, Numbers, Numbers]:
        count = self._count
        words = np.empty((len(self._words), room), dtype=np.uint64)
        ids, documents = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
        words[:, :count] = self._words[:, :count]
        ids[:count], documents[:count] = self._ids[:count], self._documents[:count]
        return words, ids, documents

    def _merge(self, ids: Numbers, documents: Numbers, words: Words) -> Codes:
        """Insert vectors that arrive out of order (from several concurrent batches) by copying
        everything: 3 ms for 100,000.
        """
        count = self._count
        all_ids = np.concatenate((self._ids[:count], ids))
        order = np.argsort(all_ids, kind="stable")
        all_words = np.concatenate((self._words[:, :count], words.T), axis=1)[:, order]
        gone = np.flatnonzero(np.isin(order, self._removed_rows)) if len(self._removed_rows) else self._removed_rows
        all_documents = np.concatenate((self._documents[:count], documents))[order]
        return Codes(self.dimensions, all_words, all_ids[order], all_documents, len(order), gone)

    def missing(self, ids: Numbers) -> npt.NDArray[np.bool_]:
        """Return a mask over the given chunk ids: True for those without a code."""
        return self._rows(ids) < 0

    def without(self, ids: Numbers) -> Codes:
        """Return the codes without these chunks; unknown ids are ignored. The arrays are compacted
        before removed rows make up an eighth of them.
        """
        rows = self._rows(np.unique(ids))
        rows = rows[rows >= 0]
        if not len(rows):
            return self
        gone = np.union1d(self._removed_rows, rows)
        if len(gone) * MOST_GONE <= self._count:
            return Codes(self.dimensions, self._words, self._ids, self._documents, self._count, gone)
        kept = np.ones(self._count, dtype=np.bool_)
        kept[gone] = False
        count = self._count
        words = np.ascontiguousarray(self._words[:, :count][:, kept])
        ids, documents = self._ids[:count][kept], self._documents[:count][kept]
        return Codes(self.dimensions, words, ids, documents, len(ids), np.empty(0, dtype=np.int64))

    def _rows(self, ids: Numbers) -> Numbers:
        """Return the row of each chunk, -1 if it is missing."""
        held = self._ids[: self._count]
        rows = np.searchsorted(held, ids)
        found = rows < self._count
        found[found] = held[rows[found]] == ids[found]
        if len(self._removed_rows):
            found &= ~np.isin(rows, self._removed_rows)
        return np.where(found, rows, -1)

    def nearest(self, vector: Vectors, limit: int, documents: Sequence[int] | None) -> Numbers:
        """Return the ids of about `limit` chunks that are most likely nearest to a query's vector,
        in no order. The same input gives the same result.

        `documents`: search only the chunks of these documents; None: all. If they have at most
        `limit` chunks, all of these are returned.
        """
        rows = np.arange(0) if documents is None else self._standing(np.flatnonzero(self._of(documents)))
        if documents is None:
            rows = self._coarse(vector, None)
        elif len(rows) > self._most_coarse:
            rows = self._coarse(vector, rows)
        if len(rows) > limit:
            scores = _products(self._words[:, rows], vector)
            rows = rows[np.argpartition(-scores, limit)[:limit]]
        return np.asarray(self._ids[rows])

    def close(self, vector: Vectors, least: float, *, most: int) -> Numbers | None:
        """Return all chunks whose cosine with a vector may reach `least`, or None if there are more
        than `most`.

        It finds near-duplicates, which are few, with one pass over the codes instead of three
        steps.
        """
        count = self._count
        differences = _differences(self._words[:, :count], pack(vector)[0])
        rows = self._standing(np.flatnonzero(differences <= _most_differences(least, self.dimensions)))
        return np.asarray(self._ids[rows]) if len(rows) <= most else None

    def _standing(self, rows: Numbers) -> Numbers:
        return np.setdiff1d(rows, self._removed_rows, assume_unique=True) if len(self._removed_rows) else rows

    def _coarse(self, vector: Vectors, allowed: Numbers | None) -> Numbers:
        """Return the rows (within `allowed`) with the fewest differing signs."""
        count, most = self._count, self._most_coarse
        if count <= most:
            return self._standing(np.arange(count))
        code = pack(vector)[0]
        if allowed is not None and len(allowed) < count // 4:
            return np.asarray(allowed[_least(_differences(self._words[:, allowed], code), most, self.dimensions)])
        differences = _differences(self._words[:, :count], code)
        if allowed is not None:
            barred = np.ones(count, dtype=np.bool_)
            barred[allowed] = False
            differences[barred] = self.dimensions + 1
        differences[self._removed_rows] = self.dimensions + 1
        return _least(differences, most, self.dimensions)

    @property
    def _most_coarse(self) -> int:
        return max(COARSE, self._count // COARSE_SHARE)

    def _of(self, documents: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that belong to the documents."""
        held = self._documents[: self._count]
        table = np.zeros(int(held.max(initial=0)) + 1, dtype=np.bool_)
        wanted = np.asarray(documents, dtype=np.int64)
        table[wanted[wanted < len(table)]] = True
        return np.asarray(table[held])


def pack(vectors: Vectors) -> Words:
    """Return the codes of vectors, one row for each vector."""
    bits = np.packbits(np.atleast_2d(vectors) > 0, axis=1)
    spare = -bits.shape[1] % (WORD_BITS // 8)
    if spare:
        bits = np.pad(bits, ((0, 0), (0, spare)))
    return np.ascontiguousarray(bits).view(np.uint64)


def _differences(words: Words, code: Words) -> npt.NDArray[np.uint16]:
    """Count the sign bits in which each row differs from the code."""
    count = words.shape[1]
    total = np.zeros(count, dtype=np.uint16)
    size = min(BLOCK, count)
    changed, ones = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint8)
    for start in range(0, count, BLOCK):
        end = min(count, start + BLOCK)
        rows = end - start
        for column, word in zip(words, code, strict=True):
            np.bitwise_xor(column[start:end], word, out=changed[:rows])
            np.bitwise_count(changed[:rows], out=ones[:rows])
            np.add(total[start:end], ones[:rows], out=total[start:end])
    return total


def _most_differences(cosine: float, dimensions: int) -> int:
    """Return the number of signs in which two vectors of this cosine differ at most.

    Each sign differs with the probability of the angle over a half turn (Charikar). Were the signs
    independent, the number would have a binomial distribution; `DEVIATIONS` allows for more.
    """
    share = math.acos(max(-1.0, min(1.0, cosine))) / math.pi
    return math.ceil(dimensions * share + DEVIATIONS * math.sqrt(dimensions * share * (1 - share)))


def _least(differences: npt.NDArray[np.uint16], limit: int, most: int) -> Numbers:
    """Return the rows with the smallest numbers, at most `limit`, none above `most`. For 100,000
    rows counting takes 0.2 ms, a partition 0.9.
    """
    if len(differences) > SAMPLED:
        # A sample estimates the number below which these rows and a few more lie; the others are
        # not counted.
        sample = np.cumsum(np.bincount(differences[::SAMPLE], minlength=most + 2)[: most + 1])
        near = np.flatnonzero(differences <= min(most, int(np.searchsorted(sample, limit * 5 // 4 // SAMPLE))))
        if limit <= len(near) < len(differences):
            return np.asarray(near[_least(differences[near], limit, most)])
    reached = np.cumsum(np.bincount(differences, minlength=most + 2)[: most + 1])
    border = int(np.searchsorted(reached, limit))
    if border > most:
        return np.flatnonzero(differences <= most)
    below = np.flatnonzero(differences < border)
    return np.concatenate((below, np.flatnonzero(differences == border)[: limit - len(below)]))


def _products(words: Words, vector: Vectors) -> Vectors:
    """Return the approximate dot product of the query with each row's sign bits, up to an amount
    that all rows share.
    """
    least = np.float32(vector.min())
    step = np.float32(max(float(vector.max() - least), 1e-30) / (2**PLANES - 1))
    levels = np.rint((vector - least) / step).astype(np.uint8)
    products = _ones(words, None) * least
    for plane, mask in enumerate(pack(levels >> np.arange(PLANES, dtype=np.uint8)[:, None] & 1)):
        products += _ones(words, mask) * (step * np.float32(2**plane))
    return np.asarray(products, dtype=np.float32)


def _ones(words: Words, mask: Words | None) -> npt.NDArray[np.uint16]:
    """Count the set bits of each row, within the mask."""
    count = words.shape[1]
    total = np.zeros(count, dtype=np.uint16)
    masked, ones = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint8)
    for at, column in enumerate(words):
        np.bitwise_count(column if mask is None else np.bitwise_and(column, mask[at], out=masked), out=ones)
        np.add(total, ones, out=total)
    return total


@dataclass(slots=True)
class _Loading:
    """Codes that are being loaded. Concurrent commits are kept in `added` and `removed` until the
    end.
    """

    generation: int
    dimensions: int
    after: int = 0  # the last piece that was read
    parts: list[tuple[Numbers, Numbers, Words]] = field(default_factory=list)
    added: list[tuple[Numbers, Numbers, Words]] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)

    def finish(self) -> Codes:
        codes = Codes.empty(self.dimensions)
        parts = [*self.parts, *self.added]
        if parts:
            ids, documents, words = (np.concatenate(part) for part in zip(*parts, strict=True))
            ids, first = np.unique(ids, return_index=True)
            codes = codes.with_rows(ids, documents[first], words[first])
        return codes.without(np.fromiter(self.removed, dtype=np.int64))


class VectorScan:
    """The codes of one open space's vectors, shared by its connections. Changes must be reported
    after their commit, and may be reported twice.
    """

    def __init__(self, *, limit_bytes: int = SCAN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._changing = threading.Lock()
        self._live: tuple[int, Codes] | None = None
        self._loading: _Loading | None = None
        self._refused_bytes: int | None = None  # a generation that was too large

    @property
    def size_bytes(self) -> int:
        live = self._live
        return 0 if live is None else live[1].size_bytes

    def codes(self, generation: int) -> Codes | None:
        """Return the sign bits of all vectors of a generation, which a search compares first; None if
        they are not in memory. A generation is the set of vectors that one embedding model made.
        """
        live = self._live
        return live[1] if live is not None and live[0] == generation else None

    def next_slice(self, generation: int, dimensions: int) -> int | None:
        """Return the chunk id after which the next slice of vectors to load begins, or None if
        nothing is left to load. Read the slice in a transaction that starts after this call.

        If the codes of another generation are loaded, they are dropped at once: only one serves
        searches.
        """
        with self._changing:
            if self._live is not None and self._live[0] == generation:
                return None
            if self._refused_bytes == generation:
                return None
            if self._loading is None or self._loading.generation != generation:
                self._live = None
                self._loading = _Loading(generation, dimensions)
            return self._loading.after

    def load(self, generation: int, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Add a slice of (chunk, document, vector), ordered by chunk. An empty slice ends the
        loading; from then on searches use the codes.
        """
        ids, documents, words = _columns(rows)
        with self._changing:
            loading = self._loading
            if loading is None or loading.generation != generation:
                return
            if len(ids):
                if ids[0] > loading.after:  # another thread may have loaded it already
                    loading.parts.append((ids, documents, words))
                    loading.after = int(ids[-1])
                    self._check(generation, sum(len(part[0]) for part in loading.parts), loading.dimensions)
                return
            self._live, self._loading = (generation, loading.finish()), None

    def abandon(self, generation: int) -> None:
        """Stop loading the codes of a set of vectors that was dropped, and discard them."""
        with self._changing:
            if self._loading is not None and self._loading.generation == generation:
                self._loading = None

    def add(self, generation: int, vectors: Sequence[tuple[int, int, Vectors]]) -> None:
        """Add codes of new (chunk, document, vector). If all codes grow too large, drop them."""
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
        ids = np.fromiter(pieces, dtype=np.int64)
        with self._changing:
            if self._loading is not None:
                self._loading.removed.update(ids.tolist())
            if self._live is not None:
                generation, codes = self._live
                self._live = (generation, codes.without(ids))

    def forget(self) -> None:
        """Drop all codes after a repair of the vectors in the database. They are loaded again
        later.
        """
        with self._changing:
            self._live = self._loading = self._refused_bytes = None

    def _check(self, generation: int, count: int, dimensions: int) -> None:
        if count * (dimensions // 8 + 16) > self._limit_bytes:
            self._live = self._loading = None
            self._refused_bytes = generation


def _columns(rows: Sequence[tuple[int, int, bytes]]) -> tuple[Numbers, Numbers, Words]:
    if not rows:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.uint64)
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    documents = np.array([row[1] for row in rows], dtype=np.int64)
    vectors = np.frombuffer(b"".join(row[2] for row in rows), dtype=np.float32).reshape(len(rows), -1)
    return ids, documents, pack(vectors)
