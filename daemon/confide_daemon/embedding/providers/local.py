"""`local`: a sentence model that runs in the daemon (`embedding.local.onnx`). Its options are those of `[embedding]` itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide_daemon.embedding.embedder import Embedder
    from confide_daemon.embedding.settings import EmbeddingSettings


def open(config: EmbeddingSettings) -> Embedder:
    """The model in the configured folder, else the packaged one. Raises EmbedderError."""
    from confide_daemon.embedding.local.onnx import load_folder, load_minilm

    if config.folder:
        return load_folder(Path(config.folder).expanduser(), threads=config.threads)
    return load_minilm(threads=config.threads)
