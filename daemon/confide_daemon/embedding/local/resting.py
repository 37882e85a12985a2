"""A model on this machine that is dropped when nobody has used it for a while, and loaded again for the next question or document.

What it is called, and how long its vectors are, stays: no index begins anew because its model rests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from confide_daemon.embedding.memory.while_used import WhileUsed
from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    from confide_daemon.embedding.embedder import Embedder, Vectors


class RestingEmbedder:
    """An embedder that holds its model only while that is used. From any thread."""

    def __init__(self, load: Callable[[], Embedder], rest_after_s: float) -> None:
        """Loads it the first time. `rest_after_s`: without use, until it is dropped. Raises EmbedderError, as `load`."""
        self._load = load
        self._lock = threading.Lock()
        self._waking: threading.Thread | None = None
        self.id = ""
        self._model = WhileUsed(self._loaded, rest_after_s, end=_close)
        with self._model.used() as embedder:
            self.id, self.model = embedder.id, embedder.model
            self.dimensions, self.limits = embedder.dimensions, embedder.limits

    @property
    def is_awake(self) -> bool:
        return self._model.is_there

    def wake(self, timeout_s: float) -> bool:
        """Has it loaded where it rests; whether it is there within so long. One that cannot be loaded is: its next call says why."""
        with self._lock:
            if self.is_awake:
                return True
            if self._waking is None or not self._waking.is_alive():
                self._waking = threading.Thread(target=self._try_to_load, name="confide-embedder-load", daemon=True)
                self._waking.start()
            waking = self._waking
        waking.join(timeout_s)
        return not waking.is_alive()

    def embed_query(self, text: str) -> Vectors:
        with self._model.used() as embedder:
            return embedder.embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        with self._model.used() as embedder:
            return embedder.embed_documents(texts)

    def close(self) -> None:
        self._model.close()

    def _loaded(self) -> Embedder:
        embedder = self._load()
        if self.id and (embedder.model, embedder.dimensions) != (self.model, self.dimensions):
            _close(embedder)
            raise EmbedderError(
                "the embedding model was replaced by another one while it rested", hint="restart confided"
            )
        return embedder

    def _try_to_load(self) -> None:
        # Whoever uses it meets it again.
        with suppress(Exception), self._model.used():
            pass


def _close(embedder: Embedder) -> None:
    if (close := getattr(embedder, "close", None)) is not None:
        close()
