"""The provider `gguf`: a GGUF model, such as nomic-embed-text, that runs in the daemon with
llama.cpp through llama-cpp-python (the extra `gguf`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from confide_daemon.embedding.embedder import BatchLimits, Embedder, Vectors, unit
from confide_daemon.embedding.local.weights import file_digest
from confide_daemon.embedding.settings import AUTO, EmbeddingSettings, Prefixes, for_model, generation_name
from confide_daemon.errors import EmbedderError
from confide_memory.errors import with_extra

# Limit on a text: no chunk is longer, and llama.cpp's memory grows with its square. bge-m3 would
# take gigabytes for the 8,192 it can read.
TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `[embedding.gguf]` in daemon.toml.

    Attributes:
        path: the model's file.
        query_prefix, document_prefix: put before each text; `auto` takes the known ones for the
            file's name.
        max_tokens: limit on one text in the model's own tokens; 0 takes the known limit of the
            model (at most 2,048), else 512. Never more than the file states.
    """

    path: str = ""
    query_prefix: str = AUTO
    document_prefix: str = AUTO
    max_tokens: int = 0

    def problem(self) -> tuple[str, str] | None:
        """Return the option `max_tokens` and a description of valid values if it is invalid, else
        None.
        """
        return None if 0 <= self.max_tokens <= 1_000_000 else ("max_tokens", "it is at least 0 and at most 1,000,000")


def create(config: EmbeddingSettings) -> Embedder:
    """Return the model in the configured file. Raises EmbedderError if it cannot be loaded."""
    settings: Settings = config.section("gguf")
    if not settings.path:
        raise EmbedderError("no GGUF model is configured", hint="set path in [embedding.gguf] of daemon.toml")
    # Read when the library is loaded. Spinning OpenMP threads waste their cores: with two, a query
    # took ten times the CPU time, and on a busy computer ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import llama_cpp
    except ImportError:
        raise EmbedderError(
            "cannot load the GGUF model: llama-cpp-python is not installed",
            hint=f"{with_extra('daemon', 'gguf')} (it is built from source, with a C++ compiler)",
        ) from None
    except (OSError, RuntimeError) as error:
        raise EmbedderError(
            f"cannot load the GGUF model: llama-cpp-python does not run on this machine ({type(error).__name__})",
            hint="build it here: pip install --force-reinstall --no-binary llama-cpp-python llama-cpp-python",
        ) from None
    path = Path(settings.path).expanduser()
    prefixes = for_model(
        path.name, query=settings.query_prefix, document=settings.document_prefix, max_tokens=settings.max_tokens
    )
    if not settings.max_tokens:
        prefixes = replace(prefixes, max_tokens=min(prefixes.max_tokens, TOKENS))
    return GgufEmbedder(llama_cpp, path, prefixes, threads=config.threads)


class GgufEmbedder:
    """A model that runs with llama.cpp. It embeds one text after another, because a llama.cpp
    context serves one caller at a time.
    """

    id = "gguf"

    def __init__(self, library: Any, path: Path, prefixes: Prefixes, *, threads: int) -> None:

        # Larger calls gain nothing.
        self.limits = BatchLimits(texts=4)
        # The name includes a hash of the weights: another file at the same path is another model.
        self.model = f"{generation_name(path.name, prefixes)}@{file_digest(path)}"
        self._prefixes = prefixes
        self._door = threading.Lock()
        self._lock = threading.Lock()
        self._is_closed = False
        size = min(prefixes.max_tokens, TOKENS)
        self._model = _load(library, path, size, threads=threads)
        # llama.cpp ends the whole process if a text is longer than the model's positions.
        fitting = min(prefixes.max_tokens, _own_tokens(self._model.metadata))
        if fitting != size:
            self._model.close()
            self._model = _load(library, path, fitting, threads=threads)
        if self._model.pooling_type() in (library.LLAMA_POOLING_TYPE_NONE, library.LLAMA_POOLING_TYPE_RANK):
            self._model.close()
            raise EmbedderError(
                "cannot use the GGUF model: it makes no vectors of texts",
                hint="one that answers or reranks will not do: it has to be an embedding model, such as nomic-embed-text",
            )
        self.dimensions = int(self._model.n_embd())

    def embed_query(self, text: str) -> Vectors:
        vectors: Vectors = self._embed([self._prefixes.query + text])
        return vectors[0]  # type: ignore[no-any-return]

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self._embed([self._prefixes.document + text for text in texts])

    def close(self) -> None:
        """Free the model's memory as soon as the current text is embedded."""
        with self._door, self._lock:
            self._is_closed = True
            self._model.close()

    def _embed(self, texts: list[str]) -> Vectors:

        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        return unit([self._row(text) for text in texts], count=len(texts), dimensions=self.dimensions)

    def _row(self, text: str) -> list[float]:
        # Callers queue at `_door`, so a query waits for one text of the documents only.
        with self._door:
            self._lock.acquire()
        try:
            if self._is_closed:  # the library would read memory that it has given back
                raise EmbedderError("the GGUF model is closed")
            row: list[float] = self._model.embed(text, normalize=False, truncate=True)
        except EmbedderError:
            raise
        except Exception as error:  # the library raises whatever its C code says
            raise EmbedderError(f"the GGUF model failed: {type(error).__name__}") from None
        finally:
            self._lock.release()
        return row


def _load(library: Any, path: Path, tokens: int, *, threads: int) -> Any:
    """Load the model for texts of so many tokens. Raises EmbedderError."""
    try:
        # A text must fit into one physical batch (n_ubatch), as every token sees every other.
        return library.Llama(
            model_path=str(path),
            embedding=True,
            n_ctx=tokens,
            n_batch=tokens,
            n_ubatch=tokens,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
    except Exception as error:  # the library raises whatever its C code and its templates say
        raise EmbedderError(
            f"cannot load the GGUF model: {type(error).__name__}",
            hint="is the file a complete GGUF embedding model? Where memory is short, a smaller max_tokens helps",
        ) from None


def _own_tokens(metadata: dict[str, str]) -> int:
    """Return the model's maximum number of tokens, as its file states it."""
    stated = metadata.get(f"{metadata.get('general.architecture')}.context_length", "")
    return int(stated) if stated.isdecimal() and int(stated) else TOKENS
