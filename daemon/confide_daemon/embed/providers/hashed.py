"""`hashed`: words compared without a model, for machines too small for one (`embed/hashed.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide_daemon.config import EmbeddingConfig
    from confide_daemon.embed.protocol import Embedder


def open(config: EmbeddingConfig) -> Embedder:  # noqa: ARG001 - it has no options
    """Always the same."""
    from confide_daemon.embed.hashed import HashedEmbedder

    return HashedEmbedder()
