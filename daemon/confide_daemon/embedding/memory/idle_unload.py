"""What takes much memory and is soon made again, held only while it is used: the tables of tokens, and a model on this machine.

What such a model is called, and how long its vectors are, stays: no index begins anew because its model rests.
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
    """A thing that is made when it is needed, and let go when nobody has used it for a while. From any thread."""

    def __init__(self, make: Callable[[], T], rest_after_s: float, *, end: Callable[[T], None] | None = None) -> None:
        """
        Args:
            rest_after_s: without use, until it is let go; 0 keeps it.
            end: called with what is let go.
        """
        self.rest_after_s = rest_after_s
        self._make = make
        self._end = end
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self._held: T | None = None
        self._used_at = 0.0

    @property
    def is_there(self) -> bool:
        return self._held is not None

    @contextmanager
    def used(self) -> Iterator[T]:
        """The thing, which stays at least for as long as this takes. Raises what making it raises."""
        with self._lock:
            self._users += 1
        try:
            yield self._made()
        finally:
            with self._lock:
                self._users -= 1
                self._used_at = time.monotonic()

    def close(self) -> None:
        """Lets go of it, used or not."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._let_go()

    def _made(self) -> T:
        if (held := self._held) is not None:
            return held
        with self._making:
            if (held := self._held) is not None:
                return held
            made = self._make()
            with self._lock:
                self._held, self._used_at = made, time.monotonic()
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
            held, self._held = self._held, None
        if held is not None and self._end is not None:
            self._end(held)
        del held
        heaps.give_back()
        heaps.give_back_files()


class RestingEmbedder:
    """An embedder that holds its model only while that is used. From any thread."""

    def __init__(self, load: Callable[[], Embedder], rest_after_s: float) -> None:
        """Loads it the first time. `rest_after_s`: without use, until it is dropped. Raises EmbedderError, as `load`."""
        self._load = load
        self._lock = threading.Lock()
        self._waking: threading.Thread | None = None
        self.id = ""
        self._model = UnloadWhenIdle(self._loaded, rest_after_s, end=_close)
        with self._model.used() as embedder:
            self.id, self.model = embedder.id, embedder.model
            self.dimensions, self.limits = embedder.dimensions, embedder.limits
            self.leaves_blanks: bool = getattr(embedder, "leaves_blanks", False)

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
