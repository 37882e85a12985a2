"""Vectors as the signs of their numbers: one bit for each dimension, so that all of a space are looked at in a millisecond.

First by how many signs differ from the question's, which falls as the cosine grows (Charikar, "Similarity estimation techniques from
rounding algorithms", STOC 2002); then the best of these by the product of their signs with the question's own numbers, which is half
the error away, the numbers taken as five planes of bits (as RaBitQ, SIGMOD 2024, without its rotation: no gain on MiniLM). Who asks
computes the true cosines of what is left. Words are column-major: one word of all vectors lies together, and each step is a pass over it.

Recall@10 on 100,000 real and perturbed MiniLM vectors: 512 by differences alone 0.989, 512 by products of 4,096 0.999; of the nearest
192: 0.82 and 0.94. On 1,000,000: 512 of 8,192 0.984, 784 of 20,833 0.994.

The codes of the live generation (`VectorScan`) are a copy: filled from the database in slices, in step with what is committed, and a search
goes to the database whenever they are not there (being loaded, too large, another generation). They are in memory only while the space is
open: 60 to 80 bytes for a piece at 384 dimensions, 144 to 180 at 1,024. Searches take no lock: they go on with the value they began with
while a newer one takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from confide_daemon.embedding.embedder import Vectors

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

WORD_BITS = 64
# Rows in one step: the words, their differences and the counts of a step stay in the second-level cache (32,768 x 19 bytes).
BLOCK = 32_768
SPARE = 1024
SAMPLE, SAMPLED = 16, 200_000
# How many the first step leaves for the second at least, which takes 0.2 ms at 384 dimensions, and of a large space one in so many.
COARSE = 4096
COARSE_SHARE = 48
# Bits of each number of a question. Recall@10 of the second step alone, 128 left of 20,000: 2 bits 0.981, 3 0.996, 4 and more 0.997.
PLANES = 5
# Of removed rows at most one in so many stays in the matrix.
MOST_GONE = 8
# 4 million pieces at 384 dimensions. A larger space is searched in the database.
SCAN_BYTES = 256 * 1024 * 1024
# Rows read from the database in one go while loading: 20 ms.
SLICE = 4096


@dataclass(eq=False, slots=True)
class Codes:
    """The codes of some pieces, by rising id. Every change makes a new value; whoever holds an older one goes on with it undisturbed.

    Only the newest value may be changed: it shares its room with those before it.
    """

    dimensions: int
    _words: Words  # (words, room)
    _ids: Numbers
    _documents: Numbers
    _count: int
    _gone: Numbers  # rows whose pieces were removed

    @classmethod
    def empty(cls, dimensions: int) -> Codes:
        words = np.empty(((dimensions + WORD_BITS - 1) // WORD_BITS, 0), dtype=np.uint64)
        none = np.empty(0, dtype=np.int64)
        return cls(dimensions, words, none, none, 0, none)

    def __len__(self) -> int:
        return self._count - len(self._gone)

    @property
    def size_bytes(self) -> int:
        return self._words.nbytes + self._ids.nbytes + self._documents.nbytes

    def with_rows(self, ids: Numbers, documents: Numbers, words: Words) -> Codes:
        """With further pieces, each of which must be new (see `missing`); `words` as of `pack`."""
        if not len(ids):
            return self
        total = self._count + len(ids)
        rising = np.all(ids[1:] > ids[:-1]) and (not self._count or ids[0] > self._ids[self._count - 1])
        if not rising:
            return self._merged(ids, documents, words)
        held = (self._words, self._ids, self._documents)
        if total > len(self._ids):
            held = self._room(total + total // 4 + SPARE)
        held[0][:, self._count : total] = words.T
        held[1][self._count : total] = ids
        held[2][self._count : total] = documents
        return Codes(self.dimensions, *held, total, self._gone)

    def _room(self, room: int) -> tuple[Words, Numbers, Numbers]:
        count = self._count
        words = np.empty((len(self._words), room), dtype=np.uint64)
        ids, documents = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
        words[:, :count] = self._words[:, :count]
        ids[:count], documents[:count] = self._ids[:count], self._documents[:count]
        return words, ids, documents

    def _merged(self, ids: Numbers, documents: Numbers, words: Words) -> Codes:
        """Vectors that come out of order (several batches on the way at once) cost a copy of everything: 3 ms for 100,000."""
        count = self._count
        all_ids = np.concatenate((self._ids[:count], ids))
        order = np.argsort(all_ids, kind="stable")
        all_words = np.concatenate((self._words[:, :count], words.T), axis=1)[:, order]
        gone = np.flatnonzero(np.isin(order, self._gone)) if len(self._gone) else self._gone
        all_documents = np.concatenate((self._documents[:count], documents))[order]
        return Codes(self.dimensions, all_words, all_ids[order], all_documents, len(order), gone)

    def missing(self, ids: Numbers) -> npt.NDArray[np.bool_]:
        """Which of the pieces are not here."""
        return self._rows(ids) < 0

    def without(self, ids: Numbers) -> Codes:
        """Without these pieces; those that are not here do not matter. Room is given back before holes are an eighth of it."""
        rows = self._rows(np.unique(ids))
        rows = rows[rows >= 0]
        if not len(rows):
            return self
        gone = np.union1d(self._gone, rows)
        if len(gone) * MOST_GONE <= self._count:
            return Codes(self.dimensions, self._words, self._ids, self._documents, self._count, gone)
        kept = np.ones(self._count, dtype=np.bool_)
        kept[gone] = False
        count = self._count
        words = np.ascontiguousarray(self._words[:, :count][:, kept])
        ids, documents = self._ids[:count][kept], self._documents[:count][kept]
        return Codes(self.dimensions, words, ids, documents, len(ids), np.empty(0, dtype=np.int64))

    def _rows(self, ids: Numbers) -> Numbers:
        """The row of each piece, -1 where there is none."""
        held = self._ids[: self._count]
        rows = np.searchsorted(held, ids)
        found = rows < self._count
        found[found] = held[rows[found]] == ids[found]
        if len(self._gone):
            found &= ~np.isin(rows, self._gone)
        return np.where(found, rows, -1)

    def nearest(self, vector: Vectors, limit: int, documents: Sequence[int] | None) -> Numbers:
        """The pieces most likely nearest to a question's vector, in no order; the same ones each time.

        `documents`: whose pieces may be found; None: all. When they have no more than `limit`, that is all of them.
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

    def _standing(self, rows: Numbers) -> Numbers:
        return np.setdiff1d(rows, self._gone, assume_unique=True) if len(self._gone) else rows

    def _coarse(self, vector: Vectors, allowed: Numbers | None) -> Numbers:
        """The rows (of some) with the fewest different signs."""
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
        differences[self._gone] = self.dimensions + 1
        return _least(differences, most, self.dimensions)

    @property
    def _most_coarse(self) -> int:
        return max(COARSE, self._count // COARSE_SHARE)

    def _of(self, documents: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Which rows are of one of the documents."""
        held = self._documents[: self._count]
        table = np.zeros(int(held.max(initial=0)) + 1, dtype=np.bool_)
        wanted = np.asarray(documents, dtype=np.int64)
        table[wanted[wanted < len(table)]] = True
        return np.asarray(table[held])


def pack(vectors: Vectors) -> Words:
    """The codes of vectors, one row each."""
    bits = np.packbits(np.atleast_2d(vectors) > 0, axis=1)
    spare = -bits.shape[1] % (WORD_BITS // 8)
    if spare:
        bits = np.pad(bits, ((0, 0), (0, spare)))
    return np.ascontiguousarray(bits).view(np.uint64)


def _differences(words: Words, code: Words) -> npt.NDArray[np.uint16]:
    """In how many signs each row differs from the code."""
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


def _least(differences: npt.NDArray[np.uint16], limit: int, most: int) -> Numbers:
    """The rows with the smallest numbers, at most `limit`, none above `most`. For 100,000 counting takes 0.2 ms, a partition 0.9."""
    if len(differences) > SAMPLED:
        # A sample tells below which number the rows lie, and a few more; the rest is not counted.
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
    """For each row about the sum of the vector's numbers where its bit is set: the product of both, but for what all rows share."""
    least = np.float32(vector.min())
    step = np.float32(max(float(vector.max() - least), 1e-30) / (2**PLANES - 1))
    levels = np.rint((vector - least) / step).astype(np.uint8)
    products = _ones(words, None) * least
    for plane, mask in enumerate(pack(levels >> np.arange(PLANES, dtype=np.uint8)[:, None] & 1)):
        products += _ones(words, mask) * (step * np.float32(2**plane))
    return np.asarray(products, dtype=np.float32)


def _ones(words: Words, mask: Words | None) -> npt.NDArray[np.uint16]:
    """How many bits of each row are set, of those in the mask."""
    count = words.shape[1]
    total = np.zeros(count, dtype=np.uint16)
    masked, ones = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint8)
    for at, column in enumerate(words):
        np.bitwise_count(column if mask is None else np.bitwise_and(column, mask[at], out=masked), out=ones)
        np.add(total, ones, out=total)
    return total


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
