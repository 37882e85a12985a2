"""A model that may still be loading. Spaces hold the handle; one handle serves all spaces of a daemon."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from confide_crypto.errors import ConfideError
from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    from confide_daemon.embed.protocol import Embedder, Vectors

# Questions asked again (by the same agent, with other filters) are not embedded again. Held in memory only.
QUERIES_KEPT = 256


class EmbedderHandle:
    """`loading`, `ready`, or `failed` with the reason; loading happens in a thread of its own and nobody waits for it."""

    def __init__(self, load: Callable[[], Embedder]) -> None:
        """Starts loading at once. What `load` raises becomes the reason of the failure."""
        self._load = load
        self._embedder: Embedder | None = None
        self._failure: ConfideError | None = None
        self._settled = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, Vectors] = OrderedDict()
        self._thread = threading.Thread(target=self._run, name="confide-embedder-load", daemon=True)
        self._thread.start()

    @classmethod
    def ready(cls, embedder: Embedder) -> EmbedderHandle:
        """A handle on a model that is already there."""
        handle = cls(lambda: embedder)
        handle.wait(5.0)
        return handle

    @classmethod
    def none(cls, reason: str = "no embedding model is configured") -> EmbedderHandle:
        """A handle without a model: every search is answered by keywords, and says so."""

        def refuse() -> Embedder:
            raise EmbedderError(reason)

        handle = cls(refuse)
        handle.wait(5.0)
        return handle

    @property
    def state(self) -> str:
        """`loading`, `ready` or `failed`."""
        if self._embedder is not None:
            return "ready"
        return "failed" if self._failure is not None else "loading"

    @property
    def failure(self) -> ConfideError | None:
        """Why the model cannot be used, when it failed."""
        return self._failure

    @property
    def embedder(self) -> Embedder | None:
        """The model, once it is ready."""
        return self._embedder

    def wait(self, timeout_s: float) -> bool:
        """Waits until loading has ended, well or not; False when it has not by then."""
        return self._settled.wait(timeout_s)

    def when_settled(self, call: Callable[[], None]) -> None:
        """Calls back once loading has ended, from the loading thread, or at once when it has already."""
        with self._lock:
            if not self._settled.is_set():
                self._listeners.append(call)
                return
        call()

    def query_vector(self, text: str) -> Vectors | None:
        """The vector of a question, or None while there is no model. Raises EmbedderError."""
        embedder = self._embedder
        if embedder is None:
            return None
        with self._lock:
            known = self._queries.get(text)
            if known is not None:
                self._queries.move_to_end(text)
                return known
        vector = embedder.embed_query(text)
        with self._lock:
            self._queries[text] = vector
            while len(self._queries) > QUERIES_KEPT:
                self._queries.popitem(last=False)
        return vector

    def _run(self) -> None:
        try:
            self._embedder = self._load()
        except ConfideError as error:
            self._failure = error
        except Exception as error:  # a broken library must not leave the handle "loading" for ever
            self._failure = EmbedderError(f"cannot load the embedding model: {type(error).__name__}")
        with self._lock:
            self._settled.set()
            listeners, self._listeners = self._listeners, []
        for call in listeners:
            call()
