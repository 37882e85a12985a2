"""Turning text into vectors.

An `Embedder` is one model behind one small protocol; a provider is one file in `providers/`. A `Model` loads it in the
background, so that nothing waits for them: a search before that is answered by keywords.
"""

from confide_daemon.embedding import blas

# It only counts before numpy is imported, and everything of ours that uses numpy imports this package first.
blas.prepare()

from confide_daemon.embedding.embedder import Embedder, Limits, Vectors
from confide_daemon.embedding.model import BreakerState, CircuitBreaker, Model

__all__ = ["BreakerState", "CircuitBreaker", "Embedder", "Limits", "Model", "Vectors"]
