"""What every embedding model offers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # Float32 rows of unit length, shape (texts, dimensions).
    Vectors: TypeAlias = NDArray[np.float32]
else:
    Vectors = object


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one call of `embed_documents` may hold, and how many calls may run at once.

    What is asked in one call is paid for, and lost when it fails, in one piece; so a provider on the network gets less in a call
    than it would take.

    Attributes:
        texts: texts in one call.
        tokens: their tokens together, in `cl100k_base` (`confide_daemon.tokens`): what OpenAI counts in; Voyage counts 10 to 20 % more of
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
    def limits(self) -> Limits:
        """How much one call of `embed_documents` may hold."""

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question, shape (dimensions,)."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """The vectors of some texts, in their order, shape (len(texts), dimensions).

        One call is one request to a provider on the network (with its retries): what it returned is kept before the next is made.
        """
