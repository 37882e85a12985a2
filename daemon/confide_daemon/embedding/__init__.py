"""Embedding models, which turn text into vectors.

An `Embedder` is one model behind a small interface, and each provider is one file in `providers/`.
A `LoadedModel` loads it in the background, so that nothing waits for it: until it is loaded,
searches use keywords alone.
"""

import os

# BLAS with two threads turns 0.25 ms into 8 to 16 on a busy computer. The setting counts only
# before numpy is imported, and all our code with numpy imports this package first.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from confide_daemon.embedding.embedder import BatchLimits, Embedder, Vectors
from confide_daemon.embedding.model import BreakerState, CircuitBreaker, LoadedModel

__all__ = ["BatchLimits", "BreakerState", "CircuitBreaker", "Embedder", "LoadedModel", "Vectors"]
