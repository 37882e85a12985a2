"""The index and the embedding model that the configuration asks for."""

from __future__ import annotations

from pathlib import Path

from confide_daemon.chunks import ChunkSettings
from confide_daemon.config import DaemonConfig, EmbeddingConfig
from confide_daemon.embed import Embedder, EmbedderHandle
from confide_daemon.index import IndexSettings
from confide_daemon.search import Weights


def index_settings(config: DaemonConfig) -> IndexSettings:
    """How every space of this daemon is cut and searched."""
    return IndexSettings(
        chunks=ChunkSettings(config.index.chunk_tokens, config.index.overlap_tokens),
        weights=Weights(vector=config.search.vector_weight, keyword=config.search.keyword_weight),
    )


def load(settings: EmbeddingConfig) -> Embedder:
    """The configured model, loaded.

    Raises:
        EmbedderError: it is missing or cannot be used.
    """
    if settings.provider == "hashed":
        from confide_daemon.embed.hashed import HashedEmbedder

        return HashedEmbedder()
    # Imported late: it brings onnxruntime's and numpy's weight, and loading runs in a thread of its own.
    from confide_daemon.embed import local

    if settings.folder:
        return local.load_folder(Path(settings.folder).expanduser(), threads=settings.threads)
    return local.load_minilm(threads=settings.threads)


def start(settings: EmbeddingConfig) -> EmbedderHandle:
    """The configured model, loading in the background; searches before it is ready go by keywords."""
    if settings.provider == "none":
        return EmbedderHandle.none()
    return EmbedderHandle(lambda: load(settings))
