"""Turning text into vectors.

An `Embedder` is one model behind one small protocol; a provider is one file in `providers/`. A `LoadedModel` loads it in the
background, so that nothing waits for them: a search before that is answered by keywords.
"""

import os

# BLAS with two threads turns a quarter of a millisecond into 8 to 16 on a busy machine. It only counts before numpy
# is imported, and everything of ours that uses numpy imports this package first.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from confide_daemon.embedding.embedder import BatchLimits, Embedder, Vectors
from confide_daemon.embedding.model import BreakerState, CircuitBreaker, LoadedModel

__all__ = ["BatchLimits", "BreakerState", "CircuitBreaker", "Embedder", "LoadedModel", "Vectors"]
