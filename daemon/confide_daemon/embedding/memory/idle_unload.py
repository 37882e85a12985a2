"""Keeps objects in memory only while they are used, if they are large but load quickly: the token
tables, and a local model.

The name and dimensions of a model stay known while it is unloaded, so the index need not be
rebuilt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from confide_crypto import heaps
from confide_daemon.embedding.embedder import Embedder, Vectors
from confide_daemon.errors import EmbedderError

T = TypeVar("T")


class UnloadWhenIdle(Generic[T]):
    """An object that is created on demand, and dropped when it was not used for a while. Usable
    from any thread.
    """

    def __init__(self, make: Callable[[], T], rest_after_s: float, *, end: Callable[[T], None] | None = None) -> None:
        """Args:
        rest_after_s: idle time until it is dropped; 0 keeps it.
        end: called with the dropped object.
        """
        self.rest_after_s = rest_after_s
        self._make = make
        self._end = end
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self._object: T | None = None
        self._used_at = 0.0

    @property
    def is_there(self) -> bool:
        return self._object is not None

    @contextmanager
    def use(self) -> Iterator[T]:
        """Yield the object, and keep it until the `with` block ends. Raises the errors of its
        creation.
        """
        with self._lock:
            self._users += 1
        try:
            yield self._get_or_make()
        finally:
            with self._lock:
                self._users -= 1
                self._used_at = time.monotonic()

    def close(self) -> None:
        """Drop the object, even if it is in use."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._let_go()

    def _get_or_make(self) -> T:
        if (held := self._object) is not None:
            return held
        with self._making:
            if (held := self._object) is not None:
                return held
            made = self._make()
            with self._lock:
                self._object, self._used_at = made, time.monotonic()
                self._look_in(self.rest_after_s)
        heaps.give_back()  # what making it needed for a moment
        return made

    def _look_in(self, pause_s: float) -> None:
        if not self._is_closed and self.rest_after_s:
            self._timer = threading.Timer(pause_s, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            left = self._used_at + self.rest_after_s - time.monotonic()
            if self._users or left > 0:
                self._look_in(self.rest_after_s if self._users else left)
                return
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            if self._users and not self._is_closed:
                self._look_in(self.rest_after_s)
                return
            held, self._object = self._object, None
        if held is not None and self._end is not None:
            self._end(held)
        del held
        heaps.give_back()
        heaps.give_back_files()


class RestingEmbedder:
    """An embedder that keeps its model in memory only while it is used. Usable from any thread."""

    def __init__(self, load: Callable[[], Embedder], rest_after_s: float) -> None:
        """Load the model once; drop it after `rest_after_s` without use. Raises EmbedderError: the
        model cannot be loaded.
        """
        self._load = load
        self._lock = threading.Lock()
        self._waking: threading.Thread | None = None
        self.id = ""
        self._model = UnloadWhenIdle(self._reload, rest_after_s, end=_close)
        with self._model.use() as embedder:
            self.id, self.model = embedder.id, embedder.model
            self.dimensions, self.limits = embedder.dimensions, embedder.limits
            self.leaves_blanks: bool = getattr(embedder, "leaves_blanks", False)

    @property
    def is_awake(self) -> bool:
        return self._model.is_there

    def wake(self, timeout_s: float) -> bool:
        """Load the model if it is unloaded. Return True if it is ready within the timeout, else
        False. A failed load counts as ready, because the next call reports the error.
        """
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
        with self._model.use() as embedder:
            return embedder.embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        with self._model.use() as embedder:
            return embedder.embed_documents(texts)

    def close(self) -> None:
        self._model.close()

    def _reload(self) -> Embedder:
        embedder = self._load()
        if self.id and (embedder.model, embedder.dimensions) != (self.model, self.dimensions):
            _close(embedder)
            raise EmbedderError(
                "the embedding model was replaced by another one while it rested", hint="restart confided"
            )
        return embedder

    def _try_to_load(self) -> None:
        # The next user gets the same error.
        with suppress(Exception), self._model.use():
            pass


def _close(embedder: Embedder) -> None:
    if (close := getattr(embedder, "close", None)) is not None:
        close()
