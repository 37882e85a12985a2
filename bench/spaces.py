"""Spaces of any size for the benches of search: real text, real questions, and vectors that lie as real ones do.

Beyond the documentation there is (some 25,000 pieces) further documents are the same sentences in another order, so that words are as
frequent as they were and no two pieces are alike. Embedding 100,000 pieces would take half an hour, so a piece's vector is one of 20,000
real ones, perturbed; a question's is its own. What that changes is what is found, not what finding it costs.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench.texts import documentation, embedded
from confide_daemon.embedding.embedder import BatchLimits, Vectors
from confide_daemon.embedding.local.minilm import load_minilm

SEED = 11
SENTENCES_IN_DOCUMENT = 150
REAL = 20_000
ASKED = 500


def texts() -> Iterator[tuple[str, str]]:
    """(path, markdown), without end."""
    real = list(documentation(packages=True))
    yield from ((f"memory/{module}.md", text) for module, text in real)
    sentences = [s for _, text in real for s in re.split(r"(?<=[.])\s+", text) if 20 <= len(s) <= 400]
    chance, turn = random.Random(SEED), 0
    while True:
        turn += 1
        chance.shuffle(sentences)
        for start in range(0, len(sentences), SENTENCES_IN_DOCUMENT):
            chosen = sentences[start : start + SENTENCES_IN_DOCUMENT]
            yield f"memory/shuffled-{turn}/{start}.md", "\n\n".join(chosen)


class PerturbedEmbedder:
    """Questions by the real model; a piece gets a real vector, chosen by its text and perturbed to a cosine of 0.9."""

    id, model = "bench", "perturbed"

    def __init__(self) -> None:
        self._model = load_minilm()
        self._real, _ = embedded(REAL, asked=ASKED)
        self.dimensions = self._model.dimensions

    @property
    def limits(self) -> BatchLimits:
        """Large calls: these vectors cost nothing, so the rounds would."""
        return BatchLimits(texts=1024, tokens=100_000)

    def embed_query(self, text: str) -> Vectors:
        return self._model.embed_query(text)

    def embed_documents(self, pieces: Sequence[str]) -> Vectors:
        made = np.empty((len(pieces), self.dimensions), dtype=np.float32)
        for row, text in enumerate(pieces):
            seed = zlib.crc32(text.encode())
            noise = np.random.default_rng(seed).standard_normal(self.dimensions, dtype=np.float32)
            made[row] = self._real[seed % len(self._real)] + 0.48 * noise / np.linalg.norm(noise)
        return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)

    def __getattr__(self, name: str) -> Any:
        """What else a model tells of itself (its prefixes, what it costs) is as the real one's."""
        return getattr(self._model, name)
