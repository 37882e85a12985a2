"""Which embedding model the configuration asks for."""

from __future__ import annotations

from pathlib import Path

from confide_daemon.config import EmbeddingConfig
from confide_daemon.embed import Embedder, EmbedderHandle


def load(settings: EmbeddingConfig) -> Embedder:
    """The configured model, loaded.

    Raises:
        EmbedderError: it is missing or cannot be used.
    """
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
