"""The provider `hashed`: words are hashed into a fixed number of signed features, for computers
that are too small for a model.

Texts that share words are similar; meaning plays no role. Tests of logic use it as well. It is used
only if it is configured.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from confide_daemon.embedding.embedder import BatchLimits, Embedder, Vectors
from confide_daemon.embedding.settings import EmbeddingSettings


def create(config: EmbeddingSettings) -> Embedder:  # noqa: ARG001 - it has no options
    return HashedEmbedder()


class HashedEmbedder:
    """An embedder that hashes words into features (Weinberger et al. 2009)."""

    id = "hashed"
    limits = BatchLimits()

    def __init__(self, dimensions: int = 64, *, model: str = "words-v1") -> None:
        self.dimensions = dimensions
        self.model = model

    def embed_query(self, text: str) -> Vectors:

        return np.asarray(self.embed_documents([text])[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts. A text without words gets a constant vector, since no
        vector may be zero.
        """

        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                digest = hashlib.blake2b(f"{self.model}\0{word}".encode(), digest_size=8).digest()
                value = int.from_bytes(digest, "little")
                row[value % self.dimensions] += 1.0 if value >> 63 else -1.0
            if not row.any():
                row[0] = 1.0
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
