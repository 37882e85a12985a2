"""What every embedding model offers, and what its vectors must be before anybody stores or compares them: the right number, finite, not
zero, of unit length. Imports nothing heavy: providers are imported with the configuration.

A model may know too little of a text to say anything of it: letters that its vocabulary lacks all look the same to it, and so do all texts
in them. Of such a text there is no vector, which a row of zeros stands for (`is_blank`). Only the packaged model tells: what others make of
unknown letters is not known here.
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
    """How much one call of `embed_documents` may hold, and how many calls may run at once.

    What is asked in one call is paid for, and lost when it fails, in one piece; so a provider on the network gets less in a call
    than it would take.

    Attributes:
        texts: texts in one call.
        tokens: their tokens together, in `cl100k_base` (`tokens`): what OpenAI counts in; Voyage counts 10 to 20 % more of
            them, other models less than twice as many, all far below what a provider takes in a request.
        concurrency: calls at once; 1 where they would only share the same cores.
    """

    texts: int = 32
    tokens: int = 8_000
    concurrency: int = 1

    def fit(self, sizes: Iterable[int]) -> int:
        """How many of the first texts, of so many tokens each, go into one call; one that is larger by itself goes alone."""
        count = total = 0
        for size in sizes:
            total += size
            if count == self.texts or (count and total > self.tokens):
                break
            count += 1
        return count


class Purpose(StrEnum):
    """What a text is; models that were trained for retrieval embed a question otherwise than a document."""

    QUERY = "query"
    DOCUMENT = "document"


class Embedder(Protocol):
    """One model. The three names together say which vectors may be compared: those of one (id, model, dimensions) only.

    Both methods may be called from any thread, and from several at once. They raise `EmbedderError`: as `ProviderDownError` when it is
    worth trying later, as `QuotaError` when trying again is useless until a person has acted.
    """

    @property
    def id(self) -> str:
        """The provider, such as `local`."""

    @property
    def model(self) -> str:
        """The model, such as `all-MiniLM-L6-v2-int8`; changes when its weights do."""

    @property
    def dimensions(self) -> int:
        """The length of a vector."""

    @property
    def limits(self) -> BatchLimits:
        """How much one call of `embed_documents` may hold."""

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question, shape (dimensions,)."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """The vectors of some texts, in their order, shape (len(texts), dimensions).

        One call is one request to a provider on the network (with its retries): what it returned is kept before the next is made.
        A model with an attribute `leaves_blanks` that is true gives zeros for what it does not understand, as `embed_query` does.
        """


class BadVectorError(EmbedderError):
    """A vector of the right length that has no direction: not numbers, or zero."""


def is_blank(vector: Vectors) -> bool:
    """Whether it stands for no vector: its model did not understand the text."""
    return not vector.any()


def unit(rows: object, *, count: int, dimensions: int | None, may_be_blank: bool = False) -> Vectors:
    """The rows as float32 of unit length.

    `dimensions`: None takes the first row's. `may_be_blank`: the model leaves out what it does not understand.
    Raises:
        BadVectorError: a row is not finite, or zero.
        EmbedderError: they are not so many rows of so many numbers. The message says which.
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
    # In float64, where no float32 vector is too long or too short to be measured.
    length = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if may_be_blank:
        length[length == 0] = 1.0
    if not np.isfinite(length).all() or (length == 0).any():
        raise BadVectorError("there are vectors that are not numbers or zero")
    return np.asarray(vectors / length, dtype=np.float32)
