"""The provider `local`: a sentence model that runs in the daemon (`embedding.local`). It uses the
options of `[embedding]` itself.
"""

from __future__ import annotations

from pathlib import Path

from confide_daemon.embedding.embedder import Embedder
from confide_daemon.embedding.settings import EmbeddingSettings


def create(config: EmbeddingSettings) -> Embedder:
    """Return the model in the configured folder, or the packaged one if no folder is set. Raises
    EmbedderError if it cannot be loaded.
    """
    if config.folder:
        from confide_daemon.embedding.local.onnx import load_folder

        return load_folder(Path(config.folder).expanduser(), threads=config.threads)
    # Without ONNX Runtime, whose memory a process never frees.
    from confide_daemon.embedding.local.minilm import load_minilm

    return load_minilm(threads=config.threads)
