"""The provider `fastembed`: a model for Qdrant's FastEmbed library (the extra `fastembed`), from a
folder.

Without a folder, FastEmbed would download a model, which a private daemon must not do. So the
folder is required.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from confide_daemon.embedding import libraries
from confide_daemon.embedding.embedder import BatchLimits, Embedder, Vectors, unit
from confide_daemon.embedding.local.weights import file_digest
from confide_daemon.embedding.settings import EmbeddingSettings
from confide_daemon.errors import EmbedderError
from confide_memory.errors import with_extra


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `[embedding.fastembed]` in daemon.toml."""

    model: str = "BAAI/bge-small-en-v1.5"  # as FastEmbed lists it
    folder: str = ""  # with the files of that model

    def problem(self) -> tuple[str, str] | None:
        """Return None, because FastEmbed itself checks the model's name."""
        return None


def create(config: EmbeddingSettings) -> Embedder:
    """Return the model in the configured folder. Raises EmbedderError if it cannot be loaded."""
    settings: Settings = config.section("fastembed")
    folder = Path(settings.folder).expanduser()
    if not settings.folder or not folder.is_dir():
        raise EmbedderError(
            "there is no folder with the FastEmbed model",
            hint="download the model's files yourself and set folder in [embedding.fastembed]; the daemon downloads nothing",
        )
    try:
        fastembed = libraries.import_fastembed()
    except ImportError:
        raise EmbedderError(
            "cannot load the FastEmbed model: fastembed is not installed",
            hint=with_extra("daemon", "fastembed"),
        ) from None
    return FastEmbedder(fastembed, settings.model, folder, threads=config.threads)


class FastEmbedder:
    """A model that runs with FastEmbed, which adds the prefixes for queries and documents by
    itself.
    """

    id = "fastembed"

    def __init__(self, library: Any, model: str, folder: Path, *, threads: int) -> None:

        self.limits = BatchLimits()
        try:
            self._model = library.TextEmbedding(
                model, specific_model_path=str(folder), local_files_only=True, threads=threads, cuda=False
            )
            (first,) = self._model.passage_embed(["dimensions"])
        except Exception as error:  # the library raises ValueError, OSError and onnxruntime's own
            raise EmbedderError(
                f"cannot load the FastEmbed model {model}: {type(error).__name__}",
                hint="does FastEmbed list a model of that name, and does the folder hold its files?",
            ) from None
        weights = sorted(folder.rglob("*.onnx"))
        self.model = f"{model}@{file_digest(weights[0])}" if weights else model
        self.dimensions = len(first)

    def embed_query(self, text: str) -> Vectors:
        vectors: Vectors = self._unit(self._model.query_embed([text]), 1)
        return vectors[0]  # type: ignore[no-any-return]

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self._unit(self._model.passage_embed(list(texts)), len(texts))

    def _unit(self, rows: Iterable[Any], count: int) -> Vectors:

        if not count:
            return np.empty((0, self.dimensions), dtype=np.float32)
        try:
            found = list(rows)  # runs the model
        except Exception as error:  # onnxruntime raises classes of its own, all below Exception
            raise EmbedderError(f"the FastEmbed model failed: {type(error).__name__}") from None
        return unit(found, count=count, dimensions=self.dimensions)
