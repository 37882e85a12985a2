"""A model on this machine that is dropped when nobody has used it for a while, and loaded again for the next question or document.

What it is called, and how long its vectors are, stays: no index begins anew because its model rests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from confide_daemon.embedding import memory, tokens
from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    from confide_daemon.embedding.embedder import Embedder, Vectors


class RestingEmbedder:
    """An embedder that holds its model only while that is used. From any thread."""

    def __init__(self, load: Callable[[], Embedder], rest_after_s: float) -> None:
        """Loads it the first time. `rest_after_s`: without use, until it is dropped. Raises EmbedderError, as `load`."""
        self._load = load
        self._rest_after_s = rest_after_s
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._waking: threading.Thread | None = None
        self._users = 0
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self._embedder: Embedder | None = load()
        self.id, self.model = self._embedder.id, self._embedder.model
        self.dimensions, self.limits = self._embedder.dimensions, self._embedder.limits
        self._used_at = time.monotonic()
        self._look_in(rest_after_s)

    @property
    def is_awake(self) -> bool:
        return self._embedder is not None

    def wake(self, timeout_s: float) -> bool:
        """Has it loaded where it rests; whether it is there within so long. One that cannot be loaded is: its next call says why."""
        with self._lock:
            if self._embedder is not None:
                return True
            if self._waking is None or not self._waking.is_alive():
                self._waking = threading.Thread(target=self._try_to_load, name="confide-embedder-load", daemon=True)
                self._waking.start()
            waking = self._waking
        waking.join(timeout_s)
        return not waking.is_alive()

    def embed_query(self, text: str) -> Vectors:
        with self._used() as embedder:
            return embedder.embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        with self._used() as embedder:
            return embedder.embed_documents(texts)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._drop()

    @contextmanager
    def _used(self) -> Iterator[Embedder]:
        with self._lock:
            self._users += 1
        try:
            yield self._loaded()
        finally:
            with self._lock:
                self._users -= 1
                self._used_at = time.monotonic()

    def _loaded(self) -> Embedder:
        with self._loading:
            if (embedder := self._embedder) is not None:
                return embedder
            embedder = self._load()
            if (embedder.model, embedder.dimensions) != (self.model, self.dimensions):
                raise EmbedderError(
                    "the embedding model was replaced by another one while it rested", hint="restart confided"
                )
            with self._lock:
                self._embedder, self._used_at = embedder, time.monotonic()
                self._look_in(self._rest_after_s)
            memory.give_back()  # what loading needed for a moment
            return embedder

    def _try_to_load(self) -> None:
        with suppress(Exception):  # whoever uses it meets it again
            self._loaded()

    def _look_in(self, pause_s: float) -> None:
        if not self._is_closed:
            self._timer = threading.Timer(pause_s, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            left = self._used_at + self._rest_after_s - time.monotonic()
            if self._users or left > 0:
                self._look_in(self._rest_after_s if self._users else left)
                return
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            if self._users and not self._is_closed:
                self._look_in(self._rest_after_s)
                return
            embedder, self._embedder = self._embedder, None
        close = getattr(embedder, "close", None)
        if close is not None:
            close()
        del embedder, close
        # Whoever cuts a document loads these again, in a tenth of a second.
        tokens.forget()
        memory.give_back()
