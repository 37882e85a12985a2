"""`gguf`: a GGUF model in the daemon, with llama.cpp through llama-cpp-python (`confide[gguf]`), such as nomic-embed-text."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide_daemon.embed.prefixes import AUTO, Prefixes, for_model, named
from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    from confide_daemon.config import EmbeddingConfig
    from confide_daemon.embed.protocol import Embedder, Vectors


@dataclass(frozen=True, slots=True)
class Settings:
    """`[embedding.gguf]`.

    Attributes:
        path: the model's file.
        query_prefix, document_prefix: put before each text; `auto` takes what is known of the model by the file's name.
        max_tokens: of one text, in the model's own tokens; 0 takes what is known of the model, else 512.
    """

    path: str = ""
    query_prefix: str = AUTO
    document_prefix: str = AUTO
    max_tokens: int = 0

    def problem(self) -> tuple[str, str] | None:
        """The tokens, when they are no number of tokens."""
        return None if 0 <= self.max_tokens <= 1_000_000 else ("max_tokens", "it is at least 0 and at most 1,000,000")


def open(config: EmbeddingConfig) -> Embedder:
    """The model of the configured file. Raises EmbedderError."""
    settings: Settings = config.section("gguf")
    if not settings.path:
        raise EmbedderError("no GGUF model is configured", hint="set path in [embedding.gguf] of daemon.toml")
    try:
        import llama_cpp
    except ImportError:
        raise EmbedderError(
            "cannot load the GGUF model: llama-cpp-python is not installed",
            hint="install confide with the extra: confide[gguf] (it is built from source, which takes a C++ compiler)",
        ) from None
    path = Path(settings.path).expanduser()
    prefixes = for_model(
        path.name, query=settings.query_prefix, document=settings.document_prefix, max_tokens=settings.max_tokens
    )
    return GgufEmbedder(llama_cpp, path, prefixes, threads=config.threads)


class GgufEmbedder:
    """A model of llama.cpp's; one text after another, since a context serves one caller."""

    id = "gguf"

    def __init__(self, library: Any, path: Path, prefixes: Prefixes, *, threads: int) -> None:
        from confide_daemon.embed.local import file_digest
        from confide_daemon.embed.protocol import Limits

        # Nothing is gained by many in a call, and a question waits until the call is over.
        self.limits = Limits(texts=4)
        # The weights are part of the name: another file at the same place is another model.
        self.model = f"{named(path.name, prefixes)}@{file_digest(path)}"
        self._prefixes = prefixes
        self._lock = threading.Lock()
        size = prefixes.max_tokens
        try:
            # A text has to fit into one physical batch (n_ubatch) where every token sees every other.
            self._model = library.Llama(
                model_path=str(path),
                embedding=True,
                n_ctx=size,
                n_batch=size,
                n_ubatch=size,
                n_threads=threads,
                n_threads_batch=threads,
                verbose=False,
            )
        except (ValueError, RuntimeError, OSError, AssertionError) as error:
            raise EmbedderError(
                f"cannot load the GGUF model: {type(error).__name__}",
                hint="is the file a complete GGUF embedding model?",
            ) from None
        self.dimensions = int(self._model.n_embd())

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question."""
        vectors: Vectors = self._embed([self._prefixes.query + text])
        return vectors[0]  # type: ignore[no-any-return]

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts."""
        return self._embed([self._prefixes.document + text for text in texts])

    def close(self) -> None:
        """Gives the memory back."""
        self._model.close()

    def _embed(self, texts: list[str]) -> Vectors:
        import numpy as np

        from confide_daemon.embed.vectors import unit

        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        try:
            with self._lock:
                rows = [self._model.embed(text, normalize=False, truncate=True) for text in texts]
        except Exception as error:  # the library raises whatever its C code says
            raise EmbedderError(f"the GGUF model failed: {type(error).__name__}") from None
        return unit(rows, count=len(texts), dimensions=self.dimensions)
