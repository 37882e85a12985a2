"""`local`: a sentence model that runs in the daemon (`embed/local.py`). Its options are those of `[embedding]` itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide_daemon.config import EmbeddingConfig
    from confide_daemon.embed.protocol import Embedder


def open(config: EmbeddingConfig) -> Embedder:
    """The model in the configured folder, else the packaged one. Raises EmbedderError."""
    from confide_daemon.embed.local import load_folder, load_minilm

    if config.folder:
        return load_folder(Path(config.folder).expanduser(), threads=config.threads)
    return load_minilm(threads=config.threads)
