"""Turning text into vectors.

An `Embedder` is one model behind one small protocol; adding a provider is one file here. Models load in the background behind an
`EmbedderHandle`, so that nothing waits for them: a search before that is answered by keywords.
"""

from confide_daemon.embed.handle import EmbedderHandle
from confide_daemon.embed.protocol import Embedder, Vectors

__all__ = ["Embedder", "EmbedderHandle", "Vectors"]
