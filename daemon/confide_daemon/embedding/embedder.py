"""The interface of embedding models, and the checks on their vectors: the right number and length,
finite, not zero.

The module imports nothing large, because the configuration imports the providers. A model may not
understand a text: letters that its vocabulary lacks all look the same to it, and so do texts in
such letters. Such a text gets a row of zeros instead of a vector (`is_blank`). Only the packaged
models detect this; for other models it is not known how they treat such letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # Float32 rows of unit length, shape (texts, dimensions).
    Vectors: TypeAlias = NDArray[np.float32]
else:
    Vectors = object


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits on one call of `embed_documents`, and on concurrent calls.

    A call is paid for as a whole, and lost as a whole if it fails. So a provider on the network
    gets less per call than it would accept.

    Attributes:
        texts: most texts in one call.
        tokens: most tokens in one call, counted in OpenAI's `cl100k_base` (`token_counts`). Voyage
            counts 10 to 20 % more, other models less than twice as many; all of this is far below a
            provider's limit.
        concurrency: most concurrent calls; 1 if they would only share the same processor cores.
    """

    texts: int = 32
    tokens: int = 8_000
    concurrency: int = 1

    def fit(self, sizes: Iterable[int]) -> int:
        """Return how many of the first texts fit into one call. `sizes` are their numbers of
        tokens. A text that exceeds the limit by itself gets a call of its own.
        """
        count = total = 0
        for size in sizes:
            total += size
            if count == self.texts or (count and total > self.tokens):
                break
            count += 1
        return count


class Purpose(StrEnum):
    """The purpose of a text: query or document. Retrieval models embed the two differently."""

    QUERY = "query"
    DOCUMENT = "document"


class Embedder(Protocol):
    """The interface of an embedding model. Vectors are comparable only if id, model and dimensions
    are equal.

    Both methods may be called from any thread, and concurrently. They raise ProviderDownError if a
    later retry may succeed, QuotaError if no retry can succeed until a person acts, or another
    EmbedderError.
    """

    @property
    def id(self) -> str:
        """The name of the provider, such as `local`."""

    @property
    def model(self) -> str:
        """The name of the model, such as `all-MiniLM-L6-v2-int8`. It changes when the weights
        change.
        """

    @property
    def dimensions(self) -> int:
        """The number of elements of a vector."""

    @property
    def limits(self) -> BatchLimits:
        """The limits on the size and number of calls of `embed_documents`."""

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query, with shape (dimensions,)."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in order, with shape (len(texts), dimensions).

        For a provider on the network, one call is one request, including its retries, so that its
        result can be stored before the next request. A model whose `leaves_blanks` is True returns
        zeros for a text that it does not understand; `embed_query` does so too.
        """


class BadVectorError(EmbedderError):
    """A vector is unusable although its length is right, because it is zero or contains infinity or
    NaN.
    """


def is_blank(vector: Vectors) -> bool:
    """Return True if the vector is all zeros, which means that the model did not understand the
    text.
    """
    return not vector.any()


def unit(rows: object, *, count: int, dimensions: int | None, may_be_blank: bool = False) -> Vectors:
    """Check vectors from a model, and return them as float32, scaled to unit length.

    Without `dimensions` (None), the first row sets the expected length. `may_be_blank` allows rows
    of zeros.

    Raises:
        BadVectorError: if a row is zero or contains infinity or NaN.
        EmbedderError: if the number or length of the rows is wrong; the message says which.
    """
    import numpy as np

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
    # In float64, where the norm of no float32 vector over- or underflows.
    length = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if may_be_blank:
        length[length == 0] = 1.0
    if not np.isfinite(length).all() or (length == 0).any():
        raise BadVectorError("there are vectors that are not numbers or zero")
    return np.asarray(vectors / length, dtype=np.float32)
