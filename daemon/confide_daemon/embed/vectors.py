"""What every model's vectors must be before anybody stores or compares them: the right number, finite, not zero, of unit length."""

from __future__ import annotations

import numpy as np

from confide_daemon.embed.protocol import Vectors
from confide_daemon.errors import EmbedderError


class BadVectorError(EmbedderError):
    """A vector of the right length that has no direction: not numbers, or zero."""


def unit(rows: object, *, count: int, dimensions: int | None) -> Vectors:
    """The rows as float32 of unit length.

    Args:
        dimensions: None takes the first row's.
    Raises:
        BadVectorError: a row is not finite, or zero.
        EmbedderError: they are not so many rows of so many numbers. The message says which.
    """
    try:
        vectors = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise EmbedderError("the vectors are not rows of numbers of one length") from None
    if vectors.ndim != 2 or len(vectors) != count:
        raise EmbedderError(
            f"{count} texts were given, but {len(vectors) if vectors.ndim == 2 else 'no'} vectors came back"
        )
    if vectors.shape[1] == 0 or (dimensions is not None and vectors.shape[1] != dimensions):
        raise EmbedderError(f"the vectors have {vectors.shape[1]} dimensions, not {dimensions}")
    # In float64, where no float32 vector is too long or too short to be measured.
    length = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(length).all() or (length == 0).any():
        raise BadVectorError("there are vectors that are not numbers or zero")
    return np.asarray(vectors / length, dtype=np.float32)
